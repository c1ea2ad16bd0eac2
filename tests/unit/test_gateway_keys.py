"""The keys of the gateway: what opens it, what does not any more, what is never shown."""

from __future__ import annotations

import pytest

from headway.errors import BadValueError
from headway.gateway.guard import Keyring


def test_a_key_is_found_by_its_token_and_by_nothing_else() -> None:
    keys = Keyring()
    key = keys.issue("review", ("run", "review"))
    assert keys.find(key.token) is key
    others = ("", key.token[:-1], key.token + "A", key.token.swapcase(), "é" * 43, "\udcff" * 43)
    assert [keys.find(other) for other in others] == [None] * len(others)


def test_a_key_that_has_ended_opens_nothing_and_is_forgotten() -> None:
    keys = Keyring()
    key, other = keys.issue("one"), keys.issue("two")
    keys.end(key)
    keys.end(key)
    assert (key.is_over, other.is_over) == (True, False)
    assert keys.find(key.token) is None
    assert list(keys) == [other]


@pytest.mark.parametrize("token", ["", "short", "a" * 21, "a" * 129, "../" * 12, "a" * 30 + "/"])
def test_a_token_that_can_be_guessed_or_is_no_part_of_a_path_is_refused(token: str) -> None:
    with pytest.raises(BadValueError) as caught:
        Keyring().issue("default", token=token)
    assert not token or token not in caught.value.render()


def test_two_keys_never_share_a_token() -> None:
    keys = Keyring()
    token = keys.issue("one").token
    with pytest.raises(BadValueError):
        keys.issue("two", token=token)


def test_a_keyring_has_an_end() -> None:
    keys = Keyring(keys_max=2)
    first = keys.issue("one")
    keys.issue("two")
    with pytest.raises(BadValueError):
        keys.issue("three")
    keys.end(first)
    keys.issue("three")
