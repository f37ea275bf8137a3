"""The bus of another node over a link: stored events stay stored, consumers keep their identity,
and unknown outcomes are reported as unknown.
"""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from parley import Node, ParleyError
from parley._node.bus.bus import Bus
from parley._node.bus.config import BusConfig
from parley._node.bus.errors import (
    BusBusyError,
    BusClosedError,
    BusRefusedError,
    BusUnavailableError,
)
from parley._node.bus.event import BusEvent
from parley._node.bus.model import Trim
from parley._node.bus.remote import limits
from parley._node.bus.remote.authorisation import BusRequest
from parley._node.bus.remote.store import RemoteStore
from parley._node.errors import PeerClosedError
from parley._node.peer import link_store, reconnecting
from parley._node.peer.link import Link
from parley._node.peer.link_store import LinkStore
from tests.node.bus.remote.offered import everything, new
from tests.node.network import eventually, new_node, nothing_left, started
from tests.node.peer.servers import QUICK, Server, serving

pytestmark = pytest.mark.anyio

NAME, GROUP = "shop.ordered", "mailer"
PLACE = (NAME, GROUP, "c")


@dataclass
class Shop:
    """A server with a bus in a file, and a client with a link to it; `buses` are the server's, of
    each of its starts."""

    server: Server
    client: Node
    link: Link
    buses: list[Bus]

    @property
    def store(self) -> Any:
        """The store of the server that runs, for tests to change."""
        return self.buses[-1].store

    def cut_after_publishing(self) -> None:
        """Have the session end, without a word, when something was stored."""
        publish = self.store.publish

        async def cut(*arguments: Any, **options: Any) -> Any:
            answer = await publish(*arguments, **options)
            self.store.publish = publish
            assert self.server.node is not None
            for peer in self.server.node.peers:
                peer.live.lost("cut")
            return answer

        self.store.publish = cut

    async def restart(self) -> None:
        """Kill the server and start another one; returns when the link has a session with it."""
        sessions = self.link.sessions
        await self.server.kill()
        await self.server.start()
        await eventually(lambda: self.link.sessions > sessions)

    async def group(self) -> tuple[int | None, int, int]:
        """Lag, pending and redelivered."""
        (group,) = await self.buses[-1].groups(NAME)
        return group.lag, group.pending, group.redelivered


@asynccontextmanager
async def shop(
    directory: Path, allow: Callable[[BusRequest], bool] = everything, **settings: Any
) -> AsyncIterator[Shop]:
    buses: list[Bus] = []

    def offer(node: Node) -> None:
        buses.append(node.bus(f"sqlite:///{directory}/bus.db", allow=allow))

    async with (
        serving(offer, **settings) as server,
        new_node(**settings) as client,
        client.link(server.address, pauses=QUICK) as link,
    ):
        yield Shop(server, client, link, buses)


# Consumers.


async def test_a_consumer_goes_on_over_restarts(tmp_path: Path) -> None:
    """It continues with its pending and current events; each event is processed once."""
    seen: list[tuple[int, int]] = []
    async with shop(tmp_path) as on:
        bus = on.link.bus(BusConfig(consumer="c"))
        await bus.publish_many(NAME, [{"n": n} for n in range(20)])
        async with bus.consume(NAME, group=GROUP) as events:
            async for event in events:
                seen.append((event.data["n"], event.attempt))
                if len(seen) in (3, 4, 15):
                    await on.restart()
                if len(seen) == 20:
                    break
        assert seen == [(n, 1) for n in range(20)]
        assert (await on.group())[:2] == (0, 0)
        assert bus.counters.acknowledged == 20
        assert on.link.sessions == 4


