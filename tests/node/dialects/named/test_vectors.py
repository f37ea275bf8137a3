"""The golden bytes of the dialect, written independently from the document."""

from collections.abc import Callable
from typing import Any

import pytest

from parley._node.dialects.core import FrameSplitter
from parley._node.dialects.limits import LARGEST_NAME, DialectLimits
from parley._node.dialects.named.codec import (
    LENGTHS_SIZE,
    TOTAL_SIZE,
    BromineEvent,
    BromineType,
    Flavour,
    decode_error,
    encode_error,
    measure_of,
    parse_event,
)
from parley._node.messaging.formats import Format, FormatError, decode_as
from parley._node.messaging.payloads import FormattedPayload, Tandem
from parley._node.protocol.errors import LocalProtocolError, RemoteProtocolError
from tests.node.dialects.named.events import serialise_event
from tests.vectors.load import Vector, of_kind, read, unhex, vectors

NAME = "named_dialect"
LIMIT: int = read(NAME)["limit"]
FLAVOURS = {"plain": Flavour.PLAIN, "typed": Flavour.TYPED}
LIMITS = DialectLimits(longest_frame=LIMIT + LENGTHS_SIZE, longest_name=LARGEST_NAME)


def both(*wanted: Callable[[Vector], bool]) -> Callable[[Vector], bool]:
    return lambda vector: all(one(vector) for one in wanted)


def writable(vector: Vector) -> bool:
    return not vector.get("read_only")


def received(vector: Vector, piece: int) -> tuple[list[BromineEvent], int]:
    """Return the events of a vector and the number of remaining bytes."""
    flavour = FLAVOURS[vector["flavour"]]
    longest = vector.get("limit", LIMIT) + LENGTHS_SIZE
    splitter = FrameSplitter(TOTAL_SIZE, measure_of(flavour, longest))
    data = unhex(vector["hex"])
    events = [
        parse_event(frame, flavour, LARGEST_NAME)
        for at in range(0, len(data), piece)
        for frame in splitter.feed(data[at : at + piece])
    ]
    return events, splitter.pending_bytes


def event_of(vector: Vector, fields: Any) -> BromineEvent:
    ref_id = None if fields["ref_id"] is None else int(fields["ref_id"])
    told = "initiator" if ref_id is None else "response"
    texts = []
    for field in ("namespace", "name"):
        text, count = fields.get(f"{field}_repeated", (fields[field], 1))
        texts.append(text * count)
    if FLAVOURS[vector["flavour"]] is Flavour.TYPED:
        told = fields["type"]
    kind = BromineType[told.upper()]
    return BromineEvent(int(fields["id"]), kind, ref_id, texts[0], texts[1], unhex(fields["data"]))


@pytest.mark.parametrize("piece", [1, 1 << 20])
@vectors(NAME, of_kind("event"), fails=False)
def test_events_are_read(vector: Vector, piece: int) -> None:
    assert received(vector, piece) == ([event_of(vector, vector["fields"])], 0)


@vectors(NAME, both(of_kind("event"), writable), fails=False)
def test_events_are_written(vector: Vector) -> None:
    event = event_of(vector, vector["fields"])
    raw = serialise_event(event, FLAVOURS[vector["flavour"]], LIMITS)
    assert raw == unhex(vector["hex"])


@pytest.mark.parametrize("piece", [1, 1 << 20])
@vectors(NAME, of_kind("stream"))
def test_streams_are_read(vector: Vector, piece: int) -> None:
    events, left = received(vector, piece)
    assert events == [event_of(vector, fields) for fields in vector["fields"]["events"]]
    assert left == len(unhex(vector["fields"]["rest"]))


@pytest.mark.parametrize("piece", [1, 1 << 20])
@vectors(NAME, both(of_kind("event"), lambda vector: vector["fails"] == "incomplete"), fails=True)
def test_an_incomplete_event_is_awaited(vector: Vector, piece: int) -> None:
    assert received(vector, piece) == ([], len(unhex(vector["hex"])))


@pytest.mark.parametrize("piece", [1, 1 << 20])
@vectors(NAME, both(of_kind("event"), lambda vector: vector["fails"] == "closes"), fails=True)
def test_violations_are_refused(vector: Vector, piece: int) -> None:
    with pytest.raises(RemoteProtocolError):
        received(vector, piece)


@vectors(NAME, of_kind("build"), fails=True)
def test_values_without_an_encoding_are_not_written(vector: Vector) -> None:
    event = event_of(vector, vector["fields"])
    with pytest.raises(LocalProtocolError):
        serialise_event(event, FLAVOURS[vector["flavour"]], LIMITS)


@vectors(NAME, of_kind("error"), fails=False)
def test_errors_are_read(vector: Vector) -> None:
    fields = vector["fields"]
    assert decode_error(unhex(vector["hex"])) == (fields["code"], fields["text"])


@vectors(NAME, both(of_kind("error"), writable), fails=False)
def test_errors_are_written(vector: Vector) -> None:
    fields = vector["fields"]
    assert encode_error(fields["code"], fields["text"]) == unhex(vector["hex"])


@vectors(NAME, of_kind("error"), fails=True)
def test_a_malformed_error_is_rejected(vector: Vector) -> None:
    assert decode_error(unhex(vector["hex"])) is None


@vectors(NAME, both(of_kind("tandem"), lambda vector: "ambiguous" not in vector), fails=False)
def test_two_payloads_in_one_are_read_and_written(vector: Vector) -> None:
    tandem = Tandem(unhex(vector["fields"]["first"]), unhex(vector["fields"]["second"]))
    assert Tandem.parse(unhex(vector["hex"])) == tandem
    assert tandem.encode() == unhex(vector["hex"])


@vectors(NAME, of_kind("tandem"), fails=True)
def test_a_malformed_tandem_payload_is_rejected(vector: Vector) -> None:
    with pytest.raises(FormatError):
        Tandem.parse(unhex(vector["hex"]))


@vectors(NAME, of_kind("formatted"), fails=False)
def test_payloads_say_their_format(vector: Vector) -> None:
    payload = FormattedPayload(unhex(vector["hex"]))
    known = Format[vector["fields"]["format"].upper()]
    assert payload.format == known
    assert payload.raw[1:] == unhex(vector["fields"]["payload"])
    assert payload.data == decode_as(known, payload.raw[1:])


@vectors(NAME, both(of_kind("formatted"), lambda vector: bool(vector["hex"])), fails=True)
def test_a_format_that_is_unknown_is_not_read(vector: Vector) -> None:
    with pytest.raises(FormatError):
        _ = FormattedPayload(unhex(vector["hex"])).data
