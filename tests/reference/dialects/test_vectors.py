"""The dialects' hand-written vectors and their reference, each held against the other."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.reference.dialects import named, relay, simproto
from tests.reference.dialects.named import NamedEvent
from tests.reference.dialects.reading import Wrong
from tests.reference.dialects.relay import RelayMessage
from tests.reference.dialects.simproto import Message
from tests.sweep import sweep
from tests.vectors.load import Vector, of_kind, read, select, unhex, vectors

FILES = ("simproto", "named_dialect", "event_relay")
Fields = dict[str, Any]


def simproto_fields(message: Message, answers: str) -> Fields:
    """Return the description that a vector gives of a message."""
    fields: Fields = {"type": message.type, "id": message.id}
    if message.type == "request":
        kind, topic, data = simproto.read_request(message.payload)
        return fields | {"kind": kind, "topic": topic, "data": data}
    if message.type == "response":
        meaning, data = simproto.read_response(answers, message.payload)
        return fields | {"meaning": meaning, "data": data}
    return fields | {"payload": message.payload}


def simproto_told(told: Fields) -> Fields:
    """The fields of a vector, as Python has them."""
    fields = told | {"id": int(told["id"])}
    fields |= {key: unhex(told[key]) for key in ("data", "payload") if key in told}
    if "topic_hex" in told:
        fields["topic"] = unhex(fields.pop("topic_hex"))
    elif "topic_repeated" in told:
        letter, times = fields.pop("topic_repeated")
        fields["topic"] = (letter * times).encode()
    elif "topic" in told:
        fields["topic"] = told["topic"].encode()
    return fields


def simproto_raw(told: Fields, answers: str) -> bytes:
    """The bytes of a vector's fields."""
    fields = simproto_told(told)
    payload = fields.get("payload", b"")
    if fields["type"] == "request":
        payload = simproto.request(fields["kind"], fields["topic"], fields["data"])
    elif fields["type"] == "response":
        payload = simproto.response(answers, fields["meaning"], fields["data"])
    return Message(fields["type"], fields["id"], payload).raw


def named_event(told: Fields) -> NamedEvent:
    """The event of a vector's fields."""
    texts = {}
    for key in ("name", "namespace"):
        letter, times = told.get(f"{key}_repeated", (told[key], 1))
        texts[key] = letter * times
    ref_id = None if told["ref_id"] is None else int(told["ref_id"])
    kind, data = told.get("type"), unhex(told["data"])
    return NamedEvent(int(told["id"]), texts["name"], data, ref_id, texts["namespace"], kind)


def relay_message(told: Fields) -> RelayMessage:
    """The message of a vector's fields."""
    if "code" in told:
        return relay.error(unhex(told["to"]), told["code"], told["text"])
    return RelayMessage(*(unhex(told[key]) for key in ("to", "from", "payload")))


def read_all(name: str, vector: Vector, data: bytes) -> Any:
    """Return the messages that the reference decodes from the bytes of a vector, and from no
    others.
    """
    limit = vector.get("limit", read(name)["limit"])
    rest = b""
    result: Any
    match name, vector["kind"]:
        case "simproto", _:
            message, rest = simproto.read_message(data, limit)
            result = simproto_fields(message, vector.get("answers", ""))
        case _, "event":
            result, rest = named.read_event(data, limit, typed=vector["flavour"] == "typed")
        case _, "tandem":
            result = dict(zip(("first", "second"), named.read_tandem(data), strict=True))
        case _, "formatted":
            result = dict(zip(("format", "payload"), named.read_formatted(data), strict=True))
        case "named_dialect", "error":
            result = dict(zip(("code", "text"), named.read_error_payload(data), strict=True))
        case _, "uuid":
            connected = [unhex(uuid) for uuid in vector.get("connected", [])]
            uuid, rest = relay.read_uuid(data, connected)
            result = {"uuid": uuid}
        case _:
            relayed, rest = relay.read_message(data, limit)
            result = relayed
            if vector["kind"] == "error":
                result = (relayed.to, relayed.sender, relayed.error)
            elif "uuid" in vector:
                connected = [unhex(uuid) for uuid in vector["connected"]]
                relay.check_route(relayed, unhex(vector["uuid"]), connected)
    assert not rest, "a vector is one message and no more"
    return result


def expected(name: str, vector: Vector) -> Any:
    """What read_all should give."""
    told = vector["fields"]
    match name, vector["kind"]:
        case "simproto", _:
            return simproto_told(told)
        case _, "event":
            return named_event(told)
        case "event_relay", "message":
            return relay_message(told)
        case "event_relay", "error":
            return unhex(told["to"]), relay.SERVER, (told["code"], told["text"])
        case "named_dialect", "error":
            return told
        case _, "formatted":
            return told | {"payload": unhex(told["payload"])}
    return {key: unhex(value) for key, value in told.items()}


def built(name: str, vector: Vector) -> bytes:
    """What the reference makes of a vector's fields."""
    told = vector["fields"]
    match name, vector["kind"]:
        case "simproto", _:
            return simproto_raw(told, vector.get("answers", ""))
        case _, "event" | "build":
            return named_event(told).raw
        case _, "tandem":
            return named.tandem(unhex(told["first"]), unhex(told["second"]))
        case _, "formatted":
            numbers = {format_name: number for number, format_name in named.FORMATS.items()}
            return bytes([numbers[told["format"]]]) + unhex(told["payload"])
        case "named_dialect", "error":
            return named.error_payload(told["code"], told["text"])
        case _, "uuid":
            return unhex(told["uuid"])
    return relay_message(told).raw


