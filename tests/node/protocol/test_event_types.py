"""Tests of docs/protocol/events.toml: documents contain its tables, and the code agrees with it."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pytest

from docs import events_table
from docs.events_table import LARGEST, number_of, table
from parley._crypto.errors import IdentityError
from parley._crypto.identity import Identity
from parley._lbm import keys
from parley._lbm.codec import Value, encode
from parley._lbm.errors import LbmDecodeError
from parley._node.federation import cards, envelopes
from parley._node.messaging.topic_history import read_beginning
from parley._node.protocol import codes, event_types
from parley._node.protocol.errors import RemoteProtocolError
from parley._node.protocol.event_types import EVENT_TYPES
from parley._node.protocol.handshake import read_proof
from parley._node.protocol.handshake_messages import (
    check_version,
    decode_handshake,
    parse_code_and_text,
    parse_hello,
    parse_reply,
    parse_retry,
)
from parley._node.protocol.payload_schema import PayloadSchema
from parley._node.protocol.resumption import read_resume, read_resumed
from tests.reference.wire import TYPES
from tests.sweep import sweep

Event = Mapping[str, Any]
Cells = dict[int, Value]

EVENTS: Final[list[Event]] = table()["event"]
NODE_ID: Final = bytes(range(32))
IDENTITY: Final = Identity.create()
# Values with byte strings, which the file can't express: valid ones and invalid ones.
VALUES: Final[dict[str, tuple[list[Any], list[Any]]]] = {
    "offer": (
        [{key: ["x"] for key in range(1, 6)}, {1: [], 2: [], 3: [], 4: [], 5: ["a", "b"], 9: 1}],
        [{}, {key: ["x"] for key in range(1, 5)}, dict.fromkeys(range(1, 6), "x")],
    ),
    "suite": (
        [{1: "x25519", 2: "ed25519", 3: "sha256", 4: "aes-256-gcm", 5: "chain"}],
        [{}, {1: "x25519"}, {key: ["x"] for key in range(1, 6)}],
    ),
    "retry": ([{1: "x25519"}], [{}, {1: ["x25519"]}, {1: "x25519", 2: "ed25519"}]),
    "shares": ([{}, {"x25519": b"1"}, {"a": b"", "b": b""}], [{"x25519": "1"}]),
    "share": ([{"x25519": b"1"}], [{}, {"x25519": "1"}, {"x25519": b"", "b": b""}]),
    "keys": ([list(IDENTITY.cells())], [[], [["ed25519", b""]], [[1, b"", None]]]),
    "information": (
        [{}, {"a": "x" * 1_018}],
        [{1: "a"}, {"a": "x" * 1_019}],
    ),
    "path": (
        [[NODE_ID] * 2, [NODE_ID] * 8],
        [[], [NODE_ID], [NODE_ID] * 9, [NODE_ID, NODE_ID[1:]], [NODE_ID, "x" * 32]],
    ),
    "to": ([[NODE_ID], [NODE_ID] * 2], [[], [NODE_ID] * 3, [NODE_ID[1:]], ["x" * 32]]),
    "have": (
        [[], [[NODE_ID, 0]], [[NODE_ID, LARGEST]] * 1_024],
        [[[NODE_ID, 0]] * 1_025, [[NODE_ID]], [[NODE_ID, -1]], [[NODE_ID, "1"]], [[b"", 1]]],
    ),
    "envelopes": ([[], [b""] * 1_024], [[b""] * 1_025, ["x"], [1]]),
    "presented": (
        [[], [b""] * 4, [bytes(2_048)] * 4],
        [[b""] * 5, [bytes(8_193)], [b"", "x"], [None]],
    ),
    "slots": (
        [[], [NODE_ID], [NODE_ID] * 1_024],
        [[NODE_ID] * 1_025, [NODE_ID[1:]], [NODE_ID + b"x"], ["x" * 32], [1]],
    ),
    "statements": (
        [[b""], [b"x" * 1_024] * 64],
        [[], [b""] * 65, [b"x" * 65_537], [b"x" * 65_536, b"x"], ["x"], [1]],
    ),
    "exports": ([["x" * 256] * 64], [["x" * 257], [""] * 65]),
    "one_key": ([[["ed25519", NODE_ID, None]]], [[], [["ed25519", NODE_ID]], [1]]),
    "links": (
        [[], [[NODE_ID, True]], [[bytes([n]) * 32, False] for n in range(64)]],
        [[[NODE_ID, True]] * 2, [[bytes([n]) * 32, False] for n in range(65)], [[NODE_ID, 1]]],
    ),
    "addresses": ([[], ["tcp://host:1"]], [[1]]),
    "headers": ([], [{1: "x"}]),
    "ids": ([["1-0"] * 1_000], [["1-0"] * 1_001]),
    "some_ids": ([["1-0"] * 1_000], [["1-0"] * 1_001]),
    "events": ([[["a.b", "", None, 2**31 - 1]] * 1_000], [[["a.b", "", None, 1]] * 1_001]),
    "event_name": (
        ["a." + "b" * 249, "a." + "b" * 249 + ".dead"],
        ["a." + "b" * 250, "a." + "b" * 250 + ".dead"],
    ),
    "group": (["g" * 256], ["g" * 257]),
    "consumer": (["c" * 203], ["c" * 204]),
}
SAMPLES: Final[dict[str, list[Any]]] = {
    "bytes": [b"", b"bytes"],
    "text": ["", "ü"],
    "boolean": [True, False],
    "array": [[]],
    "map": [{}],
    "any": [None, {"a": [1]}],
}
STRANGE: Final[dict[str, list[Any]]] = {
    "unsigned": ["0", -1, 0.0, None],
    "bytes": ["x", 1],
    "text": [b"x", 1],
    "boolean": [0, "true"],
    "array": [{}, "x"],
    "map": [[], "x"],
    "any": [],
}


def of_handshake(read: Callable[[dict[int, Value]], object]) -> Callable[[bytes], object]:
    def read_payload(payload: bytes) -> object:
        cells = decode_handshake(payload)
        if keys.VERSION in cells or read in (parse_hello, parse_reply):
            check_version(cells)
        return read(cells)

    return read_payload


HANDSHAKE: Final[Mapping[str, Callable[[bytes], object]]] = {
    "1/1": of_handshake(parse_hello),
    "1/2": of_handshake(parse_reply),
    "1/3": read_proof,
    "1/4": of_handshake(parse_retry),
    "1/5": of_handshake(parse_code_and_text),
    "1/13": of_handshake(read_resume),
    "1/14": read_resumed,
}


def schema_of(event: Event) -> PayloadSchema | None:
    category, subcategory = number_of(event)
    return EVENT_TYPES[category << 8 | subcategory].cells


def reader_of(event: Event) -> Callable[[bytes], object]:
    """Return the code that reads payloads of a type; it raises one of `REFUSED`."""
    if event["type"] in HANDSHAKE:
        return HANDSHAKE[event["type"]]
    schema = schema_of(event)
    assert schema is not None
    if event["name"] == "Result":
        return lambda payload: read_beginning(schema.read(payload))
    return schema.read


REFUSED: Final = (LbmDecodeError, IdentityError, RemoteProtocolError)
WITH_CELLS: Final = [event for event in EVENTS if "payload" not in event]
ESTABLISHED: Final = [event for event in WITH_CELLS if event["type"] not in HANDSHAKE]


def name_of(event: Event) -> str:
    return f"{event['type']} {event['name']} {event.get('variant', '')}"


def valid_values(cell: Event) -> list[Any]:
    kind, base = cell["type"], table()["types"][cell["type"]]["base"]
    if kind == "unsigned":
        most = cell.get("max", LARGEST)
        most -= cell["key"] == keys.REPLACED  # must be below cell 57
        return [cell.get("min", 0), most, *([most + 1] if "clamped" in cell else [])]
    if "size" in cell:
        return [bytes(cell["size"])]
    if "longest" in cell:
        return ["", "x" * cell["longest"]]
    if "most" in cell:
        return [[], [1] * cell["most"]]
    listed = [*table()["types"][kind].get("valid", []), *VALUES.get(kind, ([], []))[0]]
    return listed or SAMPLES[base]


def invalid_values(cell: Event) -> Iterator[Any]:
    kind = table()["types"][cell["type"]]
    yield from STRANGE[kind["base"]]
    yield from kind.get("invalid", [])
    yield from VALUES.get(cell["type"], ([], []))[1]
    if cell.get("min", 0) > 0:
        yield cell["min"] - 1
    if cell.get("max", LARGEST) < LARGEST and "clamped" not in cell:
        yield cell["max"] + 1
    if "size" in cell:
        yield from (bytes(cell["size"] - 1), bytes(cell["size"] + 1))
    if "longest" in cell:
        yield "x" * (cell["longest"] + 1)
    if "most" in cell:
        yield [1] * (cell["most"] + 1)


def sample(event: Event, key: int) -> Value:
    """Return a valid value of a cell."""
    (cell,) = (cell for cell in event["cells"] if cell["key"] == key)
    if key == keys.DATA and "formatted" in event:
        return b"data"
    if key == keys.NUMBER and "below" in event:
        return LARGEST
    value: Value = valid_values(cell)[0]
    return value


def with_cell(event: Event, key: int | None) -> Cells:
    """Return the required cells of an event, and those that `key` requires."""
    wanted = {cell["key"] for cell in event.get("cells", ()) if not cell.get("optional")}
    if key in event.get("together", ()):
        wanted |= set(event["together"])
    if "either" in event and key not in event["either"]:
        wanted.add(event["either"][0])
    if "below" in event and key == event["below"][0]:
        wanted.add(event["below"][1])
    if "formatted" in event and key == keys.FORMAT:
        wanted.add(keys.DATA)
    return {each: sample(event, each) for each in wanted - {key}}


def test_the_documents_have_the_tables() -> None:
    for document in events_table.DOCUMENTS:
        text = document.read_text("utf-8")
        assert events_table.with_tables(text) == text, "run `python -m docs.events_table`"


def test_every_key_is_the_codes() -> None:
    kinds = {"unsigned": "uint", "boolean": "bool"}
    assert {
        int(number): (key["name"], kinds.get(key["type"], key["type"]))
        for number, key in table()["keys"].items()
    } == {number: (key.name, key.type) for number, key in keys.KEYS.items()}


def test_every_cell_has_the_type_and_the_size_of_its_key() -> None:
    for event in [*EVENTS, *table()["record"]]:
        for cell in event.get("cells", ()):
            key, kind = table()["keys"][str(cell["key"])], table()["types"][cell["type"]]
            assert kind["base"] == key["type"], (event["name"], cell)
            assert cell.get("size") == key.get("size"), (event["name"], cell)


def test_every_type_has_its_number_and_name() -> None:
    names = {numbers: name.replace(" ", "") for name, numbers in TYPES.items()}
    names[codes.CONNECTION, codes.RECEIVED] = "Received"
    assert {number_of(event) for event in EVENTS} == set(names)
    for event in EVENTS:
        assert names[number_of(event)].endswith(event["name"]), event["type"]


def test_every_event_after_the_handshake_is_in_the_codes_table() -> None:
    streams = {"0": range(1), "1..": range(1, 2**32), "2..": range(2, 2**32)}
    events = [event for event in EVENTS if event["type"] not in HANDSHAKE]
    found = {(category << 8) + sub: e for e in events for category, sub in [number_of(e)]}
    assert set(found) == set(EVENT_TYPES)
    for number, event in found.items():
        kind = EVENT_TYPES[number]
        assert (kind.name, kind.streams) == (event["id"], streams[event["stream"]])
        assert (kind.cells is None) == ("payload" in event), event["type"]


def test_the_types_that_are_always_sealed() -> None:
    sealed = {number_of(event) for event in EVENTS if event.get("sealed")}
    assert sealed == {(codes.CONNECTION, sub) for sub in codes.ALWAYS_SEALED}


@sweep("event", ESTABLISHED, ids=name_of)
def test_the_cells_are_those_of_the_codes_table(event: Event) -> None:
    schema = schema_of(event)
    assert schema is not None
    cells = event.get("cells", ())
    assert set(schema.kinds) == {cell["key"] for cell in cells}
    assert set(schema.required) == {cell["key"] for cell in cells if not cell.get("optional")}
    assert len(schema.kinds) == len(cells)


@sweep("event", WITH_CELLS, ids=name_of)
def test_each_cell_is_read_as_the_table_says(event: Event) -> None:
    read = reader_of(event)
    read(encode(with_cell(event, None)))
    for cell in event.get("cells", ()):
        key = cell["key"]
        if event["type"] in HANDSHAKE and key == keys.NETWORK_MAC:
            continue  # ignored without a network key
        others = with_cell(event, key)
        if not cell.get("optional"):
            with pytest.raises(REFUSED):
                read(encode(others))
        for value in valid_values(cell):
            if key == keys.DATA and "formatted" in event:
                others[keys.FORMAT] = event_types.FORMAT_LBM
            read(encode({**others, key: value}))
        for value in invalid_values(cell):
            with pytest.raises(REFUSED):
                read(encode({**others, key: value}))


@sweep("event", WITH_CELLS, ids=name_of)
def test_cells_that_depend_on_each_other(event: Event) -> None:
    read, least = reader_of(event), with_cell(event, None)
    wrong: list[Cells] = [{**least, key: sample(event, key)} for key in event.get("together", ())]
    if "either" in event:
        without = {k: v for k, v in least.items() if k not in event["either"]}
        wrong += [without, {**without, **{key: sample(event, key) for key in event["either"]}}]
    if "below" in event:
        lower, upper = event["below"]
        wrong += [{**least, lower: 1}, {**least, lower: 7, upper: 7}]
        read(encode({**least, lower: 6, upper: 7}))
    if "formatted" in event:
        wrong += [{**least, keys.DATA: "text"}, {**least, keys.FORMAT: 3}]
        read(encode({**least, keys.FORMAT: event_types.FORMAT_LBM}))
    for cells in wrong:
        with pytest.raises(REFUSED):
            read(encode(cells))


@sweep("event", ESTABLISHED, ids=name_of)
def test_cells_of_other_types_are_ignored(event: Event) -> None:
    schema = schema_of(event)
    assert schema is not None
    own = with_cell(event, None)
    others = {
        number: "text" if key.type != "text" else [key.name]
        for number, key in keys.KEYS.items()
        if number and number not in schema.kinds
    }
    assert schema.read(encode({**others, **own, 1_000: None})) == own


@sweep("event", ESTABLISHED, ids=name_of)
def test_no_payload_means_no_cells_only_where_the_table_says_so(event: Event) -> None:
    schema = schema_of(event)
    assert schema is not None
    if event.get("empty") and not schema.required:
        assert schema.read(b"") == {}
    else:
        with pytest.raises(LbmDecodeError):
            schema.read(b"")


def test_the_cells_of_envelopes_and_cards() -> None:
    schemas = {"an envelope": envelopes._ENVELOPE, "a card": cards._CARD}
    for record in table()["record"]:
        schema = schemas.pop(record["name"])
        required = {cell["key"] for cell in record["cells"] if not cell.get("optional")}
        assert set(schema.kinds) == {cell["key"] for cell in record["cells"]}
        assert set(schema.required) == required
        for cell in record["cells"]:
            _, of, holds = schema.kinds[cell["key"]]
            for value in valid_values(cell):
                assert of is None or type(value) is of
                assert holds is None or holds(value), (cell, value)
            for value in invalid_values(cell):
                if type(value) is of:
                    assert holds is not None, cell
                    assert not holds(value), (cell, value)
    assert not schemas


def test_errors_name_the_cell() -> None:
    with pytest.raises(LbmDecodeError, match=r"21 \(topic\) is missing"):
        event_types.CALL.read(encode({}))
    with pytest.raises(LbmDecodeError, match=r"30 \(window\) is not an integer of 1..2147483647"):
        event_types.CALL.read(encode({keys.TOPIC: "t", keys.WINDOW: 0}))
