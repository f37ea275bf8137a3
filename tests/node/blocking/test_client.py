"""Tests of synchronous peers: results, and that closing them frees everything."""

import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, assert_type

import anyio
import anyio.lowlevel
import pytest

from parley import Call, CallRefused, Link, NamedEvent, Node, NodeId, Peer
from parley._node.blocking.background import LoopThread
from parley._node.protocol.codes import CloseCode
from parley.blocking import BlockingAnswer, BlockingPeer, BlockingSubscription, connect, link
from parley.errors import (
    MalformedDataError,
    NotTrustedError,
    ParleyError,
    PeerClosedError,
    UnreachableError,
)
from tests.node.network import PATIENCE, new_node, nothing_left


@dataclass
class Price:
    name: str
    cents: int


class Shop:
    """A node in another thread, its address, and the result of a handler that waits."""

    def __init__(self, background: LoopThread, node: Node) -> None:
        self.background = background
        self.node = node
        self.address = background.run(node.listen, "tcp://127.0.0.1:0")
        self.begun = threading.Event()
        self.cancelled = threading.Event()
        self.events: list[object] = []

    def until_subscribed(self) -> None:
        topic = self.node.topics["prices"]
        self.background.run(topic.until, lambda: len(topic.subscribers) == 1)

    def publish(self, *notes: object) -> None:
        async def publish() -> None:
            for note in notes:
                await self.node.topics["prices"].publish(note)

        self.background.run(publish)


@pytest.fixture
def shop() -> Iterator[Shop]:
    with nothing_left():
        threads = set(threading.enumerate())
        node = new_node()
        background = LoopThread(node)
        shop = Shop(background, node)
        offer(shop)
        yield shop
        background.close()
        assert set(threading.enumerate()) - threads == set()


def offer(shop: Shop) -> None:
    node = shop.node
    node.topic("prices")

    @node.on_call("price")
    async def price(call: Call[str]) -> Price:
        return Price(call.data, 120)

    @node.on_call("menu")
    async def menu(call: Call) -> AsyncIterator[Price]:
        for name in ("tea", "cake", "water"):
            yield Price(name, len(name))

    @node.on_call("wait")
    async def wait(call: Call) -> None:
        shop.begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            shop.cancelled.set()

    @node.on_call("interrupt")
    async def interrupt(call: Call) -> None:
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)
        await wait(call)

    @node.on("arrived")
    async def arrived(event: NamedEvent) -> str:
        shop.events.append(event.data)
        return "welcome"


def meet(shop: Shop) -> BlockingPeer:
    return connect(shop.address, node=new_node())


def test_calls(shop: Shop) -> None:
    with meet(shop) as peer:
        assert peer.node_id == shop.node.node_id
        assert peer.call("price", "tea") == {"name": "tea", "cents": 120}
        price = peer.call("price", "tea", returns=Price)
        assert_type(price, Price)
        assert price == Price("tea", 120)
        with pytest.raises(CallRefused, match="malformed"):
            peer.call("price", 5)
        with pytest.raises(TimeoutError):
            peer.call("wait", timeout=0.01)
        assert 0 < peer.ping() < PATIENCE
        assert peer.is_open


def test_an_answer_in_items(shop: Shop) -> None:
    with meet(shop) as peer:
        answer = peer.call_stream("menu", returns=Price)
        assert_type(answer, BlockingAnswer[Price])
        assert [item.cents for item in answer] == [3, 4, 5]
        with peer.call_stream("menu") as some:
            assert next(some) == {"name": "tea", "cents": 3}
        with pytest.raises(anyio.ClosedResourceError):
            next(some)
        with pytest.raises(MalformedDataError):
            next(peer.call_stream("menu", returns=int))


def test_notes(shop: Shop) -> None:
    with meet(shop) as peer, peer.subscribe("prices", returns=int) as sub:
        assert_type(sub, BlockingSubscription[int])
        with pytest.raises(TimeoutError):
            sub.get(timeout=0)
        shop.publish(*range(100), "a", 101)
        assert [sub.get(timeout=PATIENCE) for _ in range(100)] == list(range(100))
        with pytest.raises(MalformedDataError):
            next(sub)
        shop.background.run(shop.node.topics["prices"].finish)
        assert list(sub) == [101]
        with pytest.raises(anyio.EndOfStream):
            sub.get()
        assert (sub.dropped, sub.gaps, sub.number, sub.recovered) == (0, 0, 0, False)


