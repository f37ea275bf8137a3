"""`parley topics` against a real server in this process, and with invalid responses."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from parley import Call
from parley._node.cli.topics import (
    LONGEST,
    MOST_OFFERS,
    TOPICS_CALL,
    Offer,
    fetch_offers,
    fields_of,
    offer_lines,
    schema_document,
    type_name,
)
from parley._node.errors import CallRefused, ParleyError
from tests.node.cli.conftest import Parley, said
from tests.node.network import meeting
from tests.sweep import sweep

ORDER = {
    "$ref": "#/$defs/Order",
    "$defs": {
        "Order": {
            "title": "Order",
            "description": "What somebody wants.",
            "type": "object",
            "properties": {"item": {"type": "string"}, "count": {"type": "integer"}},
            "required": ["item"],
        }
    },
}


def test_what_a_server_offers(parley: Parley, server: str) -> None:
    done = parley("topics", server, "parley.")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "Calls",
        "  parley.echo",
        "      Returns the data of the call.",
        "  parley.info",
        "      Describes this node, and the caller as this node sees it.",
        "  parley.topics",
        "      What this node offers to you, with its types: calls, events, streams and topics.",
        "Topics",
        "  parley.clock",
        "Named events",
        "  parley.echo",
        "      Replies with the payload of the event.",
    ]
    done = parley("topics", server, "nothing begins with this")
    assert (done.code, done.out) == (0, "the node offers you no calls, topics or streams\n")


def test_json(parley: Parley, server: str) -> None:
    done = parley("topics", server, "parley.e", "--json")
    call, event = said(done, "offer")
    assert (call["kind"], call["name"], call["once"]) == ("call", "parley.echo", False)
    assert (event["kind"], event["namespace"]) == ("event", None)
    assert done.last == {"event": "done", "node_id": server.partition("#")[2], "count": 2}
    assert parley("topics", server, "--json", "--schema").code == 2
    assert parley("topics", server, "--timeout", "nan").code == 2


def test_a_schema_is_one_document(parley: Parley, server: str) -> None:
    done = parley("topics", server, "--schema")
    assert done.code == 0
    Draft202012Validator.check_schema(json.loads(done.out))


def test_each_schema_of_the_document_finds_what_it_refers_to() -> None:
    offers = [
        Offer(kind="call", name="place", doc="Place an order.", takes=ORDER, gives=ORDER),
        Offer(kind="event", name="moved", namespace="cursor", takes={"type": "integer"}),
    ]
    document = schema_document(offers, None)
    Draft202012Validator.check_schema(document)
    assert list(document["$defs"]) == [
        "call/place/takes",
        "call/place/gives",
        "event/cursor/moved/takes",
    ]
    placing = Draft202012Validator({**document, "$ref": "parley:call/place/takes"})
    assert placing.is_valid({"item": "tea"})
    assert not placing.is_valid({"count": 1})


def test_people_see_kinds_types_and_what_is_said_of_them() -> None:
    offers = [
        Offer(
            kind="call",
            name="place",
            doc="Place it.\n\n\x1b[2JNow.",
            takes=ORDER,
            gives={"type": "integer"},
            flags=("items", "once"),
        ),
        Offer(kind="event", name="moved", namespace="cursor"),
        Offer(kind="topic", name="prices", gives={"type": "number"}, flags=("writable",)),
        Offer(kind="\x07new", name="thing"),
    ]
    assert list(offer_lines(offers)) == [
        "Calls",
        "  place (Order) -> integer  [in items, supports once]",
        "      Place it.",
        "",
        "      \\x1b[2JNow.",
        "Topics",
        "  prices: number  [accepts notes]",
        "Named events",
        "  cursor/moved",
        "\\x07new",
        "  thing",
        "Types",
        "  Order {item: text, count?: integer}",
        "      What somebody wants.",
    ]


@pytest.mark.anyio
@pytest.mark.parametrize(
    "answer",
    [
        None,
        {"offers": []},
        {"offers": {}, "more": False},
        {"offers": [1], "more": False},
        {"offers": [{"kind": "call"}], "more": False},
    ],
)
async def test_an_answer_that_is_none(anyio_backend: str, answer: Any) -> None:
    async with meeting() as met:
        met.server.on_call(TOPICS_CALL)(lambda call: answer)
        with pytest.raises(ParleyError, match=TOPICS_CALL):
            await fetch_offers(met.peer, timeout=5)


@pytest.mark.anyio
async def test_a_node_that_does_not_tell(anyio_backend: str) -> None:
    async with meeting() as met:
        with pytest.raises(CallRefused) as refused:
            await fetch_offers(met.peer, timeout=5)
    assert refused.value.code == 1
    assert refused.value.data == (
        f"cannot list the topics of {met.peer}: it does not publish the list; its program can "
        "enable it with node.offer_topics()"
    )


def endless(size: int) -> Callable[[Call], Any]:
    """Answers that never end."""
    page = [{"kind": "call", "name": "a", "takes": "{", "gives": "[1]", "doc": 7}] * size
    return lambda call: {"offers": page, "more": True}


@pytest.mark.anyio
@pytest.mark.parametrize("size", [1, 1_000])
async def test_a_node_that_does_not_stop_telling(anyio_backend: str, size: int) -> None:
    async with meeting() as met:
        met.server.on_call(TOPICS_CALL)(endless(size))
        with pytest.raises(ParleyError, match="give a PREFIX"):
            await fetch_offers(met.peer, timeout=5)


@pytest.mark.anyio
async def test_what_is_no_schema_is_left_out(anyio_backend: str) -> None:
    async with meeting() as met:
        answer = {"offers": endless(1)(None)["offers"], ("more"): False}  # type: ignore[arg-type]  # unread
        met.server.on_call(TOPICS_CALL)(lambda call: answer)
        assert await fetch_offers(met.peer, timeout=5) == [Offer(kind="call", name="a")]
    assert MOST_OFFERS > 1_000


TEXT = {"type": "string"}


@sweep(
    ("schema", "words"),
    [
        (TEXT, "text"),
        ({"type": "string", "format": "binary"}, "bytes"),
        ({"type": "string", "format": "date-time"}, "date-time"),
        ({"$ref": "#/$defs/Order"}, "Order"),
        ({"title": "Order", "type": "object", "properties": {}}, "Order"),
        ({"type": "array", "items": TEXT}, "[text]"),
        ({"type": "array", "prefixItems": [TEXT, {"type": "null"}]}, "[text, null]"),
        ({"type": "object", "additionalProperties": TEXT}, "{text}"),
        ({"anyOf": [TEXT, {"type": "null"}, TEXT]}, "text or null"),
        ({"enum": ["a", 1]}, "'a' or 1"),
        ({"const": 3}, "3"),
        ({"type": "boolean"}, "true or false"),
        ({"type": ["string", "null"]}, "anything"),
        ({}, "anything"),
        ([], "anything"),
        (None, "anything"),
    ],
)
def test_words(schema: Any, words: str) -> None:
    assert type_name(schema) == words


def test_they_have_an_end() -> None:
    schema: Any = TEXT
    for _ in range(200):
        schema = {"type": "array", "items": schema}
    assert type_name(schema) == "[[[[..]]]]"
    long = type_name({"$ref": "x" * 1_000})
    assert (len(long), long[-2:]) == (LONGEST, "..")


def test_fields_of_what_is_no_model() -> None:
    assert list(fields_of({"$defs": {"A": 1, "B": {"enum": [1]}, "C": {"properties": 2}}})) == [
        ("B", "1", ""),
        ("C", "anything", ""),
    ]
    assert list(fields_of({"$defs": []})) == list(fields_of(None)) == []
