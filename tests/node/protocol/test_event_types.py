"""The table of what each type of event has: it is the document's, and nothing else is read."""

import re
from pathlib import Path
from typing import Any, Final

import pytest

from parley._lbm import keys
from parley._lbm.codec import Value, encode
from parley._lbm.errors import LbmDecodeError
from parley._node.protocol import codes, event_types
from parley._node.protocol import event_types as federation_types
from parley._node.protocol.event_types import EVENT_TYPES
from parley._node.protocol.payload_schema import PayloadSchema
from tests.reference import vectors_events
from tests.reference.wire import CELLS, TYPES
from tests.sweep import sweep

PROTOCOL: Final = Path(__file__).parents[3] / "docs" / "protocol.md"
_ROW: Final = re.compile(r"^\| (\d)/(\d+) \w+ (\|.*)", re.MULTILINE)
_COLUMN: Final = re.compile(r"\| (\[?\d+ [a-z][^|]*)\|")
_CELL: Final = re.compile(r"(\[?)(\d+) ")
# Those of the bus are in tests/node/bus/remote/test_messages.py.
WITH_CELLS: Final = {
    number: of.cells for number, of in EVENT_TYPES.items() if of.cells and number >> 8 != codes.BUS
}
# Of every cell that there is a value that no type could take for its own.
STRANGE: Final[dict[int, Value]] = {
    key: "text" if entry.type != "text" else [entry.name] for key, entry in keys.KEYS.items() if key
}


def least_of(number: int) -> dict[int, Any]:
    """The cells that an event of a type must have, by the second reading of the document."""
    if number == codes.CONNECTION << 8 | codes.RECEIVED:
        return {keys.RECEIVED: 0}
    name = next(name for name, of in TYPES.items() if of == (number >> 8, number & 255))
    return {CELLS[cell]: value for cell, value in vectors_events.REQUIRED[name].items()}


def documented() -> dict[int, tuple[set[int], set[int]]]:
    """Of sections 8 to 10, 19, 20: cells that a type has always, and those that it may have."""
    text = PROTOCOL.read_text("utf-8")
    part = text[text.index("\n## 8. Streams") : text.index("\n## 11. Closing")]
    part += text[text.index("\n## 19. Federation") : text.index("\n## Appendix A")]
    found: dict[int, tuple[set[int], set[int]]] = {}
    for category, subcategory, columns in _ROW.findall(part):
        always, perhaps = found.setdefault(int(category) << 8 | int(subcategory), (set(), set()))
        cells = _COLUMN.search(columns)
        for bracket, key in _CELL.findall(cells[1] if cells else ""):
            # Absent data means null, in every type.
            (perhaps if bracket or int(key) == keys.DATA else always).add(int(key))
    return {number: cells for number, cells in found.items() if number in WITH_CELLS}


def test_the_table_is_the_documents() -> None:
    wanted = documented()
    assert len(wanted) > 18
    for number, (always, perhaps) in wanted.items():
        cells = WITH_CELLS[number]
        assert (set(cells.required), set(cells.kinds)) == (always, always | perhaps), number


def test_there_is_a_type_for_each_event_after_the_handshake() -> None:
    handshake = (codes.HELLO, codes.REPLY, codes.PROOF, codes.RETRY, codes.REJECT)
    raw = (*handshake, codes.RESUME, codes.RESUMED)
    names = {*TYPES.values(), (codes.CONNECTION, codes.RECEIVED)} - {
        (codes.CONNECTION, sub) for sub in raw
    }
    assert {(number >> 8, number & 255) for number in EVENT_TYPES} == names


@sweep("number", WITH_CELLS)
def test_cells_of_other_types_are_as_good_as_absent(number: int) -> None:
    own = least_of(number)
    strange = {key: value for key, value in STRANGE.items() if key not in WITH_CELLS[number].kinds}
    assert len(strange) > 30
    assert WITH_CELLS[number].read(encode({**strange, **own, 1_000: None})) == own


@sweep("number", WITH_CELLS)
def test_each_cell_of_its_own_is_checked(number: int) -> None:
    cells = WITH_CELLS[number]
    for key in cells.kinds:
        if key == keys.DATA and cells.kinds[key].of is None:
            continue
        with pytest.raises(LbmDecodeError):
            cells.read(encode({**least_of(number), key: STRANGE[key]}))
    for key in cells.required:
        with pytest.raises(LbmDecodeError):
            cells.read(encode({k: v for k, v in least_of(number).items() if k != key}))


def test_only_what_needs_no_cell_may_have_no_payload() -> None:
    for cells in WITH_CELLS.values():
        if cells in (event_types.END, federation_types.LOGIN, federation_types.LOGOUT):
            assert cells.read(b"") == {}
        else:
            with pytest.raises(LbmDecodeError):
                cells.read(b"")


def test_errors_name_the_cell() -> None:
    cells: PayloadSchema = event_types.CALL
    with pytest.raises(LbmDecodeError, match=r"21 \(topic\) is missing"):
        cells.read(encode({}))
    with pytest.raises(LbmDecodeError, match=r"30 \(window\) is not an integer of 1..2147483647"):
        cells.read(encode({keys.TOPIC: "t", keys.WINDOW: 0}))