def test_publishing(shop: Shop) -> None:
    shop.node.topic("room", keep=10, writers=lambda peer, name: True)
    with meet(shop) as peer, peer.subscribe("room") as sub:
        assert peer.publish("room", "hello", headers={"a": 1}) == 1
        assert sub.get(timeout=PATIENCE) == "hello"
    with link(shop.address) as linked:
        assert linked.publish("room", "again", once=True) == 2


def test_numbers_of_a_topic_that_remembers(shop: Shop) -> None:
    shop.node.topic("log", keep=10)
    with meet(shop) as peer, peer.subscribe("log") as sub:
        for note in ("a", "b", "c"):
            shop.background.run(shop.node.topics["log"].publish, note)
        numbers = []
        for _ in range(3):
            sub.get(timeout=PATIENCE)
            numbers.append(sub.number)
        assert numbers == [1, 2, 3]
        after = sub.position
        assert after is not None
        assert after.number == 3
        sub.close()
        shop.background.run(shop.node.topics["log"].publish, "d")
        with peer.subscribe("log", after=after) as later:
            assert later.get(timeout=PATIENCE) == "d"
            assert (later.number, later.recovered, later.gaps) == (4, True, 0)


def test_state_after_a_subscription(shop: Shop) -> None:
    with meet(shop) as peer:
        sub = peer.subscribe("prices")
        shop.until_subscribed()
        sub.close()
        sub.close()
        with peer.subscribe("prices"):  # the publisher has dropped the first
            shop.until_subscribed()
    sub.close()


def test_named_events_and_what_has_no_method(shop: Shop) -> None:
    with meet(shop) as peer:
        peer.emit("arrived", {"who": "ada"})
        reply = peer.run(lambda peer: peer.emit("arrived", "bob").reply())
        assert reply.data == "welcome"
        assert "bob" in shop.events


def test_an_interrupted_call_is_cancelled(shop: Shop) -> None:
    with meet(shop) as peer:
        with pytest.raises(KeyboardInterrupt):
            peer.call("interrupt")
        assert shop.cancelled.wait(PATIENCE)
        assert peer.call("price", "tea", returns=Price).cents == 120


def test_interrupted_reader_loses_no_notes(shop: Shop) -> None:
    with meet(shop) as peer, peer.subscribe("prices") as sub:
        main = threading.main_thread().ident
        assert main is not None
        threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            next(sub)
        shop.publish(1, 2)
        assert [next(sub), next(sub)] == [1, 2]


def test_leaving_by_an_interrupt_is_quick_and_clean(shop: Shop) -> None:
    with pytest.raises(KeyboardInterrupt):  # noqa: SIM117 - the inner one is left by it
        with meet(shop) as peer:
            peer.call("interrupt")
    assert shop.cancelled.wait(PATIENCE)
    with pytest.raises(ParleyError, match="it is closed"):
        peer.call("price", "tea")
    assert not peer.is_open


def test_several_threads(shop: Shop) -> None:
    with meet(shop) as peer, ThreadPoolExecutor(8) as threads:
        names = [f"item {number}" for number in range(64)]
        prices = threads.map(lambda name: peer.call("price", name, returns=Price), names)
        assert [price.name for price in prices] == names


def test_waiting_thread_gets_an_error_at_the_end(shop: Shop) -> None:
    with ThreadPoolExecutor(1) as threads, meet(shop) as peer:
        waiting = threads.submit(peer.call, "wait", timeout=None)
        assert shop.begun.wait(PATIENCE)
        peer.close()
        peer.close()
        with pytest.raises(PeerClosedError):
            waiting.result(PATIENCE)


def test_the_loop_s_own_thread_cannot_wait(shop: Shop) -> None:
    with meet(shop) as peer:

        async def wrong(_: object) -> None:
            peer.ping()

        with pytest.raises(ParleyError, match="cannot wait in the node's own thread"):
            peer.run(wrong)


def test_the_loop_s_own_thread_cannot_close(shop: Shop) -> None:
    with connect(shop.address, node=new_node()) as peer:

        async def close(_: object) -> None:
            peer.close()

        with pytest.raises(ParleyError, match="its own thread"):
            peer.run(close)
        assert peer.call("price", "tea", returns=Price) == Price("tea", 120)
    with pytest.raises(ParleyError, match="it is closed"):
        peer.call("price", "tea")


