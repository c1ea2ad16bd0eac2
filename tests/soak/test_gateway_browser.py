"""A real browser, made by a web page to attack a gateway whose token the page knows."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from msgspec import Struct, field

from tests.integration.broker_home import until
from tests.integration.gateway_scene import CALL, Scene, scene
from tests.integration.listener import listening

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
TOLD_S = 60.0
"""A browser starts and a page does all that it can do in less."""

PAGE = """<!doctype html><title>prizes</title><body><script>
const base = BASE, body = BODY, found = {}, json = {"content-type": "application/json"};
const say = (name, what) => { found[name] = String(what); };
const asked = (name, url, how) => fetch(url, how).then(
  async (r) => say(name, r.type === "opaque" ? "opaque" : `${r.status} ${await r.text()}`),
  () => say(name, "refused"));
const loaded = (name, tag, to) => new Promise((done) => {
  const e = document.createElement(tag);
  e.onload = () => { say(name, "loaded"); done(); };
  e.onerror = () => { say(name, "refused"); done(); };
  e[tag === "link" ? "href" : "src"] = to;
  if (tag === "link") e.rel = "stylesheet";
  document.body.append(e);
});
const posted = (name, type) => new Promise((done) => {
  const frame = document.createElement("iframe"), form = document.createElement("form");
  frame.name = name;
  form.target = name; form.method = "POST"; form.enctype = type; form.action = base.call;
  const field = document.createElement("input");
  field.name = body.slice(0, -1) + ', "x":"'; field.value = '"}';
  form.append(field); document.body.append(frame, form);
  frame.onload = () => { say(name, "sent"); done(); };
  form.submit();
});
(async () => {
  await asked("own page", "/prize", {});
  const named = {call: base.callByName, page: base.pageByName};
  for (const [name, b] of [["address", base], ["rebound", named]]) {
    await asked(`${name} json`, b.call, {method: "POST", headers: json, body});
    await asked(`${name} plain`, b.call, {method: "POST", mode: "no-cors", body});
    await asked(`${name} page`, b.page, {});
    await asked(`${name} page no-cors`, b.page, {mode: "no-cors"});
    await asked(`${name} no referrer`, b.page, {referrerPolicy: "no-referrer", mode: "no-cors"});
    await asked(`${name} options`, b.call, {method: "OPTIONS"});
  }
  await loaded("image", "img", base.page);
  await loaded("script", "script", base.page);
  await loaded("style", "link", base.page);
  await posted("form", "application/x-www-form-urlencoded");
  await posted("form plain", "text/plain");
  await posted("form data", "multipart/form-data");
  say("beacon", navigator.sendBeacon(base.call, body));
  await new Promise((done) => {
    const s = new WebSocket(base.call.replace("http", "ws"));
    s.onopen = () => { say("socket", "open"); done(); };
    s.onerror = () => { say("socket", "refused"); done(); };
  });
  await new Promise((done) => {
    const f = document.createElement("iframe");
    f.sandbox = "allow-scripts"; f.srcdoc =
      `<script>fetch(${JSON.stringify(base.page)}, {mode: "no-cors"}).finally(() => ` +
      `parent.postMessage("done", "*"))<\\/script>`;
    onmessage = () => { say("sandbox", "done"); done(); };
    document.body.append(f);
  });
  await fetch("/told", {method: "POST", body: JSON.stringify(found)});
})();
</script></body>"""


class Site(Struct):
    port: int = 0
    page: str = ""
    told: dict[str, str] = field(default_factory=dict)


@contextmanager
def serving(site: Site) -> Iterator[None]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(site.page if self.path == "/" else "won")

        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            site.told.update(json.loads(self.rfile.read(length)))
            self._send("thanks")

        def _send(self, text: str) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with listening(Handler) as port:
        site.port = port
        yield


@contextmanager
def browsing(url: str, home: Path) -> Iterator[None]:
    assert CHROMIUM is not None
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
        "--disable-background-networking", f"--user-data-dir={home}",
        # The name of the attacker's site, and then that of this machine: what rebinding does.
        "--host-resolver-rules=MAP evil.example 127.0.0.1",
        "--remote-debugging-port=0", url,
    ]  # fmt: skip
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet) as process:
        try:
            yield
        finally:
            process.terminate()


def page_for(here: Scene) -> str:
    call, page = f"{here.base}/v1/messages", f"/{here.key.token}/status"
    name = f"http://evil.example:{here.gateway.port}"
    base = {
        "call": f"http://{here.host}{call}",
        "page": f"http://{here.host}{page}",
        "callByName": name + call,
        "pageByName": name + page,
    }
    return PAGE.replace("BASE", json.dumps(base)).replace("BODY", json.dumps(CALL.decode()))


@pytest.mark.soak
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
@pytest.mark.parametrize("origin", ["127.0.0.1", "evil.example"])
def test_no_web_page_gets_anything_of_a_gateway(
    origin: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    site = Site()
    with scene(monkeypatch) as here, serving(site):
        site.page = page_for(here)
        with browsing(f"http://{origin}:{site.port}/", tmp_path / "home"):
            until(lambda: bool(site.told), TOLD_S)
        told = dict(site.told)
        assert told.pop("own page") == "200 won"
        # The browser did send them: it was the gateway that kept them out.
        refused = here.gateway.ledger.status(0.0)["turned_away"]
        assert isinstance(refused, dict)
        assert {"origin", "host", "upgrade", "method"} <= refused.keys(), refused
        assert sum(refused.values()) >= 20, refused
        assert not here.provider.arrivals
        # A page learns nothing: `opaque` is an answer without its status and its text.
        assert set(told.values()) <= {"refused", "opaque", "sent", "true", "done"}, told
        assert (told["socket"], told["image"], told["script"]) == ("refused",) * 3
