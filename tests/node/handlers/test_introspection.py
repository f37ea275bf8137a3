"""`parley.topics` returns the permitted names of the requesting peer with their types, and no
others.
"""

import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from parley import Call, NamedEvent, Node, Peer, Stream
from parley._lbm import keys
from parley._lbm.codec import Value, decode, encode_value
from parley._node.errors import CallRefused, ParleyError
from parley._node.federation.exports import Exports
from parley._node.handlers import introspection as catalogue
from parley._node.handlers.introspection import (
    LARGEST_ANSWER,
    LONGEST_DOC,
    MOST_OFFERS,
    OF_AN_ADDRESS,
)
from parley._node.protocol.codes import Supercategory
from parley._node.protocol.limits import Limits
from parley._node.remote.remote import Remote
from parley._node.testing import FakeClock
from tests.node.network import config, meeting

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[3]
Offers = list[dict[str, Any]]


@dataclass
class Order:
    """What somebody wants."""

    item: str
    count: int = 1
    picture: bytes = b""


class Receipt(BaseModel):
    """What became of an order."""

    number: int
    of: "Line"


class Line(BaseModel):
    """A line of it."""

    price: int


Receipt.model_rebuild()


async def asked(peer: Peer, data: Any = None) -> Offers:
    """Return everything that a node offers, over as many answers as necessary."""
    offers: Offers = []
    while True:
        answer: Any = await peer.call(catalogue.TOPICS_CALL, data, timeout=5)
        assert answer.keys() == {"offers", "more"}
        assert len(encode_value(answer["offers"])) <= LARGEST_ANSWER + 16
        offers += answer["offers"]
        if not answer["more"]:
            return offers
        last = offers[-1]
        after = [last["kind"], last["name"], last.get("namespace", "")]
        data = {**(data or {}), "after": after}


def names(offers: Offers) -> list[str]:
    return [f"{offer['kind']} {offer['name']}" for offer in offers]


def shop(node: Node) -> None:
    """Something of each kind."""

    @node.on_call("order.place", once=True)
    async def place(call: Call[Order]) -> Receipt:
        """Place an order.

        It is sent on the next day.
        """
        return Receipt(number=1, of=Line(price=call.data.count))

    @node.on_call("order.watch")
    async def watch(call: Call[str]) -> AsyncIterator[int]:
        yield 1

    @node.on("moved", namespace="cursor")
    async def moved(event: NamedEvent) -> None:
        """The cursor moved."""

    @node.on_stream("upload")
    async def upload(stream: Stream) -> None:
        """Takes a file."""

    prices = node.topic("prices", Order, keep=10, writers="friend")

    @prices.on_subscribe
    async def subscribing(request: object) -> None:
        """All prices, in euros."""


async def test_what_is_told_of_each_kind() -> None:
    async with meeting() as met:
        shop(met.server)
        met.server.offer_topics()
        offers = {name: offer for offer in await asked(met.peer) for name in names([offer])}
    own, place, watch = (
        offers[f"call {name}"] for name in ("parley.topics", "order.place", "order.watch")
    )
    assert "offers to you" in own["doc"]
    assert place["doc"] == "Place an order.\n\nIt is sent on the next day."
    assert place["once"] is True
    assert watch["items"] is True
    assert json.loads(watch["gives"]) == {"type": "integer"}
    takes, gives = json.loads(place["takes"]), json.loads(place["gives"])
    for schema in (takes, gives):
        Draft202012Validator.check_schema(schema)
    assert Draft202012Validator(takes).is_valid({"item": "a", "count": 2})
    assert not Draft202012Validator(takes).is_valid({"count": 2})
    assert takes["$defs"]["Order"]["properties"]["picture"]["format"] == "binary"
    assert Draft202012Validator(gives).is_valid({"number": 1, "of": {"price": 3}})
    assert not Draft202012Validator(gives).is_valid({"number": 1, "of": {"price": "3"}})
    assert offers["event moved"]["namespace"] == "cursor"
    assert offers["event moved"]["doc"] == "The cursor moved."
    assert offers["stream upload"] == {"kind": "stream", "name": "upload", "doc": "Takes a file."}
    prices = offers["topic prices"]
    assert (prices["doc"], prices["remembers"]) == ("All prices, in euros.", True)
    assert prices["gives"] == place["takes"]
    assert "writable" not in prices  # There are no friends.
    assert len(offers) == 6  # `publish:prices` is not included.


async def test_nothing_is_told_unless_it_is_offered() -> None:
    async with meeting() as met:
        shop(met.server)
        with pytest.raises(CallRefused) as refused:
            await asked(met.peer)
        assert refused.value.code == 1
        met.server.offer_topics(allow="friend")
        with pytest.raises(ParleyError):
            met.server.offer_topics()
        with pytest.raises(CallRefused) as refused:
            await asked(met.peer)
        assert refused.value.code == 20
        met.server.roles.assign(met.client.node_id, "friend")
        assert (await asked(met.peer))[-1]["writable"] is True


