"""Tests of node/apps/transfer/sender.py over a link that is cut: resuming and giving up."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

import parley._node.apps.transfer.sender as retries
from parley import Link, Node, Peer
from parley._node.apps.transfer.progress import Transfer
from parley._node.apps.transfer.protocol import RefusalCode
from parley._node.apps.transfer.receiver import FileReceiver
from parley._node.apps.transfer.sender import Source, is_passing, send_over_link
from parley._node.apps.transfer.store import FileStore
from parley._node.errors import CallRefused, PeerClosedError, StreamResetError, UnreachableError
from parley._node.protocol.codes import CloseCode
from parley._node.testing import FaultyProxy
from tests.node.apps.transfer.network import PATTERN, Told, written
from tests.node.network import eventually, new_node
from tests.node.peer.servers import QUICK, Server, serving

pytestmark = pytest.mark.anyio

SIZE = 8 * len(PATTERN)
RESUME = 30.0


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "FIRST_PAUSE", 0.001)


class Place:
    """A receiver that can be restarted, a proxy in front of it, and a link to the proxy."""

    def __init__(self, directory: Path, store: FileStore) -> None:
        self.directory = directory
        self._store = store

    server: Server
    receiver: FileReceiver
    proxy: FaultyProxy
    link: Link

    def offer(self, node: Node) -> None:
        """Receive files after a start."""
        self.receiver = FileReceiver(self._store)
        self.receiver.offer_on(node)


@asynccontextmanager
async def receiving(tmp_path: Path, *, resume: float = 0.0) -> AsyncIterator[Place]:
    directory = tmp_path / "in"
    directory.mkdir()
    with FileStore(directory) as store:
        place = Place(directory, store)
        async with (
            serving(place.offer, resume=resume) as place.server,
            new_node(resume=resume) as node,
            FaultyProxy(place.server.address) as place.proxy,
            node.link(place.proxy.address, pauses=QUICK) as place.link,
        ):
            yield place


class Cutting(Told):
    """Cuts the connection once at each of these offsets of a file."""

    def __init__(self, place: Place, *cuts: int) -> None:
        super().__init__()
        self._place = place
        self._cuts = list(cuts)

    def advanced(self, transfer: Transfer) -> None:
        super().advanced(transfer)
        if self._cuts and transfer.at >= self._cuts[0]:
            self._cuts.pop(0)
            self._place.proxy.cut()


async def test_a_line_that_is_cut_twice(anyio_backend: str, tmp_path: Path) -> None:
    async with receiving(tmp_path) as place:
        told = Cutting(place, SIZE // 3, SIZE // 2)
        with await Source.open(written(tmp_path / "a", PATTERN * 8)) as source:
            assert (await send_over_link(place.link, source, told)).new
        assert place.link.sessions == 3
        assert (place.directory / "a").read_bytes() == PATTERN * 8
        assert len(list(place.directory.iterdir())) == 1
    # Each attempt began where the receiver was: not at 0, and never earlier than the previous one.
    assert told.offsets[0] == 0
    assert 0 < told.offsets[-1] < SIZE
    assert told.offsets == sorted(told.offsets)
    assert told.pauses == []  # by the link


async def test_a_cut_that_is_resumed_is_not_noticed(anyio_backend: str, tmp_path: Path) -> None:
    async with receiving(tmp_path, resume=RESUME) as place:
        told = Cutting(place, SIZE // 3, SIZE // 2)
        with await Source.open(written(tmp_path / "a", PATTERN * 8)) as source:
            assert (await send_over_link(place.link, source, told, 0)).new
        peer = await place.link.ready()
        assert (place.link.sessions, peer.resumes) == (1, 2)
        assert (place.directory / "a").read_bytes() == PATTERN * 8
    assert (told.offsets, told.stops) == ([0], [])


class Slow(Told):
    """Signals when half of a file has been sent."""

    def __init__(self) -> None:
        super().__init__()
        self.half = anyio.Event()

    def advanced(self, transfer: Transfer) -> None:
        super().advanced(transfer)
        if transfer.at > SIZE // 2:
            self.half.set()


@pytest.mark.parametrize("resume", [0.0, RESUME])
async def test_restarted_receiver(anyio_backend: str, tmp_path: Path, resume: float) -> None:
    """It resumes the partial file, even if the session was suspended first."""
    async with receiving(tmp_path, resume=resume) as place:
        told, done = Slow(), []

        async def send() -> None:
            done.append(await send_over_link(place.link, source, told))

        with await Source.open(written(tmp_path / "a", PATTERN * 8)) as source:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(send)
                await told.half.wait()
                await place.server.kill()
                await place.server.start()
        assert done[0].new
        assert (place.directory / "a").read_bytes() == PATTERN * 8
    assert told.offsets[0] == 0 < told.offsets[-1]


async def test_so_many_dials_in_a_row_and_no_more(anyio_backend: str, tmp_path: Path) -> None:
    with await Source.open(written(tmp_path / "a")) as source:
        async with (
            serving() as server,
            new_node() as node,
            node.link(server.address, pauses=QUICK) as link,
        ):
            await link.ready()
            await server.stop()
            await eventually(lambda: not link.is_up)
            with pytest.raises(UnreachableError):
                await send_over_link(link, source, Told(), 4)
            assert link.attempts == 5  # the end of the session, and four dials


async def test_permanent_refusal_is_not_retried(anyio_backend: str, tmp_path: Path) -> None:
    told = Told()
    async with receiving(tmp_path) as place:
        written(place.directory / "a", b"mine")
        with (
            await Source.open(written(tmp_path / "a")) as source,
            pytest.raises(CallRefused) as caught,
        ):
            await send_over_link(place.link, source, told, 4)
    assert caught.value.code == RefusalCode.EXISTS
    assert told.pauses == []


async def test_busy_receiver_is_retried(anyio_backend: str, tmp_path: Path) -> None:
    async with receiving(tmp_path) as place:
        place.receiver.names.add("a")

        class Freeing(Told):
            def retrying(self, name: str, error: Exception, number: int, pause: float) -> None:
                super().retrying(name, error, number, pause)
                if number == 2:
                    place.receiver.names.discard("a")

        told = Freeing()
        with await Source.open(written(tmp_path / "a")) as source:
            await send_over_link(place.link, source, told, 2)
        assert (place.directory / "a").read_bytes() == PATTERN
        assert told.pauses == [0.001, 0.002]
        place.receiver.names.add("b")
        with await Source.open(written(tmp_path / "b")) as source, pytest.raises(CallRefused):
            await send_over_link(place.link, source, told, 1)


@pytest.mark.parametrize(
    "error", [PeerClosedError(CloseCode.CONNECTION_LOST), StreamResetError(CloseCode.CANCELLED)]
)
async def test_bytes_that_went_across_begin_a_new_row(
    anyio_backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Three failures with progress in between don't exceed a limit of two in a row."""
    offsets, told = [0, 1000, 2000, 2000], Told()

    async def fails_after(peer: Peer, source: Source, watcher: Told) -> None:
        transfer = Transfer(source.offer, "", offset=offsets.pop(0))
        watcher.began(transfer)
        raise error

    monkeypatch.setattr(retries, "send_file", fails_after)
    async with receiving(tmp_path) as place:
        with (
            await Source.open(written(tmp_path / "a")) as source,
            pytest.raises(type(error)),
        ):
            await send_over_link(place.link, source, told, 1)
    assert offsets == []
    assert told.pauses == ([0.001] * 3 if isinstance(error, StreamResetError) else [])


def test_which_failures_are_temporary() -> None:
    assert is_passing(CloseCode.CONNECTION_LOST, refused=False)
    assert is_passing(CloseCode.GOING_AWAY, refused=False)
    assert not is_passing(CloseCode.PEER_NOT_TRUSTED, refused=False)
    assert not is_passing(CloseCode.NO_HANDLER, refused=False)
    assert is_passing(RefusalCode.BUSY, refused=True)
    assert not is_passing(RefusalCode.EXISTS, refused=True)
