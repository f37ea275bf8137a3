"""Tests of the table of keys. tests/node/protocol/test_event_types.py compares it with the
document.
"""

import parley._lbm.keys
from parley._lbm.keys import FIRST_APPLICATION_KEY, KEYS, key_name


def test_keys_are_numbered_without_gaps_and_named_once() -> None:
    assert list(KEYS) == list(range(86))
    assert len({key.name for key in KEYS.values()}) == len(KEYS)


def test_every_constant_is_in_the_table() -> None:
    constants = {
        name: number
        for name, number in vars(parley._lbm.keys).items()
        if name.isupper() and isinstance(number, int)
    }
    assert constants.pop("FIRST_APPLICATION_KEY") == FIRST_APPLICATION_KEY == 256
    assert sorted(constants.values()) == list(KEYS)


def test_names_in_errors() -> None:
    assert key_name(21) == "21 (topic)"
    assert key_name(300) == "300"
