"""`check` finds schemas that are none and functions that are not there, without importing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.promises.user import User, user

BAD_SCHEMAS = {
    "a type that is none": {"type": "strng"},
    "a nested type": {"properties": {"a": {"items": {"type": "int"}}}},
    "types": {"type": ["string", "nothing"]},
    "properties as a list": {"properties": []},
    "required as a text": {"required": "a"},
    "required as numbers": {"required": [1]},
    "a minimum as a text": {"minimum": "3"},
    "a negative length": {"minLength": -1},
    "an enum that is no list": {"enum": "abc"},
    "items as a number": {"items": 5},
    "a property that is no schema": {"properties": {"a": "string"}},
    "allOf as an object": {"allOf": {"type": "string"}},
    "a reference to nowhere": {"$ref": "#/definitions/nowhere"},
    "a nested reference to nowhere": {"properties": {"a": {"$ref": "#/$defs/b"}}},
    "a reference to the network": {"$ref": "https://example.org/schema.json"},
    "a pattern that is none": {"type": "string", "pattern": "("},
    "a bound of draft 4": {"minimum": 1, "exclusiveMinimum": True},
    "a reference to itself": {"$ref": "#"},
    "a loop of references": {
        "items": {"$ref": "#/$defs/a"},
        "$defs": {
            "a": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/b"}]},
            "b": {"$ref": "#/$defs/a"},
        },
    },
    "a list": [],
    "a number": 3,
}
UNSUPPORTED = {
    "an anchor": '{"$defs": {"a": {"$anchor": "x"}}, "$ref": "#x"}',
    "deep": '{"not": ' * 200 + "{}" + "}" * 200,
    "deeper": '{"not": ' * 100_000 + "{}" + "}" * 100_000,
    "a pattern of other languages": r'{"pattern": "\\p{L}"}',
}
GOOD_SCHEMAS: tuple[object, ...] = (
    True,
    {},
    {"type": "object", "properties": {"type": {"type": "string"}}, "required": ["type"]},
    {"$defs": {"a": {"type": "integer"}}, "items": {"$ref": "#/$defs/a"}, "x-own": [1]},
    {"enum": [1, "a", None], "title": "t", "default": {"type": "x"}, "examples": [{"type": 3}]},
    {"anyOf": [{"const": 3}, {"type": ["string", "null"]}], "minimum": 0, "maximum": 2.5},
    {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "array",
     "prefixItems": [{"type": "string"}], "items": False},
    {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1, "exclusiveMinimum": True},
    {"type": "object", "properties": {"not": {"$ref": "#"}, "$ref": {"type": "string"}}},
)  # fmt: skip

SOURCES = {
    "plain.py": "def f(): pass\n\nasync def g(): pass\n\nclass C:\n    def m(self): pass\n\n"
    "h = functools.partial(f)\nk = lambda: 1\nn = 3\nm, o = f, g\n"
    "raise SystemExit('imported')\n",
    "conditional.py": "import sys\n"
    "if sys.platform == 'x':\n    def f(): pass\nelse:\n    f = None\n"
    "try:\n    from fast import g\nexcept ImportError:\n    def g(): pass\n"
    "with open('x') as w:\n    def h(): pass\n@w\ndef d(): pass\n",
    "again.py": "from plain import f, missing\nfrom plain import g as renamed\n"
    "from sub.mod import deep\n",
    "star.py": "from plain import *\n",
    "dynamic.py": "def __getattr__(name): return print\n",
    "made.py": "globals()['x'] = print\n",
    "broken.py": "def f(:\n",
    "coded.py": "# coding: nowhere\n",
    "empty.py": "",
    "annotated.py": "x: int\ny: object = print\ndef f(): pass\n",
    "deleted.py": "def f(): pass\ndel f\ndef g(): pass\ndel g\ndef g(): pass\n",
    "typed.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from plain import f\n"
    "else:\n    from plain import g\n",
    "imports.py": "import json\nimport sub.mod as mod\nfrom sub import mod as third\n",
    "long.py": "def f(): pass\n" + "#" * 16_000_000,
    "placed/__init__.py": "import sys\nsys.modules['placed.x'] = sys\n",
    "sub/__init__.py": "from .mod import deep\nfrom .mod import nowhere\n",
    "sub/mod.py": "def deep(): pass\n",
    "space/mod.py": "def f(): pass\n",
}
FOUND = (
    "plain:f", "plain:g", "plain:C", "plain:h", "plain:k", "plain:m", "plain:o", "conditional:f",
    "conditional:g", "conditional:h", "conditional:d", "again:f", "again:renamed", "again:deep",
    "sub:deep", "sub.mod:deep", "space.mod:f", "json:dumps", "headway.files:text",
    "annotated:y", "deleted:g", "typed:g",
)  # fmt: skip
MISSING = (
    "plain:ff", "plain:n", "nowhere:f", "sub.nowhere:f", "again:missing", "sub:nowhere",
    "broken:f", "space:f", "json:dumpz", "coded:f", "empty:f", "annotated:x", "deleted:f",
    "typed:f",
)  # fmt: skip
UNJUDGED = (
    "star:x", "dynamic:x", "made:x", "math:sqrt", "sys:exit", "os.path:join", "plain.f:g",
    "imports:json", "imports:mod", "imports:third", "long:f", "placed.x:exit",
)  # fmt: skip


@pytest.fixture
def someone(tmp_path: Path) -> Iterator[User]:
    with user(tmp_path) as made:
        for name, text in SOURCES.items():
            made.write(name, text)
        yield made


def tasks(targets: tuple[str, ...]) -> str:
    lines = [f"  t{at}:\n    python: {one}" for at, one in enumerate(targets)]
    return "headway: 1\ntasks:\n" + "\n".join(lines) + "\n"


def test_functions_that_are_there_are_found_without_importing(someone: User) -> None:
    someone.write("plan.yaml", tasks(FOUND))
    ended = someone.headway("check", "plan.yaml", "--json")
    assert ended.returncode == 0, ended.stderr
    assert "not judged" not in ended.stdout


def test_functions_that_are_not_there_are_refused_with_their_places(someone: User) -> None:
    someone.write("plan.yaml", tasks(MISSING))
    for verb in ("check", "run"):
        ended = someone.headway(verb, "plan.yaml")
        assert ended.returncode == 3, ended.stderr
        for at, target in enumerate(MISSING):
            assert f"plan.yaml:{4 + 2 * at}:13" in ended.stderr, target
            assert f"`{target}`" in ended.stderr
        assert "line None" not in ended.stderr
        assert "choose from: \n" not in ended.stderr


def test_what_cannot_be_judged_without_importing_is_said_and_not_refused(someone: User) -> None:
    someone.write("plan.yaml", tasks(UNJUDGED))
    ended = someone.headway("check", "plan.yaml", "--strict")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("cannot be judged without importing") == len(UNJUDGED)


def test_functions_of_the_shared_state_are_looked_at_too(someone: User) -> None:
    someone.write(
        "plan.yaml",
        "headway: 1\nstate:\n  k: reduce(plain:ff)\ntasks:\n  t: {run: echo 1, output: state:k}\n",
    )
    ended = someone.headway("check", "plan.yaml")
    assert ended.returncode == 3, ended.stderr
    assert "plan.yaml:3:" in ended.stderr
    assert "did you mean" in ended.stderr


def test_schemas_that_are_none_are_refused_with_their_places(someone: User) -> None:
    lines = ["headway: 1", "tasks:"]
    for at, schema in enumerate(BAD_SCHEMAS.values()):
        someone.write(f"s{at}.json", json.dumps(schema))
        lines += [f"  t{at}:", "    run: echo 1", f"    schema: s{at}.json"]
    someone.write("broken.json", '{"type": ')
    lines += ["  u:", "    run: echo 1", "    schema: broken.json"]
    someone.write("plan.yaml", "\n".join(lines) + "\n")
    one_by_one = 0
    ended = someone.headway("check", "plan.yaml")
    assert ended.returncode == 3
    someone.write("plan.yaml", "\n".join(lines[: 2 + 3 * (len(BAD_SCHEMAS) - 2)]) + "\n")
    for verb in ("check", "run"):
        ended = someone.headway(verb, "plan.yaml")
        assert ended.returncode == 3, ended.stderr
        for at, name in enumerate([*BAD_SCHEMAS][:-2]):
            assert f"plan.yaml:{5 + 3 * at}:13" in ended.stderr, name
            one_by_one += 1
    assert one_by_one == 2 * (len(BAD_SCHEMAS) - 2)


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_a_schema_that_headway_cannot_use_is_not_called_none(someone: User, name: str) -> None:
    someone.write("s.json", UNSUPPORTED[name])
    someone.write("plan.yaml", "headway: 1\ntasks:\n  t:\n    run: echo 1\n    schema: s.json\n")
    ended = someone.headway("check", "plan.yaml")
    assert ended.returncode == 3, ended.stderr
    assert "plan.yaml:5:13" in ended.stderr
    assert "headway cannot use this schema" in ended.stderr


def test_schemas_that_are_some_are_accepted(someone: User) -> None:
    lines = ["headway: 1", "tasks:"]
    for at, schema in enumerate(GOOD_SCHEMAS):
        someone.write(f"s{at}.json", json.dumps(schema))
        lines += [f"  t{at}:", "    run: echo 1", f"    schema: s{at}.json"]
    someone.write("plan.yaml", "\n".join(lines) + "\n")
    ended = someone.headway("check", "plan.yaml")
    assert ended.returncode == 0, ended.stderr
