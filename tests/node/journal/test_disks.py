"""A journal on a disk that is slow, full or failing, and the guarantees of each fsync policy."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from parley import Node, PeerClosedError
from parley._crypto.identity import Identity
from parley._node.journal import keys
from parley._node.journal import segment_writer as writing
from parley._node.journal.audit import Audit
from parley._node.journal.errors import JournalFailedError
from parley._node.testing import connect_nodes
from parley._node.web.metrics import reasons_unready
from tests.node.journal.joined_tunnels import tunnel_record
from tests.node.journal.journal_nodes import AUDITOR, CONFIG, KEY, Disk, journal_of, journaled
from tests.node.journal.journal_reader import (
    assert_honest,
    assert_same_events,
    follow,
    paths_of,
    records_of,
)
from tests.node.network import eventually

pytestmark = pytest.mark.anyio


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


# A slow disk.


async def test_with_a_full_buffer_connections_wait_and_nothing_is_lost(
    tmp_path: Path, disk: Disk
) -> None:
    a, b = journaled(tmp_path), journaled(tmp_path, buffer_size=2**16)
    done: list[int] = []

    async def call(number: int) -> None:
        assert await peer.call("echo", bytes(10_000)) == bytes(10_000)
        done.append(number)

    async with b, a:
        peer, _ = await connect_nodes(a, b)
        disk.free.clear()
        async with anyio.create_task_group() as tasks:
            for number in range(50):
                tasks.start_soon(call, number)
            await eventually(lambda: not journal_of(b).barrier.open)
            with anyio.move_on_after(0.05) as scope:  # A caller may be cancelled.
                await peer.call("echo", bytes(10_000))
            assert scope.cancelled_caught
            assert len(done) < 50
            # The data that arrives together is limited to one read.
            assert journal_of(b).metrics.waiting < 2**16 + 2 * 256 * 1024
            disk.free.set()
        assert sorted(done) == list(range(50))
        await eventually(lambda: journal_of(b).barrier.open)
    assert_same_events(*(follow(tmp_path, node.node_id.text, AUDITOR) for node in (a, b)))


@pytest.mark.slow
async def test_a_full_buffer_is_written_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        writing, "LINGER", 1.0
    )  # At this rate, the following calls would take 16 s.
    a, b = journaled(tmp_path), journaled(tmp_path, buffer_size=2**16)
    async with b, a:
        peer, _ = await connect_nodes(a, b)
        with anyio.fail_after(8):
            for _ in range(50):
                await peer.call("echo", bytes(10_000))


async def test_node_can_close_while_its_barrier_is_shut(tmp_path: Path, disk: Disk) -> None:
    a, b = journaled(tmp_path), journaled(tmp_path, buffer_size=2**16)
    async with b:
        with anyio.CancelScope() as scope:
            async with a:
                peer, _ = await connect_nodes(a, b)
                disk.free.clear()
                async with anyio.create_task_group() as tasks:
                    for _ in range(20):
                        tasks.start_soon(peer.call, "echo", bytes(10_000))
                    await eventually(lambda: not journal_of(b).barrier.open)
                    disk.free.set()
                    scope.cancel()
    for node in (a, b):
        assert len(follow(tmp_path, node.node_id.text).ends) == 1


# The guarantees of each policy.


async def test_fsync_always_sends_nothing_before_it_is_on_the_disk(
    tmp_path: Path, disk: Disk
) -> None:
    a, b = journaled(tmp_path, fsync="never"), journaled(tmp_path, fsync="always")
    async with b, a:
        peer, _ = await connect_nodes(a, b)
        assert await peer.call("echo", 1) == 1
        disk.synced.clear()
        with anyio.move_on_after(0.1) as scope:
            await peer.call("echo", 2)
        assert scope.cancelled_caught
        syncs = disk.syncs
        disk.synced.set()
        assert await peer.call("echo", 3) == 3
        assert disk.syncs > syncs
    assert len(follow(tmp_path, b.node_id.text).ends) == 1


@pytest.mark.parametrize(("fsync", "unasked"), [("interval", True), ("never", False)])
async def test_sync_and_fsync_interval(
    tmp_path: Path, disk: Disk, fsync: str, unasked: bool
) -> None:
    async with journaled(tmp_path, fsync=fsync, fsync_interval=0.03) as node:
        await eventually(lambda: journal_of(node).metrics.records == 2)
        await anyio.sleep(0.1)
        assert bool(disk.syncs) is unasked
        journal_of(node).tunnel(tunnel_record())
        await journal_of(node).sync()
        assert disk.syncs == 1 + unasked
        await journal_of(node).sync()
        assert disk.syncs == 1 + unasked


# Failures.


async def failing(
    tmp_path: Path, disk: Disk, on_failure: str, tunnel_record: Callable[[Node, Any], Any]
) -> Node:
    a, b = Node(Identity.create(), config=CONFIG), journaled(tmp_path, on_failure=on_failure)
    alarms: list[JournalFailedError] = []
    journal_of(b).on_alarm = alarms.append
    async with a, b:
        peer, _ = await connect_nodes(a, b)
        assert await peer.call("echo", 1) == 1
        await journal_of(b).sync()
        disk.error = OSError(28, "No space left on device")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tunnel_record, b, peer)
            error = await journal_of(b).failure()
        assert journal_of(b).failed is error is alarms[0]
        assert len(alarms) == 1
        with pytest.raises(JournalFailedError):
            await journal_of(b).sync()
        disk.error = None
    return b


async def test_on_failure_alarm_continues(
    tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    async def goes_on(node: Node, peer: Any) -> None:
        assert await peer.call("echo", 2) == 2
        is_unready = "the journal cannot be written" in reasons_unready(node)
        assert is_unready is (journal_of(node).failed is not None)
        await eventually(lambda: journal_of(node).failed is not None)
        assert "the journal cannot be written" in reasons_unready(node)
        assert await peer.call("echo", 3) == 3
        async with Node(Identity.create(), config=CONFIG) as other:
            again, _ = await connect_nodes(other, node)
            assert await again.call("echo", 4) == 4

    node = await failing(tmp_path, disk, "alarm", goes_on)
    assert [record.levelname for record in caplog.records if record.name == "parley.journal"] == [
        "CRITICAL"
    ]
    (records,) = records_of(tmp_path, node.node_id.text)
    assert records[-1].kind == keys.EVENT
    identity = node.identity
    async with journaled(tmp_path, identity) as again:
        assert [one.cut for one in journal_of(again).recovered] == [0]


async def test_on_failure_stop_sends_nothing_unrecorded(tmp_path: Path, disk: Disk) -> None:
    async def stops(node: Node, peer: Any) -> None:
        with suppress(PeerClosedError):
            await peer.call("echo", 2)
        await eventually(lambda: not peer.is_open)
        assert not node.peers
        with pytest.raises(JournalFailedError):
            await node.listen("tcp://127.0.0.1:0")
        with pytest.raises(JournalFailedError):
            await node.connect("tcp://127.0.0.1:1", trust=node.trust)  # type: ignore[arg-type] # any

    await failing(tmp_path, disk, "stop", stops)


FULL_DISK = """
import resource, sys
from pathlib import Path
import anyio
from parley._crypto.identity import Identity
from parley import Call, Node, PeerClosedError
from parley._node.journal.journal import Journal
from parley._node.testing import connect_nodes

