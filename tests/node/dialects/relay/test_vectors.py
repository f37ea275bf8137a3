"""The golden bytes of the dialect, written independently from the document."""

from collections.abc import Callable

import pytest

from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.relay.client import RelayClientConnection
from parley._node.dialects.relay.codec import (
    RelayFault,
    RelayMessage,
    decode_error,
    decode_messages,
    encode_error,
    encode_message,
)
from parley._node.dialects.relay.connection import Batch, MessageSorter, RelayConnection
from parley._node.dialects.relay.router import RelayMember, Router
from parley._node.protocol.errors import RemoteProtocolError
from tests.node.dialects.relay.hall import Hall, faults, messages, written
from tests.vectors.load import Vector, of_kind, read, unhex, vectors

NAME = "event_relay"
LIMIT: int = read(NAME)["limit"]
LIMITS = DialectLimits(longest_frame=LIMIT)
# The sender and another client, by default.
PAIR = ("11111111111141118111111111111111", "22222222222242228222222222222222")
whole_and_in_bytes = pytest.mark.parametrize("piece", [1, 1 << 20])


def hall_of(vector: Vector) -> Hall:
    return Hall(*map(unhex, vector.get("connected", [])), limits=LIMITS)


def sorted_out(vector: Vector, piece: int) -> tuple[dict[bytes, bytes], bool]:
    """Return the messages for each client, and whether the connection must be closed."""
    router, data, closes = Router(), unhex(vector["hex"]), False
    members: dict[bytes, RelayMember] = {}
    for uuid in map(unhex, vector.get("connected", PAIR)):
        members[uuid] = RelayConnection(router, LIMITS, 0.0)
        router.join(uuid, members[uuid])
    own = unhex(vector.get("uuid", PAIR[0]))
    sorter = MessageSorter(own, members[own], router, vector.get("limit", LIMIT))
    got = dict.fromkeys(members, b"")
    for at in range(0, len(data), piece):
        batch: Batch = {}
        closes = bool(sorter.sort(data[at : at + piece], 0, batch))
        for uuid, member in members.items():
            got[uuid] += b"".join(batch.get(member, []))
        if closes:
            break
    return got, closes


def code_of(vector: Vector) -> tuple[int, bool]:
    """Return the error code of the expected answer, and whether it ends the connection."""
    code, _, closes = vector["fails"].removeprefix("code ").partition(", ")
    return int(code), closes == "closes"


def is_answered(kind: str) -> Callable[[Vector], bool]:
    return lambda vector: vector["kind"] == kind and vector["fails"] != "incomplete"


def is_incomplete(kind: str) -> Callable[[Vector], bool]:
    return lambda vector: vector["kind"] == kind and vector["fails"] == "incomplete"


@whole_and_in_bytes
@vectors(NAME, of_kind("uuid"), fails=False)
def test_uuids_are_let_in(vector: Vector, piece: int) -> None:
    hall = hall_of(vector)
    uuid = unhex(vector["fields"]["uuid"])
    hall.at[uuid] = hall.enter()
    hall.send(uuid, unhex(vector["hex"]), piece)
    assert hall.at[uuid].uuid == uuid
    assert hall.written(uuid) == b""


@whole_and_in_bytes
@vectors(NAME, is_answered("uuid"), fails=True)
def test_uuids_are_refused(vector: Vector, piece: int) -> None:
    hall = hall_of(vector)
    core = hall.enter()
    data = unhex(vector["hex"])
    for at in range(0, len(data), piece):
        core.receive_data(data[at : at + piece], hall.now)
    assert (faults(written(core)), core.closing) == ([code_of(vector)[0]], True)
    assert all(not connection.closing for connection in hall.at.values())


@vectors(NAME, is_incomplete("uuid"), fails=True)
def test_uuids_are_waited_for(vector: Vector) -> None:
    core = hall_of(vector).enter(unhex(vector["hex"]))
    assert (core.uuid, written(core), core.closing) == (b"", b"", False)


@whole_and_in_bytes
@vectors(NAME, of_kind("message"), fails=False)
def test_messages_reach_their_targets_unchanged(vector: Vector, piece: int) -> None:
    fields, raw = vector["fields"], unhex(vector["hex"])
    to, sender, payload = (unhex(fields[name]) for name in ("to", "from", "payload"))
    got, closes = sorted_out(vector, piece)
    everyone = to == bytes(16)
    assert not closes
    for uuid, data in got.items():
        assert data == (raw if uuid == to or (everyone and uuid != sender) else b"")
    assert encode_message(to, sender, payload) == raw
    assert list(decode_messages(raw)) == [(to, sender, payload)]