@pytest.mark.process
def test_a_process_that_was_forked_meanwhile_ends(shop: Shop) -> None:
    """A forked process must not wait for the missing thread, neither in a call nor at exit."""
    program = f"""
import os
import parley.blocking
from parley.errors import ParleyError
peer = parley.blocking.connect({shop.address!r})
child = os.fork()
if not child:
    try:
        peer.call("price", "tea")
    except ParleyError as error:
        print(error, flush=True)
else:
    assert os.waitpid(child, 0)[1] == 0
    print(peer.call("price", "tea"))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program],
        capture_output=True, text=True, timeout=PATIENCE * 3, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    forked, own = done.stdout.splitlines()
    assert forked.startswith("cannot use this node in process ")
    assert forked.endswith("which this one was forked from; open a node after the fork")
    assert own == "{'name': 'tea', 'cents': 120}"


def test_nothing_is_left_of_a_connection_that_was_not_made() -> None:
    threads = set(threading.enumerate())
    node_id = NodeId(bytes(32))
    with pytest.raises(UnreachableError):
        connect(f"tcp://127.0.0.1:1#{node_id}")
    with pytest.raises(ParleyError):
        connect("nonsense")
    assert set(threading.enumerate()) == threads


def test_a_node_of_another_id_is_not_connected_to() -> None:
    threads = set(threading.enumerate())
    node = new_node()
    background = LoopThread(node)
    place = background.run(node.listen, "tcp://127.0.0.1:0").partition("#")[0]
    with pytest.raises(NotTrustedError, match="is expected"):
        connect(f"{place}#{NodeId(bytes(32))}", node=new_node())
    background.close()
    assert set(threading.enumerate()) == threads


@pytest.mark.anyio
async def test_in_a_thread_whose_own_loop_runs(anyio_backend: str) -> None:
    """As in a notebook, whose event loop runs in the thread of the cells."""
    node = new_node()
    background = LoopThread(node)
    shop = Shop(background, node)
    offer(shop)
    with connect(shop.address, node=new_node()) as peer:
        assert peer.call("price", "tea", returns=Price) == Price("tea", 120)
    background.close()


def test_a_link(shop: Shop) -> None:
    with link(shop.address, node=new_node()) as kept:
        # The link may not have been up yet.
        assert kept.call("price", "tea", returns=Price) == Price("tea", 120)
        kept.ready(timeout=PATIENCE)
        assert kept.is_up
        with kept.subscribe("prices", returns=int) as sub:
            shop.publish(1)
            assert sub.get(timeout=PATIENCE) == 1
            drop = shop.node.peers[0].live.drop
            shop.background.run(gone, lambda: drop(CloseCode.GOING_AWAY))
            shop.until_subscribed()
            shop.publish(2)
            assert sub.get(timeout=PATIENCE) == 2
        assert kept.run(first_round_trip) > 0
        kept.emit("arrived", "eve")
        assert kept.run(lambda link: link.emit("arrived", "bob").reply()).data == "welcome"
        assert "eve" in shop.events
    with pytest.raises(ParleyError, match="it is closed"):
        kept.call("price", "tea")


async def gone(end: Callable[[], None]) -> None:
    end()


async def first_round_trip(kept: Link) -> float:
    return await (await kept.ready()).ping()


@pytest.mark.process
def test_exit_closes_open_connections(shop: Shop) -> None:
    program = f"""
import parley.blocking
peer = parley.blocking.connect({shop.address!r})
sub = peer.subscribe("prices")
print(peer.call("whoever calls"))
"""
    callers: list[Peer] = []

    @shop.node.on_call("whoever calls")
    async def remember(call: Call) -> str:
        assert isinstance(call.peer, Peer)
        callers.append(call.peer)
        return "welcome"

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True, text=True, timeout=PATIENCE * 3, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "welcome\n", "")
    ended = shop.background.run(callers.pop().closed)
    assert ended.code == CloseCode.GOING_AWAY


def test_an_interrupt_as_a_call_begins_cancels_it_too(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interrupt arrives when the call has started, but before the caller has its future."""
    with meet(shop) as peer:
        portal = peer._background._portal
        start = portal.start_task_soon

        def interrupted(function: Any, *arguments: Any) -> Any:
            monkeypatch.undo()
            start(function, *arguments)
            assert shop.begun.wait(PATIENCE)
            raise KeyboardInterrupt

        monkeypatch.setattr(portal, "start_task_soon", interrupted)
        with pytest.raises(KeyboardInterrupt):
            peer.call("wait")
        assert shop.cancelled.wait(PATIENCE)
