"""Topics that keep the newest note of each key, end to end."""

from dataclasses import dataclass
from typing import Any

import pytest

from parley import Node, Topic
from parley._node.errors import CallRefused, ConfigError, MalformedDataError
from parley._node.peer.subscription import Subscription
from parley._node.protocol.codes import ResultCode
from parley._node.testing import ConnectedNodes
from tests.node.network import PATIENCE, new_node
from tests.node.peer.servers import QUICK, serving

pytestmark = pytest.mark.anyio


@dataclass
class Price:
    """A note of a typed topic."""

    item: str
    price: int


async def publish(topic: Topic[Any], items: str) -> None:
    """Publish a note for each item, with the number that it gets."""
    for item in items:
        assert topic.position is not None
        await topic.publish({"item": item, "n": topic.position.number + 1})


async def take(sub: Subscription[Any], count: int) -> list[str]:
    """So many notes: item and number."""
    notes = [await anext(sub) for _ in range(count)]
    return [f"{note['item']}{note['n']}" for note in notes]


async def test_a_new_subscriber_gets_one_note_of_each_key(met: ConnectedNodes) -> None:
    topic = met.server.topic("x", keep_last_by="item")
    for _ in range(100):
        await publish(topic, "abc")
    assert topic.kept == 3
    async with met.peer.subscribe("x") as sub:
        await publish(topic, "a")
        assert await take(sub, 4) == ["a298", "b299", "c300", "a301"]
        assert (sub.number, sub.gaps, sub.replaced, sub.dropped) == (301, 0, 297, 0)
    assert sub.position == topic.position


async def test_after_a_position_come_the_keys_that_changed_since(met: ConnectedNodes) -> None:
    topic = met.server.topic("x", keep_last_by=lambda note: note["item"])
    await publish(topic, "abc")
    async with met.peer.subscribe("x") as sub:
        assert await take(sub, 2) == ["a1", "b2"]  # and c was not read
    await publish(topic, "aaba")
    async with met.peer.subscribe("x", after=sub.position) as again:
        assert again.recovered
        assert await take(again, 3) == ["c3", "b6", "a7"]
        assert (again.gaps, again.replaced) == (0, 2)
    async with met.peer.subscribe("x", after=again.position) as nothing_missed:
        assert nothing_missed.recovered
        await publish(topic, "b")
        assert await take(nothing_missed, 1) == ["b8"]
        assert (nothing_missed.gaps, nothing_missed.replaced) == (0, 0)


async def test_a_link_continues_with_the_keys_that_changed() -> None:
    def news(node: Node) -> None:
        node.topic("news", keep_last_by="item")

    async with (
        serving(news) as server,
        new_node() as node,
        node.link(server.address, pauses=QUICK) as link,
        link.subscribe("news", returns=dict[str, Any]) as sub,
    ):
        assert server.node is not None
        topic = server.node.topics["news"]
        await publish(topic, "ab")
        assert [(await anext(sub))["item"] for _ in range(2)] == ["a", "b"]
        session = await sub.ready(PATIENCE)
        await session.close()
        await topic.until(lambda: not topic.subscribers)
        await publish(topic, "abaaa")
        # It may be subscribed again before they are published.
        newest: dict[str, int] = {}
        while newest != {"a": 7, "b": 4}:
            note = await anext(sub)
            newest[note["item"]] = note["n"]
        assert (sub.gaps, sub.recovered) == (0, True)


async def test_keys_are_told_apart_by_their_encoding(met: ConnectedNodes) -> None:
    topic = met.server.topic("x", keep_last_by="key")
    for key in (1, 1.0, True, "1", None, [1], {"a": 1}, 1):
        await topic.publish({"key": key})
    assert topic.kept == 7


async def test_a_note_without_a_key_is_not_published(met: ConnectedNodes) -> None:
    def key(note: Any) -> Any:
        if note == "exit":
            raise SystemExit
        return note["item"] if note["item"] != "odd" else object()

    named = met.server.topic("named", keep_last_by="item")
    function = met.server.topic("function", keep_last_by=key)
    wrong: dict[Topic[Any], list[Any]] = {
        named: [{}, 1, None],
        function: [{}, "exit", {"item": "odd"}],
    }
    for topic, notes in wrong.items():
        for note in notes:
            with pytest.raises(MalformedDataError, match="keep_last_by= of topic"):
                await topic.publish(note)
        assert (topic.kept, topic.counts[1]) == (0, 0)


async def test_writers_of_notes_without_a_key_are_refused(met: ConnectedNodes) -> None:
    met.server.topic("x", keep_last_by="item", writers=lambda peer, name: True)
    assert await met.peer.publish("x", {"item": "a"}) == 1
    with pytest.raises(CallRefused) as refused:
        await met.peer.publish("x", {"other": "a"})
    assert refused.value.code == ResultCode.MALFORMED


async def test_typed_notes(met: ConnectedNodes) -> None:
    by_name = met.server.topic("name", Price, keep_last_by="item")
    by_function = met.server.topic("function", Price, keep_last_by=lambda note: note.item)
    for topic in (by_name, by_function):
        for price in range(5):
            await topic.publish(Price("tea", price))
        assert topic.kept == 1
        async with met.peer.subscribe(topic.name, returns=Price) as sub:
            assert await anext(sub) == Price("tea", 4)


async def test_a_state_is_told_where_keys_are_forgotten(met: ConnectedNodes) -> None:
    topic = met.server.topic("x", keep_last_by="item", keep=1, state=lambda: "state")
    await publish(topic, "a")
    position = topic.position
    await publish(topic, "aa")
    async with met.peer.subscribe("x", after=position) as sub:
        assert sub.data is None
        assert await take(sub, 1) == ["a3"]
    await publish(topic, "b")
    async with met.peer.subscribe("x", after=position) as anew:
        assert anew.data == "state"


async def later(note: Any) -> Any:
    """A key that is not there yet."""
    return note


@pytest.mark.parametrize("wrong", [1, [], lambda: 1, later])
def test_wrong_options(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="keep_last_by= of topic 'x'"):
        new_node().topic("x", keep_last_by=wrong)
