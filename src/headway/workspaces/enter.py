"""The process that the shim starts instead of a command with a workspace or an observed command.

It enters the workspace, starts the command, records what it reads and writes, stores that, and
ends as the command did. `launch_argv` in `observation.py` says how it is started:
SPEC.json ARGV... The spec is an object with these keys, of which only `mode` and `folder` must be:

    mode      "overlay": the folder is an overlay mount, at its own path, that only the command sees
              "copy": the command works in a copy; nothing is mounted
              "observe": no isolation; other commands change the folder at the same time
    folder    the folder as the user knows it; paths are reported relative to it
    place     copy: where the copy is
    lower, upper, work   overlay: the lower layers, topmost first; the upper layer; its work folder
    hidden    overlay: folders that are empty for the command (other workspaces)
    cwd       where the command starts; `folder` if absent
    observe   false: what it reads and writes is not recorded
    log       where the observation is written
    checks    patterns of commands whose reads are those of a check
    own       folders outside `folder` whose writes are not reported; if absent, the temporary ones

Laws:
- In an overlay nothing that the command or its processes do reaches the folder below it; they end
  when the command ends.
- When this process is killed, the mounts and the command's processes end with it.
- Signals are for the command: the shim sends them to every process, and this one ignores them.

    this process (in the namespaces of the mounts; supervises)
      init: pid 1 of the inner namespace, or subreaper where there is none
        the command (filtered)

Imports little: `json` alone would double the time to start.
"""

from __future__ import annotations

import _socket as socket
import ctypes
import errno
import os
import sys
from _json import encode_basestring_ascii, make_encoder, make_scanner
from binascii import crc32
from codecs import escape_decode