@whole_and_in_bytes
@vectors(NAME, is_answered("message"), fails=True)
def test_messages_are_refused(vector: Vector, piece: int) -> None:
    got, closes = sorted_out(vector, piece)
    code, must_close = code_of(vector)
    own = unhex(vector.get("uuid", PAIR[0]))
    # The bytes after a skipped message may be invalid as well.
    assert faults(got.pop(own))[0] == code
    assert closes or not must_close
    assert not any(got.values())


@whole_and_in_bytes
@vectors(NAME, is_incomplete("message"), fails=True)
def test_messages_are_waited_for(vector: Vector, piece: int) -> None:
    got, closes = sorted_out(vector, piece)
    assert (any(got.values()), closes) == (False, False)


@whole_and_in_bytes
@vectors(NAME, of_kind("stream"))
def test_streams_are_read(vector: Vector, piece: int) -> None:
    fields = vector["fields"]
    got, closes = sorted_out(vector, piece)
    passed_on = unhex(vector["hex"]).removesuffix(unhex(fields["rest"]))
    assert (got[unhex(PAIR[1])], closes) == (passed_on, False)


@whole_and_in_bytes
@vectors(NAME, of_kind("error"), fails=False)
def test_errors_are_read(vector: Vector, piece: int) -> None:
    fields, data = vector["fields"], unhex(vector["hex"])
    client = RelayClientConnection(unhex(fields["to"]), LIMITS, 0.0)
    for at in range(0, len(data), piece):
        client.receive_data(data[at : at + piece], 0.0)
    assert client.reports() == [RelayFault(fields["code"], fields["text"])]


@vectors(
    NAME, lambda vector: vector["kind"] == "error" and not vector.get("read_only"), fails=False
)
def test_errors_are_written(vector: Vector) -> None:
    fields = vector["fields"]
    raw = encode_error(unhex(fields["to"]), fields["code"], fields["text"])
    assert raw == unhex(vector["hex"])


@vectors(NAME, of_kind("error"), fails=True)
def test_a_malformed_error_is_rejected(vector: Vector) -> None:
    [(_, _, payload)] = decode_messages(unhex(vector["hex"]))
    with pytest.raises(RemoteProtocolError):
        decode_error(payload)


@whole_and_in_bytes
@vectors(NAME, of_kind("message"), fails=False)
def test_clients_read_their_own_messages(vector: Vector, piece: int) -> None:
    fields, data = vector["fields"], unhex(vector["hex"])
    to = unhex(fields["to"])
    everyone = to == bytes(16)
    client = RelayClientConnection(b"\x22" * 16 if everyone else to, LIMITS, 0.0)
    for at in range(0, len(data), piece):
        client.receive_data(data[at : at + piece], 0.0)
    expected = RelayMessage(unhex(fields["from"]), unhex(fields["payload"]), everyone)
    assert client.reports() == [expected]


@vectors(NAME, of_kind("exchange"))
def test_exchanges(vector: Vector) -> None:
    hall = Hall(limits=LIMITS)
    at: dict[str, RelayConnection] = {}
    waiting: dict[str, bytes] = {}
    for step in vector["steps"]:
        for name, core in at.items():
            waiting[name] = waiting.get(name, b"") + written(core, hall.now)
        if "from" in step:
            name = step["from"]
            if name not in at or at[name].closing:
                at[name], waiting[name] = hall.enter(), b""
            at[name].receive_data(unhex(step["hex"]), hall.now)
        elif "to" in step:
            name = step["to"]
            to, sender, payload = messages(waiting[name])[0]
            raw = encode_message(to, sender, payload)
            waiting[name] = waiting[name][len(raw) :]
            if "error" in step:
                assert (sender, decode_error(payload).code) == (b"\xff" * 16, step["error"])
            else:
                assert raw == unhex(step["hex"])
        elif "nothing" in step:
            assert waiting[step["nothing"]] == b""
        elif "ends" in step:
            at[step["ends"]].receive_eof(hall.now)
        else:
            core = at[step["closed"]]
            assert core.ended or core.wants_eof
    assert {step_name for step in vector["steps"] for step_name in step} <= {
        *("from", "to", "parts", "hex", "error", "nothing", "ends", "closed")
    }
