"""The table of keys, against the text of section 13."""

import parley._lbm.keys
from parley._lbm.keys import FIRST_APPLICATION_KEY, KEYS, key_name

# "Types: ... text; ... bytes; ... booleans; ... arrays; ... maps; 22 any; the rest unsigned."
TYPES = {
    "text": {6, 17, 19, 21, 26, 27, 34, 35, 42, 43, 44, 66, 70, 79},
    "bytes": {0, 2, 12, 29, 51, 54, 55, 56, 61, 65, 67, 68, 71, 76, 77, 78},
    "bool": {13, 45, 48, 49, 58},
    "array": {14, 32, 36, 37, 59, 60, 62, 63, 69, 74, 75},
    "map": {3, 4, 5, 15, 24},
    "any": {22},
    "uint": {1, 7, 8, 9, 10, 11, 16, 18, 20, 23, 25, 28, 30, 31, 33, 38, 39, 40, 41, 46, 47}
    | {50, 52, 53, 57, 64, 72, 73, 80},
}


def test_every_key_has_the_type_of_the_text() -> None:
    assert {number: key.type for number, key in KEYS.items()} == {
        number: kind for kind, numbers in TYPES.items() for number in numbers
    }


def test_keys_are_numbered_without_gaps_and_named_once() -> None:
    assert list(KEYS) == list(range(81))
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
