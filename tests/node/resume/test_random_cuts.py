"""Files both ways, calls, a subscription and a bus continue over transports that are lost at
random.

The applications see no error, and everything arrives once and in order. `--rounds N` loses N
transports in each test, while N megabytes go each way and 10 N calls are made. The seed is the
test's name.
"""

import filecmp
import logging
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from random import Random  # noqa: TID251 - seeded: when and how it is cut
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio
import pytest

from parley import Call, Node, Peer, Topic
from parley._node.apps.transfer.protocol import Receipt
from parley._node.apps.transfer.receiver import FileReceiver
from parley._node.apps.transfer.sender import Source, send_file
from parley._node.apps.transfer.store import FileStore
from parley._node.bus.bus import Bus
from tests.node.network import eventually, living, new_node, nothing_left
from tests.node.resume.lossy_proxy import LossyProxy

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

MEGABYTE: Final = 10**6
FILE: Final = MEGABYTE  # each way, for each transport that is lost
CALLS: Final = 10  # likewise
CALLERS: Final = 4  # each way
LARGEST_CALL: Final = 20_000
STREAM: Final = "shop.sold"  # of the bus
# Lines about transports that were cut before their Resume was complete: to a server, unknown
# clients.
STRANGERS: Final = re.compile(r"peer (unix|127\.0\.0\.1) ended: connection-lost ")
# Silence is noticed soon (seconds), and all calls that were made once are remembered.
SETTINGS: Final[dict[str, Any]] = {
    "resume": 30.0,
    "idle_before_ping": 0.3,
    "ping_timeout": 0.3,
    "once_results": 1_000_000,
    "once_peer_memory": 1 << 30,
}
PATIENCE: Final = 60.0


