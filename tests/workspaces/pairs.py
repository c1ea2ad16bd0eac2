"""Pairs of tasks that merge cleanly as text and are wrong: A changes what B has read.

Each pair is a small repository, the scripts of A and B, and a test. B acts on what it finds, so
that the serial run is right whatever comes first; its edits and those of A never touch the same
lines. The test fails on the merge of both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

COMMIT: Final = "git add -A\ngit diff --cached --quiet || git commit -qm Work\n"


class Pair(Struct, frozen=True):
    kind: str
    name: str
    files: dict[str, str]
    a: str
    b: str
    test: str
    """A shell script that passes after the serial run, and fails on the merge of both as text."""

    def __str__(self) -> str:
        return f"{self.kind}: {self.name}"


Row = tuple[str, dict[str, str], str, str, str]
"""Name, files, A, B, test."""


def renamed() -> Iterator[Row]:
    """A renames something and every use that it finds; B adds a use by the name that it reads."""
    rename = 'sed -i "s/\\bOLD\\b/NEW/g" $(grep -rlw OLD --include=* src)\n'
    lib = "def price(x):\n    return x + 1\n"
    run_all = "for f in src/*.py; do PYTHONPATH=src python3 $f || exit 1; done\n"
    yield (
        "a function, read by sed",
        {"src/lib.py": lib, "src/main.py": "from lib import price\nprint(price(1))\n"},
        rename.replace("OLD", "price").replace("NEW", "unit_price"),
        "name=$(sed -n 's/^def \\([a-z_]*\\).*/\\1/p' src/lib.py)\n"
        'printf "from lib import $name\\nprint($name(2))\\n" > src/feature.py\n',
        run_all,
    )
    yield (
        "a class, read by a parser",
        {"src/lib.py": "class Cart:\n    total = 0\n", "src/main.py": "from lib import Cart\n"},
        rename.replace("OLD", "Cart").replace("NEW", "Basket"),
        "python3 - <<'END'\nimport ast\ntree = ast.parse(open('src/lib.py').read())\n"
        "name = tree.body[0].name\nopen('src/feature.py', 'w').write("
        "f'from lib import {name}\\nassert {name}().total == 0\\n')\nEND\n",
        run_all,
    )
    yield (
        "a function of a shell library, read by grep",
        {"src/lib.sh": "greet() { echo hello; }\n", "src/main.sh": ". src/lib.sh\ngreet\n"},
        rename.replace("OLD", "greet").replace("NEW", "say_hello"),
        "name=$(grep -o '^[a-z_]*' src/lib.sh)\n"
        'printf ". src/lib.sh\\n$name\\n" > src/feature.sh\n',
        "for f in src/*.sh; do sh -e $f || exit 1; done\n",
    )
    sql = (
        "import glob, sqlite3\ndb = sqlite3.connect(':memory:')\n"
        "db.executescript(open('src/schema.sql').read())\n"
        "for name in glob.glob('src/query*.sql'):\n    db.execute(open(name).read())\n"
    )
    yield (
        "a column, read by awk",
        {
            "src/schema.sql": "create table users (\n  email text\n);\n",
            "src/query1.sql": "select email from users\n",
        },
        rename.replace("OLD", "email").replace("NEW", "address"),
        "column=$(awk '/text/ {print $1}' src/schema.sql)\n"
        'echo "select count($column) from users" > src/query2.sql\n',
        f"python3 - <<'END'\n{sql}END\n",
    )
    yield (
        "a field of a template, read by a shell",
        {"src/fields": "customer\n", "src/letter.txt": "Dear $customer,\n"},
        rename.replace("OLD", "customer").replace("NEW", "client"),
        'read -r field < src/fields\nprintf "Bye \\$$field.\\n" > src/reminder.txt\n',
        "read -r field < src/fields\nfor f in src/*.txt; do\n"
        '  for used in $(grep -o "[$][a-z]*" $f); do [ "$used" = "\\$$field" ] || exit 1; done\n'
        "done\n",
    )


def constant() -> Iterator[Row]:
    """A changes a value; B writes down what follows from it."""
    files = {"settings.py": "LIMIT = 10\nNAME = 'shop'\n", "derived": "5\n"}
    change = "sed -i 's/LIMIT = .*/LIMIT = 40/' settings.py\necho 20 > derived\n"
    value = "value=$(sed -n 's/LIMIT = //p' settings.py)\n"
    test = value + "[ ! -e twice ] || [ $(cat twice) = $((value * 2)) ]\n"
    reads = (
        ("read by sed", value + "echo $((value * 2)) > twice\n"),
        ("read by an import", 'python3 -c "import settings; print(settings.LIMIT * 2)" > twice\n'),
        ("read by awk", "awk '/LIMIT/ {print $3 * 2}' settings.py > twice\n"),
        (
            "read through a mapping of memory",
            "python3 - > twice <<'END'\nimport mmap\nwith open('settings.py', 'rb') as file:\n"
            "    text = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)[:]\n"
            "print(int(text.split()[2]) * 2)\nEND\n",
        ),
        (
            "read in a folder and a process of its own",
            "mkdir -p deep/er\n(cd deep/er && read -r _ _ value < ../../settings.py"
            " && echo $((value * 2)) > ../../twice) & wait $!\n",
        ),
    )
    for name, b in reads:
        yield name, files, change, b, test


def created() -> Iterator[Row]:
    """A creates a file; B finds that there is none and says so."""
    files = {"README": "A project.\n", "conf/keep": "\n"}
    place = "conf/license.txt"
    make = f"echo MIT > {place}\n"
    test = f"[ ! -e answer ] || [ $(cat answer) = $([ -e {place} ] && echo yes || echo no) ]\n"
    asks = (
        ("asked by test -e", f"[ -e {place} ] && x=yes || x=no\necho $x > answer\n"),
        (
            "asked by an attempt to open",
            f"(read -r x < {place}) 2> /dev/null && x=yes || x=no\necho $x > answer\n",
        ),
        (
            "asked by python",
            "python3 -c \"import os; print('yes' if os.path.exists"
            f"('{place}') else 'no')\" > answer\n",
        ),
        (
            "asked by ls of the file",
            f"ls {place} > /dev/null 2>&1 && x=yes || x=no\necho $x > answer\n",
        ),
        (
            "asked by node",
            "node -e \"console.log(require('fs').existsSync('PLACE') ? 'yes' : 'no')\" > answer\n"
            .replace("PLACE", place),
        ),
    )  # fmt: skip
    for name, b in asks:
        yield name, files, make, b, test


def deleted() -> Iterator[Row]:
    """A takes something away; B finds it and refers to it."""
    files = {"doc/guide.md": "Guide\n", "doc/other.md": "Other\n", "old/one": "1\n", "links": ""}
    test = "for f in $(cat links); do [ -e $f ] || exit 1; done\n"
    link = "[ ! -f doc/guide.md ] || echo doc/guide.md > links\n"
    yield "a file", files, "rm doc/guide.md\n", link, test
    yield "by git rm", files, "git rm -q doc/guide.md\n", link, test
    yield "a folder", files, "rm -r old\n", "[ ! -d old ] || echo old > links\n", test
    yield (
        "a file that is moved",
        files,
        "git mv doc/guide.md doc/handbook.md\n",
        "python3 - <<'END'\nimport os\nfor name in ('guide', 'handbook'):\n"
        "    place = f'doc/{name}.md'\n    if os.access(place, os.R_OK):\n"
        "        open('links', 'w').write(place + '\\n')\nEND\n",
        test,
    )
    yield (
        "a file that becomes a folder",
        files,
        "rm doc/guide.md\nmkdir doc/guide.md\necho 1 > doc/guide.md/index\n",
        "cat doc/guide.md > copy 2> /dev/null && echo doc/guide.md > links || rm -f copy\n",
        "for f in $(cat links); do [ -f $f ] || exit 1; done\n",
    )


def listing() -> Iterator[Row]:
    """A changes which names a folder has; B writes them down."""
    files = {"plugins/one.py": "1\n", "plugins/two.py": "2\n", "manifest": ""}
    test = '[ ! -s manifest ] || [ "$(cat manifest)" = "$(LC_ALL=C ls plugins)" ]\n'
    python = "python3 -c \"import os; print('\\n'.join(sorted(NAMES)))\" > manifest\n"
    yield (
        "ls, a name more",
        files,
        "echo 3 > plugins/x.py\n",
        "LC_ALL=C ls plugins > manifest\n",
        test,
    )
    yield (
        "a pattern of the shell, a name less",
        files,
        "rm plugins/one.py\n",
        "(cd plugins && printf '%s\\n' *) > manifest\n",
        test,
    )
    yield (
        "os.listdir, a name that changes",
        files,
        "git mv plugins/one.py plugins/uno.py\n",
        python.replace("NAMES", "os.listdir('plugins')"),
        test,
    )
    yield (
        "os.scandir, a folder more",
        files,
        "mkdir plugins/sub\necho 1 > plugins/sub/x\n",
        python.replace("NAMES", "e.name for e in os.scandir('plugins')"),
        test,
    )
    yield (
        "node, a name more", files, "cp plugins/one.py plugins/three.py\n",
        "node -e \"console.log(require('fs').readdirSync('plugins').sort().join('\\n'))\""
        " > manifest\n", test,
    )  # fmt: skip


def symlink() -> Iterator[Row]:
    """A lets a link lead elsewhere; B follows it, or reads where it leads."""
    files = {"v1/text": "one\n", "v2/text": "two\n", "current": "-> v1", "answer": ""}
    turn = "ln -sfn v2 current\n"
    leads = "[ ! -s answer ] || [ $(cat answer) = $(readlink current) ]\n"
    text = "[ ! -s answer ] || cmp -s answer current/text\n"
    yield "readlink", files, turn, "readlink current > answer\n", leads
    yield "a file behind it", files, turn, "cat current/text > answer\n", text
    yield (
        "realpath",
        files,
        turn,
        "python3 -c \"import os; print(os.path.basename(os.path.realpath('current')))\" > answer\n",
        leads,
    )
    yield "a folder entered", files, turn, "(cd current && cat text) > answer\n", text
    yield (
        "a link that becomes a file",
        {**files, "note": "-> v1/text"}, "rm note\necho mine > note\n",
        "[ -L note ] && x=link || x=file\necho $x > answer\n",
        "[ ! -s answer ] || [ $(cat answer) = $([ -L note ] && echo link || echo file) ]\n",
    )  # fmt: skip


def search() -> Iterator[Row]:
    """A adds something that a search of B would have found."""
    files = {f"src/m{n}.py": f"def f{n}():\n    return {n}\n" for n in range(8)}
    files |= {"src/deep/er/x.py": "def g():\n    return old_call()\n", "report": ""}
    add = "mkdir src/new\nprintf 'def h():\\n    return old_call()\\n' > src/new/more.py\n"
    edit = "echo 'print(old_call())' >> src/m5.py\n"
    answers = (
        ("grep -rl", edit, "grep -rl old_call src | LC_ALL=C sort"),
        ("grep -r, counted", add, "grep -r old_call src | wc -l"),
        ("find by name", add, "find src -name '*.py' | LC_ALL=C sort"),
        ("find with grep by xargs", edit, "find src -type f -print0 | xargs -0 grep -l old_call"
         " | LC_ALL=C sort"),
        ("os.walk in python", edit, "python3 -c \"import os\n"
         "for w, d, f in sorted(os.walk('src')):\n"
         "    for n in sorted(f):\n        if 'old_call' in open(w + '/' + n).read():\n"
         "            print(w + '/' + n)\""),
    )  # fmt: skip
    for name, a, command in answers:
        test = f'[ ! -s report ] || [ "$(cat report)" = "$({command})" ]\n'
        yield name, files, a, f"{command} > report\n", test


def moved() -> Iterator[Row]:
    """A moves a module and mends every import of it; B imports it from where it finds it."""
    files = {
        "pkg/__init__.py": "", "pkg/core/__init__.py": "", "pkg/tools.py": "def use(): return 1\n",
        "app.py": "from pkg.tools import use\nuse()\n",
    }  # fmt: skip
    move = "git mv pkg/tools.py pkg/core/tools.py\nsed -i 's/pkg.tools/pkg.core.tools/' app.py\n"
    test = "for f in *.py; do python3 $f || exit 1; done\n"
    write = 'printf "from $module import use\\nassert use() == 1\\n" > feature.py\n'
    dots = "module=$(echo ${place%.py} | tr / .)\n"
    finds = (
        ("found by find", "place=$(find pkg -name tools.py)\n" + dots),
        ("found by grep", "place=$(grep -rl 'def use' pkg --include=*.py)\n" + dots),
        ("found by test", "[ -f pkg/tools.py ] && module=pkg.tools || module=pkg.core.tools\n"),
        (
            "found in another import",
            "module=$(sed -n 's/^from \\(.*\\) import use/\\1/p' app.py)\n",
        ),
        (
            "found by the import machinery",
            'module=$(python3 -c "from importlib.util import find_spec\n'
            "print('pkg.tools' if find_spec('pkg.tools') else 'pkg.core.tools')\")\n",
        ),
    )
    for name, find in finds:
        yield name, files, move, find + write, test


def config() -> Iterator[Row]:
    """A renames a key of a configuration; B adds a consumer of the key that it finds."""
    consume = 'echo "$key" > consumer.key\n'
    rows = (
        ("JSON, read by python", "app.json", '{"port": 80}\n',
         "key=$(python3 -c \"import json; print(*json.load(open('app.json')))\")\n"),
        ("JSON, read by node", "app.json", '{"port": 80}\n',
         "key=$(node -p \"Object.keys(require('./app.json'))[0]\")\n"),
        ("INI, read by sed", "app.ini", "[main]\nport=80\n",
         "key=$(sed -n 's/=.*//p' app.ini)\n"),
        ("TOML, read by python", "app.toml", "port = 80\n",
         "key=$(python3 -c \"import tomllib; print(*tomllib.load(open('app.toml', 'rb')))\")\n"),
        ("variables, read by the shell", "app.env", "port=80\n",
         "unset port\n. ./app.env\n[ -n \"${port-}\" ] && key=port || key=listen_port\n"),
    )  # fmt: skip
    for name, file, text, read in rows:
        test = f"for k in $(cat consumer.key 2> /dev/null); do grep -qw $k {file} || exit 1; done\n"
        change = f"sed -i 's/port/listen_port/' {file}\n"
        yield name, {file: text}, change, read + consume, test


def mode() -> Iterator[Row]:
    """A changes whether a file is a program; B decides by it how to start it."""
    files = {"tool": "echo done\n", "other": "#!/bin/sh\necho other\n", "how": ""}
    grant, take = "chmod +x tool\n", "chmod -x other\n"
    test = (
        "read -r kind file < how || exit 0\n"
        "[ $kind = $([ -x $file ] && echo direct || echo shell) ]\n"
    )
    rows = (
        ("granted, asked by test -x", grant, "[ -x tool ] && x=direct || x=shell\necho $x tool"),
        ("taken, asked by test -x", take, "[ -x other ] && x=direct || x=shell\necho $x other"),
        ("granted, asked by stat", grant,
         "case $(stat -c %a tool) in *7*|*5*) x=direct ;; *) x=shell ;; esac\necho $x tool"),
        ("granted, asked by find", grant,
         "[ -n \"$(find . -name tool -perm -100)\" ] && x=direct || x=shell\necho $x tool"),
        ("taken, asked by starting it", take,
         "./other > /dev/null 2>&1 && x=direct || x=shell\necho $x other"),
    )  # fmt: skip
    for name, a, b in rows:
        head, _, last = b.rpartition("\n")
        yield name, files, a, f"{head}\n{last} > how\n", test


def index() -> Iterator[Row]:
    """A adds or edits a record; B generates something from all of them."""
    files = {f"posts/{n:03}.md": f"# Title {n}\n\nText.\n" for n in range(1, 5)} | {"index": ""}
    add, edit = "printf '# New\\n' > posts/005.md\n", "sed -i 's/Title 2/Second/' posts/002.md\n"
    answers = (
        ("titles, one edited", edit, "cat posts/*.md | grep '^#'"),
        ("titles, one more", add, "for f in posts/*.md; do head -n 1 $f; done"),
        ("hashes", edit, "sha256sum posts/*.md"),
        ("sizes", add, "wc -c posts/*.md | tail -n 1"),
    )
    for name, a, command in answers:
        test = f'[ ! -s index ] || [ "$(cat index)" = "$({command})" ]\n'
        yield name, files, a, f"{command} > index\n", test
    yield (
        "the next free number", files, "echo '# A' > posts/005-a.md\n",
        "last=$(ls posts | tail -n 1 | cut -c 1-3 | sed 's/^0*//')\n"
        "echo '# B' > posts/$(printf %03d $((last + 1)))-b.md\n",
        "[ -z \"$(ls posts | cut -c 1-3 | uniq -d)\" ]\n",
    )  # fmt: skip


def through_git() -> Iterator[Row]:
    """A commits a change; B reads the repository through git, not the files."""
    files = {"settings": "limit 10\n", "src/a.py": "one\n", "src/b.py": "two\n", "answer": ""}
    edit = "echo limit 40 > settings\n" + COMMIT
    add = "echo one > src/c.py\n" + COMMIT
    answers = (
        ("git show", edit, "git show HEAD:settings"),
        ("git cat-file", edit, "echo HEAD:settings | git cat-file --batch | sed -n 2p"),
        ("git ls-files", add, "git ls-files src"),
        ("git grep", add, "git grep -c one -- src"),
        ("git rev-parse of a folder", add, "git rev-parse HEAD:src"),
    )
    for name, a, command in answers:
        # The test is the same question, and asks it when all is committed.
        test = f'[ ! -s answer ] || [ "$(cat answer)" = "$({command})" ]\n'
        yield name, files, a, f"{command} > answer\n", test


KINDS: Final = (
    renamed, constant, created, deleted, listing, symlink, search, moved, config, mode, index,
    through_git,
)  # fmt: skip


def pairs() -> list[Pair]:
    """All of them; every second one commits what it did."""
    found = []
    for kind in KINDS:
        for number, (name, files, a, b, test) in enumerate(kind()):
            whole = {".gitignore": "__pycache__/\n", **files}
            end = COMMIT if number % 2 else ""
            found.append(Pair(kind.__name__, name, whole, a + end, b + end, test))
    return found
