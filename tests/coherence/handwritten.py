"""Four plans written by hand, of the kinds that agents are used for; all of them are clean."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

WORK = "tests.coherence.handwritten_work"


class Hand(Struct, frozen=True):
    """A plan, and the files that are there before it runs."""

    name: str
    text: str
    files: Mapping[str, str] = field(default_factory=dict)


def _hand(name: str, body: str, state: str = "", files: Mapping[str, str] | None = None) -> Hand:
    head = f"headway: 1\nname: {name}\n" + (f"state:\n{state}" if state else "") + "tasks:\n"
    return Hand(name, head + body.replace("@", f"{WORK}:"), files or {})


MAIL = f"  mail: effect({WORK}:send)\n"

PARSE = """\
  parse: {each: [a, b, c], python: "@parse", writes: ["state:records/{{ item }}", state:parsed]}
"""
HANDS = (
    _hand(
        "records",
        PARSE
        + """\
  enrich: {each: [a, b, c], python: "@enrich", reads: "state:records/{{ item }}",
           writes: "state:enriched/{{ item }}"}
  validate: {python: "@validate", reads: ["state:enriched/*", state:parsed], writes: state:verdict}
  report: {python: "@report", reads: state:verdict, writes: [], output: REPORT.md}
""",
        "  parsed: counter\n",
    ),
    _hand(
        "review",
        """\
  collect: {each: [api, cli, db], python: "@collect", reads: [], writes: state:findings}
  rank: {python: "@rank", reads: state:findings, writes: state:ranked}
  announce: {python: "@announce", reads: state:ranked, writes: effect:mail}
""",
        "  findings: append\n" + MAIL,
    ),
    _hand(
        "refactor",
        """\
  fix: {each: [api, cli], python: "@refactor", reads: [style.md, "src/{{ item }}.py"],
        writes: "src/{{ item }}.py"}
  lint: {each: [api, cli], python: "@lint", reads: "src/{{ item }}.py",
         writes: "lint/{{ item }}.txt"}
  sum: {python: "@summarise", reads: lint, writes: []}
""",
        files={"style.md": "be brief", "src/api.py": "a = 1\n", "src/cli.py": "b = 1\n"},
    ),
    _hand(
        "shop",
        """\
  stock: {python: "@stock", reads: [], writes: state:stock}
  order: {each: [ann, bob, cyd], python: "@order", needs: stock, queue: till, reads: state:stock,
          writes: [state:stock, "state:orders/{{ item }}"]}
  ship: {python: "@ship", reads: "state:orders/*", writes: state:shipped}
""",
    ),
)
