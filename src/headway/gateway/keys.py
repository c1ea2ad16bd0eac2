"""The keys that open the gateway: made here, found here, ended here.

Laws:
- A token is guessed by nobody: 32 random bytes, or one of at least 128 bits that was kept.
- A search takes as long for a wrong token as for a right one, whatever their beginnings share.
- A key that has ended opens nothing, and nothing remembers that it ever did.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hmac import compare_digest
from hmac import digest as keyed_digest
from secrets import token_bytes, token_urlsafe
from typing import Final

from headway.errors import BadValueError
from headway.gateway.values import Key, Payer

TOKEN_BYTES: Final = 32

KEYS_MAX: Final = 65_536
"""One for each attempt that runs, and a machine runs fewer processes than that."""

_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{22,128}")
"""Characters that stand for themselves in a URL; 22 of them are 128 bits."""


@dataclass(frozen=True, slots=True)
class KeyringStatistics:
    """How many keys there are, and what is under way with them."""

    keys: int
    issued: int
    ended: int
    in_flight: int
    """Calls that wait or run with a key that has not ended."""


class Keyring:
    """All keys that open the gateway now."""

    __slots__ = ("_ended", "_issued", "_keys", "_keys_max", "_secret")

    def __init__(self, keys_max: int = KEYS_MAX) -> None:
        self._keys_max = keys_max
        self._keys: dict[bytes, Key] = {}
        """By a digest that nobody else can compute: how long a search in it takes tells nothing
        about the tokens."""
        self._secret = token_bytes(TOKEN_BYTES)
        self._issued = self._ended = 0

    def __repr__(self) -> str:
        return f"<Keyring {len(self._keys)} keys, {self._issued} issued, {self._ended} ended>"

    def __iter__(self) -> Iterator[Key]:
        return iter(tuple(self._keys.values()))

    def issue(
        self,
        name: str,
        path: tuple[str, ...] = (),
        *,
        token: str | None = None,
        models: Iterable[str] | None = None,
        payer: Payer | None = None,
    ) -> Key:
        """A new key; with `token` one that is known already, as that of a gateway that restarts."""
        if len(self._keys) >= self._keys_max:
            raise BadValueError(
                "the gateway has no room for another key",
                detail=f"{len(self._keys)} keys are in use",
                hint="end the keys of attempts that are over",
            )
        found = token_urlsafe(TOKEN_BYTES) if token is None else token
        if not _TOKEN.fullmatch(found):
            raise BadValueError(
                "a token of the gateway has 22 to 128 letters, digits, `-` and `_`",
                detail=f"got {len(found)} characters",
                hint='make one with `python -c "import secrets; print(secrets.token_urlsafe())"`',
            )
        place = self._place(found)
        if place in self._keys:
            raise BadValueError("two keys of the gateway have one token", where=name)
        allowed = None if models is None else frozenset(models)
        key = Key(found, name, path, models=allowed, payer=payer)
        self._keys[place] = key
        self._issued += 1
        return key

    def find(self, token: str) -> Key | None:
        """The key that has this token and has not ended."""
        key = self._keys.get(self._place(token))
        # A second look, in constant time: a digest is not the token itself.
        if key is None or not compare_digest(_bytes(key.token), _bytes(token)):
            return None
        return key

    def end(self, key: Key) -> None:
        """From now on it opens nothing. What is under way with it is its caller's to stop."""
        key.is_over = True
        place = self._place(key.token)
        if self._keys.get(place) is key:
            del self._keys[place]
            self._ended += 1

    def statistics(self) -> KeyringStatistics:
        """How many keys there are."""
        in_flight = sum(key.in_flight for key in self._keys.values())
        return KeyringStatistics(len(self._keys), self._issued, self._ended, in_flight)

    def _place(self, token: str) -> bytes:
        return keyed_digest(self._secret, _bytes(token), "sha256")


def _bytes(token: str) -> bytes:
    return token.encode("utf-8", "surrogatepass")
