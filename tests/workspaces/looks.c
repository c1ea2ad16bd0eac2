/* Looks at files in one of seven ways, as its first argument says; linked statically. */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int count, char **words) {
    const char *kind = count > 1 ? words[1] : "";
    char text[4096];
    struct stat status;
    if (!strcmp(kind, "open")) {
        int file = open("opened", O_RDONLY);
        return read(file, text, sizeof text) < 0;
    }
    if (!strcmp(kind, "mmap")) {
        int file = open("mapped", O_RDONLY);
        char *memory = mmap(0, 4, PROT_READ, MAP_PRIVATE, file, 0);
        return memory == MAP_FAILED || memory[0] != 'm';
    }
    if (!strcmp(kind, "stat")) return stat("inner/../looked_at", &status);
    if (!strcmp(kind, "missing")) return open("not_there", O_RDONLY) >= 0;
    if (!strcmp(kind, "listing")) {
        DIR *folder = opendir("listed");
        return readdir(folder) == 0;
    }
    if (!strcmp(kind, "readlink")) return readlink("link", text, sizeof text) < 0;
    if (!strcmp(kind, "exec")) return execl("./executed", "./executed", (char *)0);
    return 2;
}
