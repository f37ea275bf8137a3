"""Tests of node/cli/sub.py over sessions that end while the publisher runs: reports about missing
notes.

test_pub.py tests real processes.
"""

import json

import anyio
import pytest

from parley import Node
from parley._node.cli.link import LinkReporter
from parley._node.cli.output import Output
from parley._node.cli.sub import Notes
from parley._node.errors import PeerClosedError
from parley._node.handlers.topic import Topic
from parley._node.protocol.codes import CloseCode
from tests.inspection import parts_of
from tests.node.network import eventually, new_node, settled
from tests.node.peer.servers import QUICK, Server, serving

pytestmark = pytest.mark.anyio


class Press:
    """Publishes numbers on `remembers`, which keeps two, and on `forgets`."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}

    def offer(self, node: Node) -> None:
        """The topics of one start."""
        self.topics = {
            "remembers": node.topic("remembers", keep=2),
            "forgets": node.topic("forgets"),
        }

    async def interrupt(self, server: Server, *notes: int, topic: str) -> None:
        """End all sessions, and publish before anybody is back."""
        assert server.node is not None
        for peer in list(server.node.peers):
            peer.core.abort(peer.backend.now(), CloseCode.OVERLOADED, "for a test")
            peer.driver.step()
        for note in notes:
            await self.topics[topic].publish(note)


async def interrupted(topic: str, *, as_json: bool) -> Notes:
    """Print the notes of a topic over four sessions.

    Between them the publisher publishes no notes, then as many as the topic keeps, then more.
    """
    press = Press()
    async with (
        serving(press.offer) as server,
        new_node() as node,
        node.link(server.address, pauses=QUICK) as link,
        link.subscribe(topic) as subscription,
        anyio.create_task_group() as tasks,
    ):
        notes = Notes(Output(as_json), topic)
        tasks.start_soon(notes.show, subscription, None)
        await press.topics[topic].publish(1)
        await eventually(lambda: notes.shown == 1)
        await press.interrupt(server, topic=topic)
        await eventually(lambda: subscription.sessions == 2)
        await press.interrupt(server, 2, 3, topic=topic)
        await eventually(lambda: subscription.sessions == 3)
        await press.interrupt(server, 4, 5, 6, 7, topic=topic)
        await eventually(lambda: subscription.sessions == 4)
        assert not notes.are_complete
        await press.topics[topic].finish()
        await eventually(lambda: notes.are_complete)
    return notes


async def test_json_of_a_topic_that_remembers(
    anyio_backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = await interrupted("remembers", as_json=True)
    out, err = capsys.readouterr()
    assert err == ""
    told = [json.loads(line) for line in out.splitlines()]
    assert [(line["event"], line.get("data", line.get("count"))) for line in told] == [
        ("subscribed", None),
        ("note", 1),
        *[("subscribed", None)] * 2,
        *[("note", 2), ("note", 3)],
        ("subscribed", None),
        *[("lost", 2), ("note", 6), ("note", 7)],
    ]
    again = [line["recovered"] for line in told if "recovered" in line]
    assert again == [True, True, False]
    assert (notes.shown, notes.lost) == (5, 2)


async def test_lines_of_a_topic_that_remembers(
    anyio_backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await interrupted("remembers", as_json=False)
    out, err = capsys.readouterr()
    assert out == "1\n2\n3\n6\n7\n"
    assert err.splitlines() == [
        *["resubscribed: no note is missing"] * 2,
        "resubscribed: some notes may be missing",
        "2 notes lost: this command reads too slowly",
    ]


async def test_a_topic_that_does_not_remember(
    anyio_backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await interrupted("forgets", as_json=False)
    out, err = capsys.readouterr()
    assert out == "1\n"
    assert err == "resubscribed: some notes may be missing\n" * 3
    await interrupted("forgets", as_json=True)
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["recovered"] for line in told if "recovered" in line] == [None] * 3


async def test_what_has_arrived_is_printed_before_it_gives_up(
    anyio_backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    press = Press()
    async with (
        serving(press.offer) as server,
        new_node() as node,
        node.link(server.address, pauses=QUICK) as link,
        link.subscribe("forgets") as subscription,
    ):
        notes = Notes(Output(False), "forgets")
        peer = await link.ready()
        news = LinkReporter(link, notes.report, patience=0.0, drained=notes.drained)

        async def follow() -> None:
            with pytest.raises(PeerClosedError):
                await news.follow(peer)
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            for note in range(5):
                await press.topics["forgets"].publish(note)
                await eventually(lambda: len(parts_of(subscription)[0].inbox) > note)  # noqa: B023  # called before the next
            await press.interrupt(server, topic="forgets")
            tasks.start_soon(follow)
            await eventually(lambda: not peer.is_open)
            await settled()
            tasks.start_soon(notes.show, subscription, None)
        assert notes.shown == 5
    assert capsys.readouterr().out == "0\n1\n2\n3\n4\n"