async def test_a_consumer_waits_while_the_node_is_away(tmp_path: Path) -> None:
    async with (
        shop(tmp_path) as on,
        on.link.bus() as bus,
        bus.consume(NAME, group=GROUP) as events,
        anyio.create_task_group() as tasks,
    ):
        waiting = await started(tasks, lambda: anext(events))
        # The connection is awaited without success, more than once.
        bus.store.config = BusConfig(timeout=0.01)  # type: ignore[attr-defined]  # a LinkStore
        await on.server.stop()
        await eventually(lambda: bool(events.consumer and events.consumer._retry.failures >= 2))
        assert waiting == []
        bus.store.config = BusConfig()  # type: ignore[attr-defined]  # a LinkStore
        await on.server.start()
        await bus.publish(NAME, {"n": 1})
        await eventually(lambda: bool(waiting))
        assert isinstance(waiting[0], BusEvent)
        assert waiting[0].data == {"n": 1}


async def test_what_was_handed_out_and_never_came_is_handed_out_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is recognised by its attempt, and precedes new events."""
    read = RemoteStore.read

    async def lose(remote: RemoteStore, *arguments: Any) -> Any:
        found = await read(remote, *arguments)
        if found:
            monkeypatch.undo()
            remote._live.lost("an answer is lost")
            raise BusUnavailableError("lost")
        return found

    async with shop(tmp_path) as on:
        bus = on.link.bus()
        await bus.publish_many(NAME, [{"n": n} for n in range(3)])
        monkeypatch.setattr(RemoteStore, "read", lose)
        async with bus.consume(NAME, group=GROUP, batch=2) as events:
            seen = [(one.data["n"], one.attempt) for one in [await anext(events) for _ in range(3)]]
        assert seen == [(0, 2), (1, 2), (2, 1)]
        assert on.link.sessions == 2
        assert (await on.group())[:2] == (0, 0)


async def test_an_event_that_is_at_work_meanwhile_is_not_handed_out_twice(tmp_path: Path) -> None:
    seen: list[object] = []
    at_work, go_on = anyio.Event(), anyio.Event()
    async with shop(tmp_path) as on:
        bus = on.link.bus()

        @bus.handler(NAME, group=GROUP, concurrency=2)
        async def handle(event: BusEvent) -> None:
            seen.append((event.data["n"], event.attempt))
            if event.data["n"] == 0:
                at_work.set()
                await go_on.wait()

        await bus.publish(NAME, {"n": 0})
        await at_work.wait()
        await on.restart()
        await bus.publish(NAME, {"n": 1})
        await eventually(lambda: bus.counters.acknowledged == 1)
        assert await on.group() == (0, 1, 1)
        go_on.set()
        await eventually(lambda: bus.counters.acknowledged == 2)
        assert await on.group() == (0, 0, 1)
        assert seen == [(0, 1), (1, 1)]


async def test_a_word_on_an_event_of_an_earlier_session(tmp_path: Path) -> None:
    async with shop(tmp_path) as on:
        bus = on.link.bus()
        await bus.publish_many(NAME, [{"n": n} for n in range(4)])
        async with bus.consume(NAME, group=GROUP) as events:
            acked, refused, buried = [await anext(events) for _ in range(3)]
            buried.attempt = 5
            await on.restart()
            # The loop has acknowledged the first two; the first time counts.
            with pytest.raises(ParleyError, match=r"ack\(\) was called before"):
                await refused.nack()
            await acked.ack()
            await buried.nack(reason="no")
            assert (await anext(events)).data == {"n": 3}
        assert (await on.group())[:2] == (0, 0)
        (letter,) = await bus.dead_letters(NAME)
        assert (letter.data, letter.group) == ({"n": 2}, GROUP)


async def test_what_others_took_meanwhile_is_theirs(tmp_path: Path) -> None:
    """A consumer that kept an event too long is no longer accepted."""
    async with shop(tmp_path) as on:
        bus = on.link.bus()
        await bus.publish(NAME, {"n": 0})
        async with bus.consume(NAME, group=GROUP) as events:
            event = await anext(events)
            await on.restart()
            (taken,) = await (await on.buses[-1].opened()).claim(NAME, GROUP, "other", 1, 0.0)
            assert taken.event.id == event.id
            events._current = None  # No event about it yet.
            with pytest.raises(ParleyError, match="no longer pending"):
                await event.ack()
        assert (await on.group())[1] == 1


async def test_a_refusal_ends_a_consumer(tmp_path: Path) -> None:
    allowed = True
    async with shop(tmp_path, allow=lambda request: allowed) as on:
        bus = on.link.bus()
        async with anyio.create_task_group() as tasks, bus.consume(NAME, group=GROUP) as events:
            waiting = await started(tasks, lambda: anext(events))
            allowed = False
            await on.restart()
            await eventually(lambda: bool(waiting))
            assert isinstance(waiting[0], BusRefusedError)


# Publishing.


@pytest.mark.parametrize("key", [None, "k"])
async def test_publishing_as_a_session_ends(tmp_path: Path, key: str | None) -> None:
    async with shop(tmp_path) as on:
        bus = on.link.bus()
        await bus.publish(NAME, {"n": 0})
        on.cut_after_publishing()
        if key is None:
            with pytest.raises(BusUnavailableError, match="the connection ended"):
                await bus.publish(NAME, {"n": 1})
        else:
            await bus.publish(NAME, {"n": 1}, idempotency_key=key)
        assert [event.data["n"] async for event in bus.history(NAME)] == [0, 1]


async def test_what_is_asked_waits_for_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shop(tmp_path) as on:
        await on.server.stop()
        async with (
            on.link.bus(BusConfig(timeout=0.05)) as hasty,
            on.link.bus() as bus,
            anyio.create_task_group() as tasks,
        ):
            with pytest.raises(BusUnavailableError, match=r"no connection in 0.05 s: cannot reach"):
                await hasty.publish(NAME, {})
            with pytest.raises(BusUnavailableError):
                await hasty.publish(NAME, {}, idempotency_key="k", timeout=0.0)
            waiting = await started(tasks, lambda: bus.publish(NAME, {"n": 1}))
            monkeypatch.setattr(reconnecting, "MOST_WAITING", 1)
            with pytest.raises(BusBusyError, match="1 requests are already waiting"):
                await bus.streams()
            closed = on.link.bus()
            monkeypatch.setattr(reconnecting, "MOST_WAITING", 2)
            ends = await started(tasks, closed.streams)
            await closed.aclose()
            await eventually(lambda: bool(ends))
            assert isinstance(ends[0], BusClosedError)
            await on.server.start()
        assert [event.id async for event in on.link.bus().history(NAME)] == waiting


# Looking, and keeping order.


async def test_whoever_follows_goes_on(tmp_path: Path) -> None:
    async with shop(tmp_path) as on:
        bus = on.link.bus()
        await bus.publish(NAME, {"n": 0})
        history = bus.history(NAME, follow=True)
        assert (await anext(history)).data == {"n": 0}
        await on.restart()
        await bus.publish(NAME, {"n": 1})
        assert (await anext(history)).data == {"n": 1}


async def test_every_method_is_as_the_store_itself(tmp_path: Path) -> None:
    async with shop(tmp_path) as on:
        store, own = LinkStore(on.link, BusConfig()), await on.buses[-1].opened()
        await store.open(on.client.backend)
        ids = [
            one.id for one in await store.publish([new(n, NAME) for n in range(4)], durable=True)
        ]
        await store.join(*PLACE, "0-0")
        handed = await store.read(*PLACE, 4, 0.0)
        assert [one.event.id for one in handed] == ids
        await store.touch(*PLACE, ids)
        assert await store.recover_pending(*PLACE, 4) == []
        assert await store.ack(NAME, GROUP, ids[:1]) == 1
        await store.release(*PLACE, ids[1:2])
        assert await store.nack(*PLACE, ids[2], 0.0, "no") is True
        assert [one.event.id for one in await store.claim(*PLACE, 4, 60.0)] == ids[1:3]
        assert await store.bury(*PLACE, ids[3], "no") is not None
        assert await store.streams() == await own.streams()
        assert await store.groups(NAME) == await own.groups(NAME)
        assert [one.name for one in await store.consumers(NAME, GROUP)] == [
            f"{on.client.node_id}/c"
        ]
        assert len(await store.pending(NAME, GROUP, 9, "0-0")) == 2
        assert len(await store.history(NAME, "0-0", None, 9, 0.0)) == 4
        await store.rewind(NAME, GROUP, "$")
        assert await store.redeliver(NAME, GROUP, ids[3:]) == ids[3:]
        assert await store.drop(NAME, ids[:1]) == 1
        assert await store.trim(NAME, Trim(max_length=1)) == 2
        assert await store.remove_consumers(NAME, GROUP, 0.0) == [f"{on.client.node_id}/c"]
        assert await store.remove_group(NAME, GROUP) is True
        await store.aclose()
        with pytest.raises(BusClosedError):
            await store.streams()


# Limits.


async def test_of_consumers_there_is_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CONSUMERS", 2)
    async with shop(tmp_path) as on:
        store = LinkStore(on.link, BusConfig())
        for _ in range(2):
            for consumer in "ab":
                await store.join(NAME, GROUP, consumer, "0-0")
        with pytest.raises(BusBusyError, match="2 consumers already"):
            await store.join(NAME, GROUP, "c", "0-0")


async def test_so_much_waits_here_and_the_rest_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_store, "AT_ONCE", 2)
    monkeypatch.setattr(link_store, "MOST_AGAIN", 2)
    async with shop(tmp_path) as on:
        store = LinkStore(on.link, BusConfig())
        await store.publish([new(n, NAME) for n in range(8)], durable=True)
        await store.join(*PLACE, "0-0")
        # As if six had been handed out, of which only the last one came.
        handed = await store.read(*PLACE, 6, 0.0)
        seat = store._seats[PLACE]
        seat.held = {handed[-1].event.id: None}
        await on.restart()
        assert await store.ack(NAME, GROUP, [handed[-1].event.id]) == 0
        assert len(seat.again) == 2
        again: list[str] = []
        while found := await store.claim(*PLACE, 1, 60.0):
            again += [one.event.id for one in found]
        assert again == [one.event.id for one in handed]
        assert len(await store.read(*PLACE, 6, 0.0)) == 2
        # A consumer that joins again doesn't get the events that waited for its predecessor.
        await on.restart()
        await store.touch(*PLACE, again)
        await store.join(*PLACE, "0-0")
        assert not seat.held


# The end.


@pytest.mark.parametrize("up", [True, False])
@pytest.mark.parametrize("how", ["left", "node ends", "cancelled"])
async def test_a_bus_ends_with_its_link(
    tmp_path: Path, how: str, up: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)  # a record would hold the peer that it names

    async def end(on: Shop, bus: Bus) -> None:
        if how == "left":
            await on.link.aclose()
        else:
            await on.client.aclose()
        assert on.link.is_over
        await eventually(lambda: bus.is_closed)
        with pytest.raises(BusClosedError):
            await bus.publish(NAME, {})
        with pytest.raises(PeerClosedError):
            on.link.bus()
        if up:  # Pending events were released.
            assert await on.group() == (1, 2, 0)

    async def hold() -> None:
        with anyio.CancelScope() as scope:
            async with shop(tmp_path) as on:
                bus = on.link.bus()
                await bus.publish_many(NAME, [{"n": n} for n in range(3)])
                events = bus.consume(NAME, group=GROUP, batch=2)
                await events.__aenter__()
                await anext(events)
                if not up:
                    await on.server.kill()
                    await eventually(lambda: not on.link.is_up)
                if how == "cancelled":
                    scope.cancel()
                    await anyio.lowlevel.checkpoint()
                else:
                    await end(on, bus)

    with nothing_left():
        await hold()


async def test_handlers_end_with_their_link(tmp_path: Path) -> None:
    began = anyio.Event()
    ended = anyio.Event()
    async with shop(tmp_path) as on:
        bus = on.link.bus()

        @bus.handler(NAME, group=GROUP)
        async def handle(event: BusEvent) -> None:
            began.set()
            try:
                await anyio.sleep_forever()
            finally:
                ended.set()

        await bus.publish(NAME, {"n": 1})
        await began.wait()
        assert bus.counters.delivered == 1
        await on.link.aclose()
        await ended.wait()
        assert bus.is_closed