class Lines(logging.Handler):
    """Warnings and errors, as text."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextmanager
def complaints() -> Iterator[list[str]]:
    """Collect the log's warnings; pytest, which would keep their objects, doesn't get them."""
    handler, logger = Lines(), logging.getLogger("parley")
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield handler.lines
    finally:
        logger.propagate = True
        logger.removeHandler(handler)


class Load:
    """What two nodes do with each other until it `is_enough`."""

    def __init__(self, seed: str, times: int, directory: Path) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.times = times
        self.directory = directory
        self.ran: Counter[object] = Counter()
        self.made = 0
        self.notes: list[object] = []
        self.published = 0
        self.receipts: list[Receipt] = []
        self.cuts: list[int] = []  # before each of them
        self.events: list[object] = []  # of the bus
        self.sent = 0  # of these
        self.is_enough = False

    # What both offer.

    def offer(self, node: Node, store: FileStore) -> Topic:
        FileReceiver(store).offer_on(node)
        node.on_call("plain")(self._answer)
        node.on_call("once", once=True)(self._answer)
        return node.topic("numbers", patience=PATIENCE)

    async def _answer(self, call: Call) -> object:
        assert isinstance(call.data, list)
        number, data = call.data
        self.ran[number] += 1
        if number % 4 == 0:
            await anyio.sleep(self.random.uniform(0, 0.02))
        return [number, data]

    # The traffic of both sides.

    async def send(self, peer: Peer, path: Path, proxy: LossyProxy) -> None:
        with await Source.open(path) as source:
            self.receipts.append(await send_file(peer, source))
        self.cuts.append(proxy.lost.total())

    async def call(self, peer: Peer) -> None:
        """One call after the other, every second one made once."""
        while not self.is_enough:
            self.made += 1
            asked = [self.made, self.random.randbytes(self.random.randrange(LARGEST_CALL))]
            once = self.made % 2 == 0
            topic = "once" if once else "plain"
            assert await peer.call(topic, asked, timeout=PATIENCE, once=once) == asked

    async def read(self, peer: Peer) -> None:
        async with peer.subscribe("numbers", timeout=PATIENCE) as subscription:
            async for note in subscription:
                self.notes.append(note)

    async def fill(self, bus: Bus) -> None:
        is_last = False
        while not is_last:
            is_last = self.is_enough
            await bus.publish(STREAM, {"number": self.sent, "is last": is_last})
            self.sent += 1
            await anyio.sleep(0.005)

    async def consume(self, bus: Bus) -> None:
        """Return all items up to the last one; duplicates would be visible."""
        async with bus.consume(STREAM, group="readers") as events:
            async for event in events:
                assert event.attempt == 1
                self.events.append(event.data["number"])
                if event.data["is last"]:
                    break

    async def publish(self, topic: Topic) -> None:
        await eventually(lambda: bool(topic.subscribers))
        for number in count():
            if self.is_enough:
                break
            await topic.publish(number)
            self.published += 1
            await anyio.sleep(0.001)
        await topic.finish()


@pytest.mark.parametrize(("transport", "anyio_backend"), [("tcp", "asyncio"), ("unix", "trio")])
async def test_all_goes_on_over_transports_that_are_lost(
    transport: str, anyio_backend: str, rounds: int
) -> None:
    with TemporaryDirectory() as name:  # which is gone at once: it may be large
        directory = Path(name)
        load = Load(f"{transport} {anyio_backend}", rounds, directory)
        before = living(Peer)
        with nothing_left(), complaints() as lines:
            await lose_many(load, transport)
            # The state of an unknown client's transport is released in a later turn of the loop.
            await eventually(lambda: living(Peer) <= before)
        for file in ("there", "back"):
            assert filecmp.cmp(directory / file, directory / "arrived" / file, shallow=False)
    assert [line for line in lines if not STRANGERS.match(line)] == []
    assert [receipt.new for receipt in load.receipts] == [True, True]
    assert min(load.cuts) > rounds / 2
    assert load.made >= CALLS * rounds
    assert load.ran == dict.fromkeys(range(1, load.made + 1), 1)
    assert load.notes == list(range(load.published))
    assert load.published > rounds
    assert load.events == list(range(load.sent))
    assert load.sent > rounds


async def lose_many(load: Load, transport: str) -> None:
    directory = load.directory
    for name in ("there", "back"):
        with (directory / name).open("wb") as file:
            for _ in range(load.times):
                file.write(load.random.randbytes(FILE))
    (directory / "arrived").mkdir()
    place = "tcp://127.0.0.1:0" if transport == "tcp" else f"unix://{directory}/node"
    random = Random(f"{load.seed}, cut")
    with FileStore(directory / "arrived") as store:
        async with new_node(**SETTINGS) as server, new_node(**SETTINGS) as client:
            topic = load.offer(server, store)
            server.bus(f"sqlite:///{directory}/bus.db", allow=lambda request: True)
            load.offer(client, store)
            address = await server.listen(place)
            async with LossyProxy(address, directory, random, 2 * FILE) as proxy:
                peer = await client.connect(proxy.address)
                assert await peer.call("plain", [0, b""]) == [0, b""]
                del load.ran[0]
                proxy.on_silence = peer.redial
                back = server.peers[0]
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(load.send, peer, directory / "there", proxy)
                    tasks.start_soon(load.send, back, directory / "back", proxy)
                    tasks.start_soon(load.read, peer)
                    tasks.start_soon(load.publish, topic)
                    tasks.start_soon(load.fill, peer.bus())
                    tasks.start_soon(load.consume, peer.bus())
                    for one in (peer, back):
                        for _ in range(CALLERS):
                            tasks.start_soon(load.call, one)
                    proxy.begin(load.times)
                    await until_enough(load, proxy)
                    load.is_enough = True
                print(f"{dict(proxy.lost)}, resumed {peer.resumes} times")
                print(f"files came after {load.cuts}, {load.made} calls, {load.published} notes")
                print(f"{load.sent} events of the bus")
                assert proxy.lost.total() == load.times
                assert peer.resumes > load.times / 2
                await peer.close()


async def until_enough(load: Load, proxy: LossyProxy) -> None:
    """Wait for so many lost transports, both files, and so many calls."""
    while not (  # noqa: ASYNC110 - these are many events
        proxy.lost.total() >= load.times
        and len(load.receipts) == 2
        and load.made >= CALLS * load.times
    ):
        await anyio.sleep(0.01)