def one_message(vector: Vector) -> bool:
    """A vector of one message or payload."""
    return vector["kind"] not in ("exchange", "stream", "build")


def each(
    wanted: Callable[[Vector], bool], *, fails: bool | None = None, names: tuple[str, ...] = FILES
) -> Callable[[Callable[..., Any]], Any]:
    """Sweep over the arguments `name` and `vector`, over the files of these names."""
    cases = [(name, vector) for name in names for vector in select(name, wanted, fails=fails)]
    ids = [f"{name}: {vector['name']}" for name, vector in cases]
    return sweep(("name", "vector"), cases, ids=ids)


@each(one_message, fails=False)
def test_a_right_message_is_read_and_built(name: str, vector: Vector) -> None:
    assert read_all(name, vector, unhex(vector["hex"])) == expected(name, vector)
    if not vector.get("read_only"):
        assert built(name, vector).hex() == vector["hex"]


@each(one_message, fails=True)
def test_a_wrong_message_fails_as_the_vector_says(name: str, vector: Vector) -> None:
    with pytest.raises(Wrong) as caught:
        read_all(name, vector, unhex(vector["hex"]))
    assert caught.value.fails == vector["fails"]


@pytest.mark.parametrize("name", FILES)
def test_the_parts_are_the_fields_of_the_layout(name: str) -> None:
    layouts = read(name)["layouts"]
    for vector in read(name)["vectors"]:
        for written in [vector, *vector.get("steps", ())]:
            assert "".join(written.get("parts", ())) == written.get("hex", ""), vector["name"]
        if "parts" in vector and vector["kind"] != "stream" and "fails" not in vector:
            kind = vector["kind"]
            layout = layouts[vector["fields"]["type"] if name == "simproto" else kind]
            # What a reader ignores behind a payload is one part more.
            most = len(layout) + vector.get("read_only", False)
            assert len(layout) <= len(vector["parts"]) <= most, vector["name"]


@pytest.mark.parametrize("name", FILES)
def test_at_least_half_must_fail_and_names_are_unique(name: str) -> None:
    listed = read(name)["vectors"]
    assert 2 * sum("fails" in vector for vector in listed) >= len(listed)
    assert len({vector["name"] for vector in listed}) == len(listed)
    assert all(("fails" in vector) == ("why" in vector) for vector in listed)


@pytest.mark.parametrize("name", FILES)
def test_a_right_message_cut_anywhere_is_incomplete(name: str) -> None:
    whole = {"simproto": "message", "named_dialect": "event", "event_relay": "message"}[name]
    for vector in read(name)["vectors"]:
        if "fails" in vector or vector["kind"] != whole or len(vector["hex"]) > 200:
            continue
        data = unhex(vector["hex"])
        for size in range(len(data)):
            with pytest.raises(Wrong, match=r"^incomplete"):
                read_all(name, vector, data[:size])


@each(of_kind("build"), names=FILES[:2])
def test_what_one_may_not_send_is_refused(name: str, vector: Vector) -> None:
    with pytest.raises(Wrong) as caught:
        built(name, vector)
    assert caught.value.fails == vector["fails"] == "local"


@each(of_kind("stream"))
def test_messages_in_one_piece_are_told_apart(name: str, vector: Vector) -> None:
    data, told = unhex(vector["hex"]), vector["fields"]
    limit = read(name)["limit"]
    for fields in told.get("messages", told.get("events")):
        if name == "simproto":
            message, data = simproto.read_message(data, limit)
            assert simproto_fields(message, "") == simproto_told(fields)
        elif name == "named_dialect":
            event, data = named.read_event(data, limit, typed=False)
            assert event == named_event(fields)
        else:
            relayed, data = relay.read_message(data, limit)
            assert relayed == relay_message(fields)
    assert data == unhex(told["rest"])


@vectors("simproto", of_kind("exchange"), fails=False)
def test_the_steps_of_a_simproto_exchange_are_dialogs(vector: Vector) -> None:
    asked: dict[int, str] = {}
    for step in vector["steps"]:
        message, rest = simproto.read_message(unhex(step["hex"]), read("simproto")["limit"])
        assert not rest
        if step["from"] == "client":
            kind = message.type
            if kind == "request":
                kind = simproto.read_request(message.payload)[0]
            asked[message.id] = kind
        elif message.type == "response":
            simproto.read_response(asked.pop(message.id), message.payload)
        else:
            assert (message.type, asked.pop(message.id)) == ("pong", "ping")
    assert not asked


@vectors("event_relay", of_kind("exchange"))
def test_what_the_relay_passes_on_was_sent_to_it(vector: Vector) -> None:
    sent = "".join(step["hex"] for step in vector["steps"] if "from" in step)
    for step in vector["steps"]:
        assert "to" not in step or "error" in step or step["hex"] in sent


def test_the_reference_shares_no_code_with_the_project() -> None:
    files = [path for path in Path(__file__).parent.glob("*.py") if path.name[:5] != "test_"]
    assert len(files) == 8
    for path in files:
        for statement in ast.walk(ast.parse(path.read_text())):
            if isinstance(statement, ast.Import):
                pytest.fail(f"{path.name}: import {statement.names[0].name}")
            if isinstance(statement, ast.ImportFrom):
                module = str(statement.module)
                allowed = ("struct", "socket", "typing", "dataclasses", "collections.abc")
                assert module in allowed or module.startswith("tests.reference.dialects"), path
