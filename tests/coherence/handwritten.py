"""Twenty plans written by hand, of the kinds that agents are used for; all of them are clean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

WORK = "tests.coherence.handwritten_work"


@dataclass(frozen=True)
class Hand:
    """A plan, and the files that are there before it runs."""

    name: str
    text: str
    files: Mapping[str, str] = field(default_factory=dict)


def _hand(name: str, body: str, state: str = "", files: Mapping[str, str] | None = None) -> Hand:
    head = f"headway: 1\nname: {name}\n" + (f"state:\n{state}" if state else "") + "tasks:\n"
    return Hand(name, head + body.replace("@", f"{WORK}:"), files or {})


RAW = {"raw/a.csv": "1\n2\n", "raw/b.csv": "3\n", "raw/c.csv": "4\n5\n6\n"}
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
        "book",
        """\
  outline: {python: "@outline", reads: [], writes: state:outline}
  draft: {each: [intro, body, end], python: "@draft", reads: state:outline,
          writes: "state:sections/{{ item }}"}
  edit: {python: "@edit", reads: "state:sections/*", writes: state:book, output: BOOK.md}
""",
    ),
    _hand(
        "crawl",
        """\
  crawl: {each: [x, y, z], python: "@crawl", reads: [],
          writes: ["state:pages/{{ item }}", state:hosts]}
  index: {python: "@index", reads: ["state:pages/*", state:hosts], writes: state:index}
  search: {python: "@search", reads: state:index, writes: []}
""",
        "  hosts: set\n",
    ),
    _hand(
        "auction",
        """\
  bid: {each: [ann, bob, cyd], python: "@bid", reads: [],
        writes: ["state:bids/{{ item }}", state:best]}
  award: {python: "@award", reads: ["state:bids/*", state:best], writes: state:winner}
  contract: {python: "@contract", reads: state:winner, writes: effect:mail}
""",
        "  best: max\n" + MAIL,
    ),
    _hand(
        "bank",
        """\
  open: {each: [ann, bob], python: "@open_account", reads: [],
         writes: "state:accounts/{{ item }}"}
  transfer: {python: "@transfer", needs: open, reads: [state:accounts/ann, state:accounts/bob],
             writes: [state:accounts/ann, state:accounts/bob]}
  audit: {python: "@audit", reads: "state:accounts/*", writes: state:audit}
""",
    ),
    _hand(
        "trip",
        """\
  plan: {python: "@plan_trip", reads: [], writes: state:trip}
  hotel: {each: [a, b, c], python: "@book_hotel", reads: state:trip,
          writes: ["state:hotels/{{ item }}", state:cost]}
  flight: {python: "@book_flight", reads: state:trip, writes: [state:flight, state:cost]}
  confirm: {python: "@confirm", reads: ["state:hotels/*", state:flight, state:cost],
            writes: effect:mail}
""",
        "  cost: counter\n" + MAIL,
    ),
    _hand(
        "answers",
        """\
  ask: {each: [who, what, when], python: "@ask", reads: [], writes: "state:answers/{{ item }}"}
  check: {each: [who, what, when], python: "@check_answer", reads: "state:answers/{{ item }}",
          writes: "state:checked/{{ item }}"}
  publish: {python: "@publish", reads: "state:checked/*", writes: []}
""",
    ),
    _hand(
        "memory",
        """\
  tidy: {python: "@tidy", reads: [], writes: state:scratch}
  remember: {each: [sun, moon, sea], python: "@remember", reads: [], writes: state:memory}
  forget: {python: "@forget", needs: tidy, reads: state:memory,
           writes: [state:facts, state:scratch]}
  recall: {python: "@recall", reads: state:facts, writes: []}
""",
        "  memory: append\n",
    ),
    _hand(
        "languages",
        """\
  source: {python: "@source_text", reads: [], writes: state:source}
  translate: {each: [de, fr, it], python: "@translate", reads: state:source,
              writes: "state:texts/{{ item }}"}
  compare: {python: "@compare", reads: [state:source, "state:texts/*"], writes: []}
""",
    ),
    _hand(
        "app",
        """\
  scaffold: {python: "@scaffold", writes: [app/main.py, app/config.json]}
  tests: {python: "@write_tests", reads: app/main.py, writes: tests/test_main.py}
  docs: {python: "@document", reads: app/config.json, writes: docs/config.md}
  release: {python: "@release", reads: [docs/config.md, tests/test_main.py], writes: CHANGES.md}
""",
    ),
    _hand(
        "tables",
        """\
  convert: {each: [a, b, c], python: "@convert", reads: "raw/{{ item }}.csv",
            writes: "clean/{{ item }}.json"}
  join: {python: "@join", reads: clean, writes: joined.json}
  chart: {python: "@chart", reads: joined.json, writes: chart.txt}
""",
        files=RAW,
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
        "migrate",
        """\
  migrate: {each: [users, items], python: "@migrate", queue: schema,
            writes: ["migrations/{{ item }}.sql", schema.log]}
  deploy: {python: "@deploy", reads: schema.log, writes: []}
""",
    ),
    _hand(
        "sizes",
        """\
  measure: {each: [a, b, c], python: "@measure", reads: "raw/{{ item }}.csv",
            writes: "state:sizes/{{ item }}"}
  choose: {python: "@choose", reads: "state:sizes/*", writes: state:largest}
  show: {python: "@show", reads: [state:largest, raw], writes: largest.txt}
""",
        files=RAW,
    ),
    _hand(
        "votes",
        """\
  vote: {each: [ann, bob, cyd, dan], python: "@vote", reads: [], writes: state:votes}
  count: {python: "@count_votes", reads: state:votes, writes: state:result}
  proclaim: {python: "@proclaim", reads: state:result, writes: []}
""",
        "  votes: append\n",
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
    _hand(
        "model",
        """\
  learn: {each: [p, q, r], python: "@learn", reads: [], writes: state:model}
  predict: {python: "@predict", reads: state:model, writes: state:prediction}
  explain: {python: "@explain", reads: [state:model, state:prediction], writes: []}
""",
        f"  model: reduce({WORK}:combine)\n",
    ),
    _hand(
        "pipeline",
        PARSE
        + """\
  enrich: {each: [a, b, c], python: "@enrich", needs: parse, reads: "state:records/{{ item }}",
           writes: "state:enriched/{{ item }}"}
  validate: {python: "@validate", needs: enrich, reads: ["state:enriched/*", state:parsed],
             writes: state:verdict}
  report: {python: "@report", needs: validate, reads: state:verdict, writes: []}
""",
        "  parsed: counter\n",
    ),
    _hand(
        "mixed",
        """\
  outline: {python: "@outline", reads: [], writes: state:outline}
  draft: {each: [intro, body, end], python: "@draft", reads: state:outline,
          writes: "state:sections/{{ item }}"}
  edit: {python: "@edit", reads: "state:sections/*", writes: state:book}
  scaffold: {python: "@scaffold", reads: [], writes: [app/main.py, app/config.json]}
  docs: {python: "@document", reads: app/config.json, writes: docs/config.md}
""",
    ),
)
