"""Parsing dead letters, including letters with any contents from other programs."""

import pytest

from parley._node.bus.dead_letters import read_letter
from parley._node.bus.model import StoredEvent


def letter_of(body: str) -> StoredEvent:
    return StoredEvent("7-1", "a.b.dead", body)


def test_letter_is_parsed() -> None:
    entry = '{"attempt": 1, "consumer": "c", "at": 2, "error": "no"}'
    body = f'{{"id": "5-1", "name": "a.b", "data": {{"n": 1}}, "group": "g", "history": [{entry}]}}'
    letter = read_letter(letter_of(body))
    assert (letter.id, letter.event_id, letter.name, letter.group) == ("7-1", "5-1", "a.b", "g")
    assert (letter.data, letter.body) == ({"n": 1}, '{"n":1}')
    assert letter.history == ((1, "c", 2.0, "no"),)


@pytest.mark.parametrize("data", ['{"n": NaN}', '{"n": "\\ud800"}', '{"n": 1e999}'])
def test_data_that_cannot_be_encoded_stays_unchanged(data: str) -> None:
    body = f'{{"id": "5-1", "data": {data}}}'
    letter = read_letter(letter_of(body))
    assert (letter.event_id, letter.data, letter.body) == ("5-1", None, body)


@pytest.mark.parametrize(
    "entry", [f'{{"at": 1{"0" * 400}}}', '{"at": "x"}', '{"at": null, "attempt": -1}', "{}"]
)
def test_invalid_time_is_ignored(entry: str) -> None:
    (failure,) = read_letter(letter_of(f'{{"history": [{entry}, 7]}}')).history
    assert failure == (0, "", 0.0, "")


@pytest.mark.parametrize("body", ["", "[]", "{", '{"id": 5, "history": {}, "version": "x"}'])
def test_invalid_letter_is_empty(body: str) -> None:
    letter = read_letter(letter_of(body))
    assert (letter.event_id, letter.group, letter.version, letter.body) == ("", "", 1, body)