from headway.base.process_tree import family
from headway.workspaces.syscalls import (
    CLONE_NUMBER,
    IS_KNOWN,
    MACHINE,
    SECCOMP_NUMBER,
    observed_calls,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any

    from headway.workspaces.supervisor import Supervisor
else:
    import _signal as signal

HEAD = "headway-observation 1 "
FAULT_CODE = 125
"""The exit code if the workspace cannot be entered; the reason is in the log and on stderr."""

NEW_NS, NEW_USER, NEW_PID = 0x00020000, 0x10000000, 0x20000000
MS_READ_ONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = (
    1, 2, 4, 8, 4096, 16384, 1 << 18,
)  # fmt: skip
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_SUBREAPER, PR_NO_NEW_PRIVS = (
    1, 4, 24, 36, 38,
)  # fmt: skip
SECCOMP_SET_FILTER = 1
FILTER_SPEC_ALLOW, FILTER_LISTENER, FILTER_WAIT_KILLABLE = 4, 8, 32
CAPABILITIES_MAX = 63
KEPT_BY_ROOT = sum(1 << number for number in (0, 1, 3, 4, 5, 6, 7, 10))
"""What root may do to files, users and low ports; without it root could not use files of others."""
MESSAGE_BYTES_MAX = 65536
TEMPORARY = ("/tmp", "/var/tmp", "/run/user")
DEVICES = ("/dev", "/proc", "/sys")

libc = ctypes.PyDLL(None, use_errno=True)
"""PyDLL keeps the interpreter's lock, which `clone` needs."""


class EntryError(Exception):
    """The workspace cannot be entered."""


def call(what: str, result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def kernel_call(*numbers: int) -> int:
    result: int = libc.syscall(*map(ctypes.c_long, numbers))
    return result


def read_spec(path: str) -> dict[str, Any]:
    scan: Any = make_scanner
    with open(path, encoding="utf-8") as file:
        spec: dict[str, Any] = scan(JsonOptions())(file.read().strip(), 0)[0]
    return spec


class JsonOptions:
    """What `json` would give to its scanner."""

    def __init__(self) -> None:
        self.strict = True
        self.object_hook = self.object_pairs_hook = None
        self.parse_float = self.parse_constant = float
        self.parse_int = int
        self.memo: dict[str, str] = {}


# The mounts.


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    encoded = [os.fsencode(word) for word in (source, target, kind)]
    call(f"mount {kind or 'bind'} at {target}", libc.mount(*encoded, flags, os.fsencode(data)))


def overlay_options(lower: list[str], upper: str, work: str, is_user: bool) -> str:
    def plain(path: str) -> str:
        return path.replace("\\", "\\\\").replace(",", "\\,").replace(":", "\\:")

    layers = ":".join(map(plain, lower))
    # Volatile: the end of the mount does not wait until all files of the disk are written.
    options = f"lowerdir={layers},upperdir={plain(upper)},workdir={plain(work)},volatile"
    return options + (",userxattr" if is_user else "")


def mount_overlay(one: dict[str, Any], is_user: bool) -> None:
    left = os.path.join(one["work"], "work", "incompat", "volatile")
    if os.path.isdir(left):  # Left by the mount before; the kernel would refuse.
        os.chmod(os.path.join(one["work"], "work"), 0o700)
        os.unlink(os.path.join(left, "dirty"))
        os.rmdir(left)
    options = overlay_options(one["lower"], one["upper"], one["work"], is_user)
    folder = os.path.realpath(one["folder"])
    others = other_paths(folder)
    mount("overlay", folder, "overlay", 0, options)
    for path in others:
        mount(folder, path, "", MS_BIND)


def other_paths(folder: str) -> list[str]:
    """Where else the same folder is mounted."""
    with open("/proc/self/mountinfo", "rb") as file:
        rows = [line.split()[2:5] for line in file]
    mounts = [
        (device, os.fsdecode(escape_decode(root)[0]), os.fsdecode(escape_decode(point)[0]))
        for device, root, point in rows
    ]
    inner = ""
    for device, root, point in mounts:  # The last one that is above the folder has it.
        if below(folder, point) is not None:
            home, inner = device, root.rstrip("/") + (below(folder, point) or "")
    found = [
        point.rstrip("/") + rest
        for device, root, point in mounts
        if device == home and (rest := below(inner, root)) is not None
    ]
    status = os.stat(folder)
    return [
        path
        for path in dict.fromkeys(found)
        if path != folder and os.path.exists(path) and os.path.samestat(os.stat(path), status)
    ]


def below(path: str, folder: str) -> str | None:
    """The rest of a path that is in a folder, with its slash; None if it is not in it."""
    folder = folder.rstrip("/")
    return path[len(folder) :] if (path + "/").startswith(folder + "/") else None


def enter_mounts(spec: dict[str, Any]) -> None:
    """Enter namespaces of our own and mount; the namespaces go with their last process."""
    is_user = libc.unshare(NEW_NS) < 0
    if is_user:
        user, group = os.geteuid(), os.getegid()
        call("user namespace", libc.unshare(NEW_NS | NEW_USER))
        write_text("/proc/self/setgroups", "deny")
        write_text("/proc/self/uid_map", f"{user} {user} 1")
        write_text("/proc/self/gid_map", f"{group} {group} 1")
    mount("none", "/", "", MS_REC | MS_PRIVATE)
    is_user = is_user or identity_map("uid").split() != ["0", "0", "4294967295"]
    mount_overlay(spec, is_user)


def write_text(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def identity_map(kind: str) -> str:
    """All numbers that exist here, each as itself."""
    with open(f"/proc/self/{kind}_map") as file:
        rows = [line.split() for line in file]
    return "".join(f"{inside} {inside} {count}\n" for inside, _, count in rows)


def start_init(socket_pair: tuple[Any, Any], spec: dict[str, Any], argv: list[str]) -> int:
    """Fork the init process of inner namespaces, in which nothing can be mounted or unmounted."""
    ours, theirs = socket_pair
    flags, kinds = NEW_NS | NEW_PID, ("uid", "gid")
    maps = [identity_map(kind) for kind in kinds]
    clone = CLONE_NUMBER[MACHINE]
    pid = kernel_call(clone, flags | NEW_USER | signal.SIGCHLD, 0, 0, 0, 0)
    is_user = pid >= 0
    if pid < 0:  # Root does without, where user namespaces are forbidden.
        pid = call("clone", kernel_call(clone, flags | signal.SIGCHLD, 0, 0, 0, 0))
    if pid == 0:
        ours.close()
        run_init(theirs, spec, argv, is_inner=True)
    if is_user:
        for kind, text in zip(kinds, maps, strict=True):
            write_text(f"/proc/{pid}/{kind}_map", text)
    theirs.close()
    ours.send(b"M")
    return pid


def close_inner(spec: dict[str, Any]) -> None:
    """The last mounts, made in the inner namespaces."""
    mount("none", "/", "", MS_REC | MS_PRIVATE)
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    for path in spec.get("hidden", ()):
        mount("none", path, "tmpfs", MS_NOSUID | MS_NODEV | MS_READ_ONLY, "size=4k,mode=555")


def drop_capabilities() -> None:
    kept = KEPT_BY_ROOT if os.geteuid() == 0 else 0
    for number in range(CAPABILITIES_MAX):
        if not kept >> number & 1 and libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0) < 0:
            break  # The kernel has no more.
    head = (ctypes.c_uint32 * 2)(0x20080522, 0)
    now = (ctypes.c_uint32 * 6)()
    call("capget", libc.capget(head, now))
    for place in range(6):
        now[place] &= kept & 0xFFFFFFFF if place < 2 else 0
    call("capset", libc.capset(head, now))


# The processes.


def run_init(control: Any, spec: dict[str, Any], argv: list[str], is_inner: bool) -> None:
    """Start the command, reap what it leaves, report how it ended. Does not return."""
    try:
        if is_inner:
            call("prctl", libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
            if control.recv(1) != b"M":
                os._exit(1)
            close_inner(spec)
        else:
            call("prctl", libc.prctl(PR_SET_SUBREAPER, 1, 0, 0, 0))
            signal.signal(signal.SIGUSR2, lambda *_: end_family())
            call("prctl", libc.prctl(PR_SET_PDEATHSIG, signal.SIGUSR2, 0, 0, 0))
        command = os.fork()
        if command == 0:
            start_command(control, spec, argv, is_inner)
        if is_inner:
            libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
            drop_capabilities()
        control.send(b"P")  # Fails if the process above was killed before PDEATHSIG was set.
        close_output()
        pid = 0
        while pid != command:
            pid, status = os.wait()
        if spec["mode"] == "copy":
            end_children()
        is_left = not is_inner and has_children()
        control.send(b"S%d %d" % (status, is_left))
    except BaseException as fault:
        report_fault(control, fault)
    os._exit(0)


def start_command(control: Any, spec: dict[str, Any], argv: list[str], is_inner: bool) -> None:
    """In the process that becomes the command. Does not return."""
    try:
        call("prctl", libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
        if is_inner:
            os.setsid()
        else:
            os.setpgid(0, 0)  # Of the same session, by which the shim finds its processes.
        os.chdir(spec.get("cwd") or spec.get("place") or spec["folder"])
        if is_inner:
            drop_capabilities()
            call("prctl", libc.prctl(PR_NO_NEW_PRIVS, 1, 0, 0, 0))
            # Dropped capabilities may have cleared it.
            call("prctl", libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
        program = ctypes.create_string_buffer(spec["filter"]) if spec["filter"] else None
        for number in (
            signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP,
            signal.SIGUSR2,
        ):  # fmt: skip
            signal.signal(number, signal.SIG_DFL)
        if program is not None:
            try:
                listener = install_filter(program)
            except OSError as fault:
                control.send(b"N" + str(fault.args[-1]).encode())
            else:
                rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, listener.to_bytes(4, sys.byteorder))
                control.sendmsg([b"L"], [rights])
                os.close(listener)
    except BaseException as fault:
        report_fault(control, fault)
        os._exit(FAULT_CODE)
    try:
        try:
            os.execvp(argv[0], argv)
        except OSError as fault:
            if fault.errno != errno.ENOEXEC:
                raise
            os.execv("/bin/sh", ["/bin/sh", *argv])
    except OSError as fault:
        os.write(2, f"{argv[0]}: {os.strerror(fault.errno or 0)}\n".encode(errors="replace"))
        os._exit(127 if fault.errno == errno.ENOENT else 126)


def install_filter(program: Any) -> int:
    """Put the filter on this process and all that it starts; the listener's descriptor."""
    size, number = len(program) - 1, SECCOMP_NUMBER[MACHINE]
    fprog = (ctypes.c_uint64 * 2)(size // 8, ctypes.addressof(program))
    for is_retry in (False, True):
        for flags in (FILTER_WAIT_KILLABLE, 0):
            all_flags = flags | FILTER_SPEC_ALLOW | FILTER_LISTENER
            fd = kernel_call(number, SECCOMP_SET_FILTER, all_flags, ctypes.addressof(fprog))
            if fd >= 0:
                return fd
            if ctypes.get_errno() != errno.EINVAL:
                break
        if is_retry or ctypes.get_errno() != errno.EACCES:
            break
        # Only root may set a filter and keep the right to gain privileges (sudo).
        call("prctl", libc.prctl(PR_NO_NEW_PRIVS, 1, 0, 0, 0))
    return call("seccomp", -1)


def report_fault(control: Any, fault: BaseException) -> None:
    try:
        control.send(b"F" + fault_text(fault).encode(errors="replace")[:4000])
    except OSError:
        os._exit(1)


def fault_text(fault: BaseException) -> str:
    if isinstance(fault, OSError) and fault.filename:
        return f"{fault.filename}: {fault.strerror}"
    return str(fault.args[-1]) if fault.args else repr(fault)


def close_output() -> None:
    """The reader of the command's output waits for the command alone."""
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)


def has_children() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return any(pid != os.getpid() for pid in family(os.getpid()))


def end_children() -> None:
    """Kill all processes below this one, which is their subreaper, until there are none."""
    me = os.getpid()
    while True:
        for pid in family(me):
            if pid not in (me, os.getppid()):
                os.kill(pid, signal.SIGKILL)
        try:
            if os.waitpid(-1, 0) == (0, 0):
                continue
        except ChildProcessError:
            return


def end_family() -> None:
    """The process above was killed: nothing of the command stays."""
    end_children()
    os._exit(1)


# The whole.


def main(spec_path: str, argv: list[str]) -> None:
    os.closerange(3, 1 << 20)
    for ignored in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    spec = read_spec(spec_path)
    spec["folder"] = os.path.realpath(spec["folder"])
    supervisor: Supervisor | None = None
    is_left, doubt, fault = 0, "", ""
    try:
        status, is_left, supervisor, doubt = run(spec, argv)
    except (OSError, EntryError) as error:
        status, fault = FAULT_CODE << 8, fault_text(error)
        said = f"headway: the workspace cannot be entered: {fault}\n"
        os.write(2, said.encode(errors="replace"))
    doubts = [doubt, fault, "a process outlived the command" if is_left else ""]
    record: dict[str, Any] = {}
    if supervisor is not None:
        doubts += supervisor.faults
        record = supervisor.record()
    why = "; ".join(filter(None, doubts))
    write_record(spec, {**record, "fault": fault, "is_whole": not why, "why": why})
    if is_left and supervisor is not None and os.fork() == 0:
        close_output()
        supervisor.answer_all()
        os._exit(0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)  # The command's core is enough.
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def run(spec: dict[str, Any], argv: list[str]) -> tuple[int, int, Supervisor | None, str]:
    """Run the command; its status, whether it left processes, who has observed it, or why not."""
    table: dict[int, Any] = {}
    doubt = "not observed"
    spec["filter"] = b""
    if spec.get("observe", True):
        import headway.workspaces.supervisor  # noqa: F401  Before there are two processes.

        doubt = "" if IS_KNOWN else f"the system calls of {MACHINE} are not known"
        if IS_KNOWN:
            table, spec["filter"] = observed_calls(spec["mode"] == "observe")
    is_inner = spec["mode"] == "overlay"
    os.chdir("/")
    if is_inner:
        enter_mounts(spec)
    control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if is_inner:
        init = start_init((control, theirs), spec, argv)
    else:
        call("prctl", libc.prctl(PR_SET_SUBREAPER, 1, 0, 0, 0))  # If its init is killed.
        init = os.fork()
        if init == 0:
            control.close()
            run_init(theirs, spec, argv, is_inner=False)
        theirs.close()
    supervisor: Supervisor | None = None
    while True:
        if supervisor is not None:
            supervisor.serve(control.fileno())
        message, more, *_ = control.recvmsg(MESSAGE_BYTES_MAX, socket.CMSG_SPACE(4))
        tag, body = message[:1], message[1:]
        if tag == b"L":
            supervisor = supervise(int.from_bytes(more[0][2], sys.byteorder), spec, table)
        elif tag == b"N":
            doubt = f"reads are not observed: {body.decode()}"
        elif tag == b"F":
            raise EntryError(body.decode(errors="replace"))
        elif tag == b"S":
            os.waitpid(init, 0)
            status, is_left = map(int, body.split())
            return status, is_left, supervisor, doubt
        elif not tag:
            end_children()
            raise EntryError("its init process was killed")


def supervise(listener: int, spec: dict[str, Any], table: dict[int, Any]) -> Supervisor:
    from headway.workspaces.supervisor import Supervisor

    root = os.path.realpath(spec.get("place") or spec["folder"])  # Where the command sees it.
    own = spec.get("own", [*TEMPORARY, os.environ.get("TMPDIR") or TEMPORARY[0]])
    return Supervisor(
        listener, os.fsencode(root), os.fsencode(spec["folder"]),
        [os.fsencode(text) for text in spec.get("checks", ())],
        [os.fsencode(path) for path in (*own, *DEVICES)],
        os.fsencode(os.environ.get("HOME", "")), is_guarded=spec["mode"] == "copy",
        table=table, is_shared=spec["mode"] == "observe",
        has_inner_pids=spec["mode"] == "overlay",
    )  # fmt: skip


def write_record(spec: dict[str, Any], record: dict[str, Any]) -> None:
    path = spec.get("log")
    if not path:
        return
    encode: Any = make_encoder(
        None, repr, encode_basestring_ascii, None, ":", ",", False, False, False
    )
    text = "".join(encode(record, 0)).encode()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        data = b"%s%d %d\n%s\n" % (HEAD.encode(), len(text), crc32(text), text)
        while data:
            data = data[os.write(fd, data) :]
        if spec["mode"] != "observe":  # A crash of the machine only makes it unknown.
            os.fsync(fd)
    except OSError:
        # Of a command without a workspace: on a full disk what it did counts all the same.
        if spec["mode"] != "observe":
            raise
    finally:
        os.close(fd)
