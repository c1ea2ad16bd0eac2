"""Gemini CLI behind the gateway: the kind of login that it needs to be given.

With an address in `GOOGLE_GEMINI_BASE_URL` and no login chosen, it refuses to start (0.61: "Invalid
auth method selected"), although there is a key. Then it gets a throw-away home in which an API key
is chosen; whoever has chosen gets none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Final

from headway.gateway.config_files import make_home
from headway.gateway.settings import plain_json, table, text_of

HOME: Final = "GEMINI_CLI_HOME"
FOLDER: Final = ".gemini"
SETTINGS: Final = "settings.json"
KEY: Final = "GEMINI_API_KEY"
WITH_KEY: Final = "gemini-api-key"


def write_home(folder: str, environ: Mapping[str, str], *, has_key: bool) -> dict[str, str]:
    """Make the home if it is needed; `has_key`: the gateway adds Gemini's key."""
    own = os.path.join(environ.get(HOME) or environ.get("HOME", ""), FOLDER)
    try:
        settings = table(json.loads(plain_json(text_of(os.path.join(own, SETTINGS)) or "{}")))
    except (OSError, ValueError):
        # Gemini CLI says itself what is wrong with it.
        return {}
    security = table(settings.get("security"))
    auth = table(security.get("auth"))
    if auth.get("selectedType") or not (has_key or environ.get(KEY)):
        return {}
    security["auth"] = {**auth, "selectedType": WITH_KEY}
    text = json.dumps({**settings, "security": security}, indent=2)
    make_home(os.path.join(folder, FOLDER), own, SETTINGS, text)
    return {HOME: folder}