async def main(directory, auditor, on_failure):
    journal = Journal.open(directory, auditor, on_failure=on_failure, segment_size=50_000)
    b = Node(Identity.create(), journal=journal)
    @b.on_call("echo")
    async def echo(call: Call) -> object:
        return call.data
    async with Node(Identity.create()) as a, b:
        peer, _ = await connect_nodes(a, b)
        answers = 0
        try:
            while answers < 40:
                if answers == 20:  # a segment cannot come to its end any more
                    await journal.sync()
                    resource.setrlimit(resource.RLIMIT_FSIZE, (45_000, resource.RLIM_INFINITY))
                await peer.call("echo", bytes(2000 + answers))
                answers += 1
                await anyio.sleep(0.002)  # the writer lets records gather
        except PeerClosedError:
            pass
        await journal.failure()
        print(answers, b.node_id.text, type(journal.failed.__cause__).__name__, len(b.peers))

anyio.run(main, *sys.argv[2:], backend=sys.argv[1])
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("backend", "on_failure", "left"), [("asyncio", "alarm", "1"), ("trio", "stop", "0")]
)
def test_full_disk_corrupts_nothing(
    tmp_path: Path, backend: str, on_failure: str, left: str
) -> None:
    arguments = [backend, str(tmp_path), KEY.text, on_failure]
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    answers, node, error, peers = done.stdout.split()
    assert (error, peers) == ("OSError", left)
    assert int(answers) >= 20
    assert (answers == "40") is (on_failure == "alarm")
    segments = records_of(tmp_path, node)
    assert len(segments) == 2
    assert segments[0][-1].kind == keys.SEGMENT_END
    audit = Audit([AUDITOR])
    for path, records in zip(paths_of(tmp_path, node), segments, strict=True):
        for record in records:
            audit.record(path.name.partition(".")[0], record)
    assert [len(events) > 20 for events in assert_honest(audit).values()] == [True, True]
    last = segments[1][-1]
    assert 42_000 < last.offset + last.size <= 45_000
