"""Tests of node/apps/transfer/retries.py: over a line that is cut, and what is given up."""

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

import node.apps.transfer.retries as retries
from node.apps.transfer.protocol import RefusalCode
from node.apps.transfer.receiver import FileReceiver
from node.apps.transfer.retries import TransferLine, is_passing, send_with_retries
from node.apps.transfer.sender import Source
from node.apps.transfer.store import FileStore
from node.apps.transfer.watcher import Transfer
from node.errors import CallRefused, PeerClosedError, UnreachableError
from node.peer.peer import Peer
from node.protocol.codes import CloseCode
from node.testing import FaultyProxy
from tests.node.apps.transfer.network import PATTERN, Told, receiving, written
from tests.node.network import PATIENCE, new_node

pytestmark = pytest.mark.anyio

SIZE = 8 * len(PATTERN)


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "FIRST_PAUSE", 0.001)


async def test_a_line_that_is_cut_twice(anyio_backend: str, tmp_path: Path) -> None:
    directory, told, cuts = tmp_path / "in", Told(), [SIZE // 3, SIZE // 3]
    directory.mkdir()
    path = written(tmp_path / "a", PATTERN * 8)
    with anyio.fail_after(PATIENCE), FileStore(directory) as store:
        async with new_node() as server, new_node() as client:
            FileReceiver(store).offer_on(server)
            async with FaultyProxy(await server.listen("tcp://127.0.0.1:0")) as proxy:

                async def dial() -> Peer:
                    peer = await client.connect(proxy.address)
                    if cuts:
                        proxy.to_server.cut(after=cuts.pop())
                    return peer

                line = TransferLine(await dial(), dial)
                with await Source.open(path) as source:
                    assert (await send_with_retries(line, source, told)).new
                await line.close()
    assert (directory / "a").read_bytes() == PATTERN * 8
    assert len(list(directory.iterdir())) == 1
    # Each began where the receiver was: not at 0, and behind the one before.
    assert told.offsets[0] == 0
    resumed = told.offsets[-1]
    assert 0 < resumed < SIZE
    assert told.offsets == sorted(told.offsets)
    assert len(told.pauses) >= 2


async def failing(
    tmp_path: Path, dial: Callable[[], Peer], peer: Peer, told: Told, count: int
) -> None:
    async def dialled() -> Peer:
        return dial()

    with await Source.open(written(tmp_path / "a")) as source:
        await send_with_retries(TransferLine(peer, dialled), source, told, count)


async def test_so_many_tries_in_a_row_and_no_more(anyio_backend: str, tmp_path: Path) -> None:
    def dial() -> Peer:
        raise UnreachableError("nobody answers")

    told = Told()
    async with receiving(tmp_path) as place:
        await place.met.peer.close()
        with pytest.raises(UnreachableError):
            await failing(tmp_path, dial, place.met.peer, told, 4)
    assert told.pauses == [0.001, 0.002, 0.004, 0.008]


async def test_a_refusal_for_good_is_not_tried_again(anyio_backend: str, tmp_path: Path) -> None:
    told = Told()
    async with receiving(tmp_path) as place:
        written(place.directory / "a", b"mine")
        with pytest.raises(CallRefused) as caught:
            await failing(tmp_path, lambda: place.met.peer, place.met.peer, told, 4)
    assert caught.value.code == RefusalCode.EXISTS
    assert told.pauses == []


async def test_one_who_is_busy_is_asked_again(anyio_backend: str, tmp_path: Path) -> None:
    told = Told()
    async with receiving(tmp_path) as place:
        place.receiver._names.add("a")

        def free(*args: object) -> None:
            place.receiver._names.discard("a")

        told.retrying = free  # type: ignore[method-assign, assignment]  # at the first word of it
        await failing(tmp_path, lambda: place.met.peer, place.met.peer, told, 1)
        assert (place.directory / "a").read_bytes() == PATTERN


async def test_bytes_that_went_across_begin_a_new_row(
    anyio_backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three failures with progress in between are less than two in a row."""
    offsets, told = [0, 1000, 2000, 2000], Told()

    async def fails_after(peer: Peer, source: Source, watcher: Told) -> None:
        transfer = Transfer(source.offer, "", offset=offsets.pop(0))
        watcher.began(transfer)
        raise PeerClosedError(CloseCode.CONNECTION_LOST)

    monkeypatch.setattr(retries, "send_file", fails_after)
    async with receiving(tmp_path) as place:
        with pytest.raises(PeerClosedError):
            await failing(tmp_path, lambda: place.met.peer, place.met.peer, told, 1)
    assert offsets == []
    assert told.pauses == [0.001] * 3


async def test_two_files_dial_once(anyio_backend: str, tmp_path: Path) -> None:
    dials: list[int] = []
    async with receiving(tmp_path) as place:
        old = place.met.peer
        await old.close()
        new = await place.met.client.connect(await place.met.server.listen("tcp://127.0.0.1:0"))

        async def dial() -> Peer:
            dials.append(1)
            await anyio.sleep(0.01)
            return new

        line, got = TransferLine(old, dial), []

        async def ask() -> None:
            got.append(await line.peer())

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(ask)
    assert got == [new] * 3
    assert dials == [1]


def test_what_may_pass_by_itself() -> None:
    assert is_passing(CloseCode.CONNECTION_LOST, refused=False)
    assert is_passing(CloseCode.GOING_AWAY, refused=False)
    assert not is_passing(CloseCode.PEER_NOT_TRUSTED, refused=False)
    assert not is_passing(CloseCode.NO_HANDLER, refused=False)
    assert is_passing(RefusalCode.BUSY, refused=True)
    assert not is_passing(RefusalCode.EXISTS, refused=True)