async def test_what_allow_would_not_grant_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    about: list[str] = []

    async def says_no(peer: Remote, name: str) -> bool:
        about.append(name)
        return False

    def fails(peer: Remote, name: str) -> bool:
        raise LookupError

    async def nothing(request: object) -> None: ...

    async with meeting() as met:
        node = met.server
        node.on_call("open")(nothing)
        node.on_call("closed", allow="friend")(nothing)
        node.on_call("admin.*", allow=says_no)(nothing)
        node.on_call("admin.open")(nothing)  # under the pattern all the same
        node.on_stream("closed", allow=fails)(nothing)
        node.on("closed", allow="friend")(nothing)
        node.topic("closed", allow="friend")
        node.topic("hidden")
        node.on_subscribe("hid*", allow="friend")(nothing)
        pair = {Supercategory.CLIENT_TO_SERVER}
        node.on_call("clients", supercategories=pair)(nothing)
        node.topic("clients", supercategories=pair)
        node.topic("their own")
        node.on_subscribe("their own", supercategories=pair)(nothing)
        node.offer_topics()
        assert names(await asked(met.peer)) == ["call open", "call parley.topics"]
        assert sorted(about) == ["admin.*", "admin.open"]
        assert not [line for line in caplog.messages if "not allowed to use" in line]
        node.roles.assign(met.client.node_id, "friend")
        assert "topic hidden" in names(await asked(met.peer))


async def test_through_a_tunnel_only_what_is_exported() -> None:
    async with meeting() as met:
        shop(met.server)
        met.server.offer_topics()
        met.server.handlers.exports.add(Exports(["parley.*", "prices"]))
        met.back.driver.path = (met.client.node_id,)
        assert names(await asked(met.peer)) == ["call parley.topics", "topic prices"]


async def test_one_answer_is_bounded_and_the_next_goes_on() -> None:
    def long(call: object) -> None: ...

    long.__doc__ = "é" * (LONGEST_DOC + 1)
    async with meeting() as met:
        for number in range(MOST_OFFERS + 44):
            met.server.on_call(f"n{number:03}")(long if number < 50 else lambda call: None)
        met.server.offer_topics()
        first: Any = await met.peer.call(catalogue.TOPICS_CALL, timeout=5)
        assert first["more"] is True
        assert len(first["offers"]) < 20  # 4 kB each
        assert len(first["offers"][0]["doc"]) == LONGEST_DOC
        brief: Any = await met.peer.call(catalogue.TOPICS_CALL, {"brief": True}, timeout=5)
        assert len(brief["offers"]) == MOST_OFFERS
        assert brief["more"] is True
        found = names(await asked(met.peer))
        assert found == [*(f"call n{n:03}" for n in range(MOST_OFFERS + 44)), "call parley.topics"]
        assert names(await asked(met.peer, {"brief": True})) == found
        assert names(await asked(met.peer, {"prefix": "n29"})) == found[290:300]


async def test_with_small_payloads_a_name_goes_alone_or_not_at_all() -> None:
    def long(call: object) -> None: ...

    long.__doc__ = "x" * LONGEST_DOC
    small = config(limits=Limits(max_payload=1_024))
    async with meeting(server=small) as met:
        met.server.on_call("a" * 600)(long)
        met.server.on_call("b")(long)
        met.server.offer_topics()
        offers = await asked(met.peer)
    assert offers[0] == {"kind": "call", "name": "b"}
    assert names(offers) == ["call b", "call parley.topics"]


@pytest.mark.parametrize(
    "data",
    [
        "all",
        {"prefix": 1},
        {"prefix": "x" * 1_025},
        {"brief": 1},
        {"after": "a"},
        {"after": [1, 2, 3]},
    ],
)
async def test_what_is_asked_wrongly_is_malformed(data: Value) -> None:
    async with meeting() as met:
        met.server.offer_topics()
        with pytest.raises(CallRefused) as refused:
            await met.peer.call(catalogue.TOPICS_CALL, data, timeout=5)
        assert refused.value.code == 23


async def test_answers_are_rationed_and_ask_no_rule_in_vain() -> None:
    clock, asked_about = FakeClock(), []

    def allow(peer: Remote, name: str) -> bool:
        asked_about.append(name)
        return True

    async with meeting(clock=clock) as met:
        met.server.offer_topics()
        for name in ("aa", "ab", "b"):
            met.server.on_call(name, allow=allow)(lambda call: None)
        met.server.topic("ac", writers=allow)
        some: Any = {"prefix": "a", "after": ["call", "aa", ""], "brief": True}
        for _ in range(int(OF_AN_ADDRESS.burst)):
            assert names(await asked(met.peer, some)) == ["call ab", "topic ac"]
        assert asked_about == ["ab"] * int(OF_AN_ADDRESS.burst)
        with pytest.raises(CallRefused) as refused:
            await asked(met.peer, some)
        assert refused.value.code == 19
        name, met.back.name = met.back.name, "192.0.2.1"  # another has its own
        assert await asked(met.peer, some)
        met.back.name = name
        clock.advance(OF_AN_ADDRESS.seconds)
        assert await asked(met.peer, some)
        with pytest.raises(CallRefused):
            await asked(met.peer, some)


async def test_the_example_of_the_protocol_is_what_a_node_says() -> None:
    text = (ROOT / "docs" / "protocol.md").read_text()
    text = text.split("### What a node offers\n", 1)[1].split("### Ping", 1)[0]
    call, result = (
        decode(bytes.fromhex("".join(found.split())))
        for found in re.findall(r"0007 03 0[15] ([0-9a-f\s]+)\n(?:Result|```)", text)
    )
    assert call[keys.TOPIC] == catalogue.TOPICS_CALL
    async with meeting() as met:
        met.server.offer_topics()
        met.server.on_call("other")(lambda call: None)
        met.server.topic("prices", float)
        answer = await met.peer.call(catalogue.TOPICS_CALL, call[keys.DATA], timeout=5)
    assert isinstance(answer, dict)
    assert result == {keys.CODE: 0, keys.DATA: answer}
