"""Tests of node/apps/transfer/sender.py, with correct and incorrect receivers."""

import os
from pathlib import Path

import pytest

from parley._node.apps.transfer.names import UnsafeNameError, partial_name
from parley._node.apps.transfer.protocol import (
    LABEL,
    Begin,
    FileOffer,
    MessageError,
    Receipt,
    RefusalCode,
    Resume,
    read_message,
)
from parley._node.apps.transfer.sender import Source, send_file
from parley._node.errors import CallRefused, ConfigError, FileError, ParleyError, StreamResetError
from parley._node.protocol.codes import CloseCode
from parley._node.remote.stream import Stream
from tests.node.apps.transfer.network import PATTERN, Told, offered, receiving, written
from tests.node.network import meeting

pytestmark = pytest.mark.anyio


async def test_a_file_is_sent_and_sent_again(anyio_backend: str, tmp_path: Path) -> None:
    told = Told()
    async with receiving(tmp_path) as place:
        with await Source.open(written(tmp_path / "a")) as source:
            assert source.offer == offered(PATTERN)
            assert (await send_file(place.met.peer, source, told)).new
            assert not (await send_file(place.met.peer, source, told)).new
        assert (place.directory / "a").read_bytes() == PATTERN
    assert (told.offsets, told.news, told.at) == ([0, len(PATTERN)], [True, False], len(PATTERN))


@pytest.mark.parametrize(
    ("there", "offset"), [(PATTERN[:1000], 1000), (b"x" * 1000, 0), (PATTERN, len(PATTERN))]
)
async def test_sender_resumes_only_after_its_own_bytes(
    anyio_backend: str, tmp_path: Path, there: bytes, offset: int
) -> None:
    told, offer = Told(), offered(PATTERN)
    async with receiving(tmp_path) as place:
        written(place.directory / partial_name(offer.name, offer.size, offer.sha256), there)
        with await Source.open(written(tmp_path / "a")) as source:
            await send_file(place.met.peer, source, told)
        assert place.names() == ["a"]
        assert (place.directory / "a").read_bytes() == PATTERN
    assert told.offsets == [offset]


async def test_refusal_has_a_reason(anyio_backend: str, tmp_path: Path) -> None:
    async with receiving(tmp_path) as place:
        written(place.directory / "a", b"mine")
        source = await Source.open(written(tmp_path / "a"))
        with source, pytest.raises(CallRefused) as caught:
            await send_file(place.met.peer, source)
        assert caught.value.code == RefusalCode.EXISTS
        assert caught.value.data == "another file has that name"
        assert caught.value.received


async def test_a_file_that_changes_does_not_arrive(anyio_backend: str, tmp_path: Path) -> None:
    async with receiving(tmp_path) as place:
        path = written(tmp_path / "a")
        with await Source.open(path) as source:
            written(path, bytes(len(PATTERN)))
            with pytest.raises(CallRefused) as caught:
                await send_file(place.met.peer, source)
            assert caught.value.code == RefusalCode.MISMATCH
            os.truncate(path, 1000)
            with pytest.raises(FileError, match="changed"):
                await send_file(place.met.peer, source)
        assert "a" not in place.names()


async def test_node_that_does_not_receive_files(anyio_backend: str, tmp_path: Path) -> None:
    async with meeting() as met:
        source = await Source.open(written(tmp_path / "a"))
        with source, pytest.raises(StreamResetError) as caught:
            await send_file(met.peer, source)
    assert caught.value.code == CloseCode.NO_HANDLER


@pytest.mark.parametrize(
    ("resume", "receipt", "error"),
    [
        (Resume(8, bytes(32)), Receipt(bytes(32), new=True), MessageError),
        (Resume(0, bytes(32)), Receipt(bytes(32), new=True), ParleyError),
    ],
)
async def test_a_receiver_that_lies(
    anyio_backend: str, tmp_path: Path, resume: Resume, receipt: Receipt, error: type[Exception]
) -> None:
    async with meeting() as met:

        @met.server.on_stream(LABEL)
        async def lie(stream: Stream) -> None:
            await read_message(stream, FileOffer.decode)
            await stream.send(resume.encode())
            await read_message(stream, Begin.decode)
            await stream.send(receipt.encode())

        told = Told()
        source = await Source.open(written(tmp_path / "a", b"content"))
        with source, pytest.raises(error, match=r"bytes of a file of|was altered in transit"):
            await send_file(met.peer, source, told)
        assert told.news == []


async def test_files_that_cannot_be_sent(anyio_backend: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a directory"):
        await Source.open(tmp_path)
    with pytest.raises(UnsafeNameError, match="begins with a dot"):
        await Source.open(written(tmp_path / ".hidden"))
    with pytest.raises(FileError, match="cannot read"):
        await Source.open(tmp_path / "none")
    with pytest.raises(
        FileError, match=r"^cannot send '/proc/self/status': its size is 0 bytes, but"
    ):
        await Source.open(Path("/proc/self/status"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match="not a regular file"):
        await Source.open(tmp_path / "pipe")
