"""A record with numbers that tables cannot store is malformed."""

import pytest

from parley._node.journal.errors import JournalFormatError
from parley._node.journal.record_types import LARGEST_COUNT, Generation, KeyUpdate, SessionEnd

H = bytes(32)


def end(code: int) -> SessionEnd:
    return SessionEnd(1, code, True, "", (H, H), (2, 3))


def update(number: int) -> KeyUpdate:
    return KeyUpdate(1, 0, 5, Generation(number, (), H, H, H))


@pytest.mark.parametrize("code", [-2, -1, 0, 2**32 - 1, LARGEST_COUNT])
def test_codes_of_ends(code: int) -> None:
    assert SessionEnd.parse(end(code).encode()) == end(code)


@pytest.mark.parametrize("code", [LARGEST_COUNT + 1, 2**64 - 1, -(2**48), -(2**64)])
def test_invalid_codes(code: int) -> None:
    with pytest.raises(JournalFormatError, match="out of range"):
        SessionEnd.parse(end(code).encode())


def test_largest_generation() -> None:
    most = update(LARGEST_COUNT)
    assert KeyUpdate.parse(most.encode()) == most
    for number in (0, LARGEST_COUNT + 1, 2**64 - 1):
        with pytest.raises(JournalFormatError):
            KeyUpdate.parse(update(number).encode())
