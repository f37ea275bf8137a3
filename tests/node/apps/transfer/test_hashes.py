"""Tests of node/apps/transfer/hashes.py: the cache and the rate limit."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

import parley._node.apps.transfer.hashes as hashes_module
from parley._node.apps.transfer.files import OpenFile
from parley._node.apps.transfer.hashes import BURST, BYTES_PER_SECOND, SETTLED_NS, Hashes

pytestmark = pytest.mark.anyio

CHANGED_NS = 1_000_000_000_000_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a"
    put(path, b"content")
    return path


@pytest.fixture
def file(path: Path) -> Iterator[OpenFile]:
    file = OpenFile(os.open(path, os.O_RDONLY))
    yield file
    file.close()


def put(path: Path, content: bytes, changed_ns: int = CHANGED_NS) -> None:
    path.write_bytes(content)
    os.utime(path, ns=(changed_ns, changed_ns))


async def found(hashes: Hashes, file: OpenFile) -> bytes:
    return (await hashes.of(file, "peer"))[0].digest()


def sha256(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


@pytest.mark.parametrize(
    ("since_ns", "is_remembered"), [(SETTLED_NS + 1, True), (SETTLED_NS, False)]
)
async def test_hash_of_a_settled_file_is_cached(
    anyio_backend: str,
    file: OpenFile,
    monkeypatch: pytest.MonkeyPatch,
    since_ns: int,
    is_remembered: bool,
) -> None:
    hashes = Hashes(clock=lambda: file.status().st_ctime_ns + since_ns)
    assert await found(hashes, file) == sha256(b"content")
    monkeypatch.setattr(OpenFile, "read", lambda *_: b"")  # otherwise it is hashed again
    assert (await found(hashes, file) == sha256(b"content")) is is_remembered


async def test_file_with_restored_mtime_is_hashed_again(
    anyio_backend: str, path: Path, file: OpenFile
) -> None:
    """`cp -p`, `rsync -t` and `touch -r` do this."""
    hashes = Hashes(clock=lambda: file.status().st_ctime_ns + SETTLED_NS + 1)
    assert await found(hashes, file) == sha256(b"content")
    before = file.status()
    while file.status().st_ctime_ns == before.st_ctime_ns:  # the clock has a limited resolution
        put(path, b"another")
    after = file.status()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert await found(hashes, file) == sha256(b"another")


async def test_a_file_that_changes_while_it_is_read_is_not_remembered(
    anyio_backend: str, path: Path, file: OpenFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = OpenFile.read

    def changed(self: OpenFile, offset: int, size: int) -> bytes:
        put(path, b"another", CHANGED_NS + 1)
        return really(self, offset, size)

    hashes = Hashes()
    with monkeypatch.context() as patch:
        patch.setattr(OpenFile, "read", changed)
        assert await found(hashes, file) == sha256(b"another")
    put(path, b"content")
    assert await found(hashes, file) == sha256(b"content")


async def test_returned_hash_is_an_independent_copy(anyio_backend: str, file: OpenFile) -> None:
    hashes = Hashes()
    for _ in range(2):
        digest, size = await hashes.of(file, "peer")
        digest.update(b"more")
        assert (digest.digest(), size) == (sha256(b"contentmore"), 7)


async def test_so_many_are_remembered(
    anyio_backend: str, path: Path, file: OpenFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashes_module, "REMEMBERED", 2)
    hashes, status = Hashes(), file.status()
    await hashes.of(file, "peer")
    for inode in (1, 2):  # replaced by others
        other = os.stat_result((status.st_mode, inode, *status[2:]))
        hashes.keep(other, hashlib.sha256())
    put(path, b"another")
    assert await found(hashes, file) == sha256(b"another")


@pytest.mark.slow
async def test_hashing_is_rate_limited_per_peer(
    anyio_backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    path = tmp_path / "large"
    path.touch()
    os.truncate(path, BURST + BYTES_PER_SECOND // 4)  # sparse: it uses no disk space
    file = OpenFile(os.open(path, os.O_RDONLY))
    try:
        monkeypatch.setattr(anyio, "sleep", sleep)
        monkeypatch.setattr(anyio, "current_time", lambda: 1_000.0)
        hashes = Hashes(clock=lambda: 0)  # has no cache
        await hashes.of(file, "peer")
        assert slept[3] == 0
        assert slept[-1] == pytest.approx(0.25)
        await hashes.of(file, "other")
        assert slept[-1] == pytest.approx(0.25)
        await hashes.of(file, "peer")
        assert slept[-1] == pytest.approx(0.75)
        monkeypatch.setattr(anyio, "current_time", lambda: 1_001.0)
        await hashes.of(file, "peer")
        assert slept[-1] == pytest.approx(0.25)
    finally:
        file.close()
