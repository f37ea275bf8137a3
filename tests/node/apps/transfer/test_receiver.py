"""Tests of node/apps/transfer/receiver.py, with misbehaving senders."""

import errno
import os
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

import parley._node.apps.transfer.receiver as receiver_module
from parley._node.apps.transfer.files import OpenFile
from parley._node.apps.transfer.hashes import SETTLED_NS, Hashes
from parley._node.apps.transfer.names import PARTIAL_ENDING, partial_name
from parley._node.apps.transfer.protocol import (
    LABEL,
    Begin,
    FileOffer,
    Receipt,
    RefusalCode,
    Resume,
    read_message,
)
from parley._node.apps.transfer.receiver import FileReceiver
from parley._node.apps.transfer.store import FileStore
from parley._node.errors import StreamResetError
from parley._node.protocol.codes import CloseCode
from parley._node.remote.remote import Remote
from parley._node.remote.stream import Stream
from parley._node.testing import connect_nodes
from tests.node.apps.transfer.network import PATTERN, Place, offered, receiving, written
from tests.node.network import eventually, meeting, new_node

pytestmark = pytest.mark.anyio


async def ask(place: Place, offer: FileOffer) -> tuple[Stream, Resume]:
    """Offer a file and read the answer."""
    stream = place.met.peer.open_stream(LABEL)
    await stream.send(offer.encode())
    return stream, await read_message(stream, Resume.decode)


async def put(place: Place, content: bytes, name: str = "a") -> Receipt:
    """Send all of a new file."""
    stream, _ = await ask(place, offered(content, name))
    await stream.send(Begin(0).encode() + content)
    await stream.send_eof()
    return await read_message(stream, Receipt.decode)


async def refusal(stream: Stream) -> tuple[int, str]:
    """Return the code with which the receiver ends a stream."""
    with pytest.raises(StreamResetError) as caught:
        await _read_out(stream)
    return caught.value.code, caught.value.text


async def _read_out(stream: Stream) -> None:
    while True:
        await stream.receive()


async def refused(place: Place, offer: FileOffer | bytes) -> tuple[int, str]:
    """Return the code with which an offer is refused."""
    stream = place.met.peer.open_stream(LABEL)
    await stream.send(offer if isinstance(offer, bytes) else offer.encode())
    return await refusal(stream)


async def test_files_of_peers_not_allowed_are_refused(anyio_backend: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    async with meeting() as met, new_node() as other:
        peer, _ = await connect_nodes(other, met.server)
        with FileStore(tmp_path / "in") as store:
            FileReceiver(store).offer_on(met.server, allow=met.client.node_id)
            stranger, meant = peer.open_stream(LABEL), met.peer.open_stream(LABEL)
            assert (await refusal(stranger))[0] == CloseCode.NOT_AUTHORISED
            await meant.send(offered(PATTERN).encode())
            assert (await read_message(meant, Resume.decode)).offset == 0


async def test_a_file_arrives(anyio_backend: str, tmp_path: Path) -> None:
    async with receiving(tmp_path) as place:
        receipt = await put(place, PATTERN)
        assert receipt == Receipt(offered(PATTERN).sha256, new=True)
        assert (place.directory / "a").read_bytes() == PATTERN
        assert (place.told.offsets, place.told.news) == ([0], [True])
        assert place.names() == ["a"]


async def test_an_empty_file_arrives(anyio_backend: str, tmp_path: Path) -> None:
    async with receiving(tmp_path) as place:
        assert (await put(place, b"")).new
        assert (place.directory / "a").read_bytes() == b""


async def test_existing_file_is_reported(anyio_backend: str, tmp_path: Path) -> None:
    async with receiving(tmp_path) as place:
        written(place.directory / "a")
        stream, resume = await ask(place, offered(PATTERN))
        assert resume == Resume(len(PATTERN), offered(PATTERN).sha256)
        await stream.send(Begin(len(PATTERN)).encode())
        assert not (await read_message(stream, Receipt.decode)).new
        # A sender that sends the file anyway violates the protocol.
        stream, _ = await ask(place, offered(PATTERN))
        await stream.send(Begin(0).encode())
        assert (await refusal(stream))[0] == RefusalCode.MALFORMED
        assert place.names() == ["a"]


async def test_other_content_of_the_name_is_not_overwritten(
    anyio_backend: str, tmp_path: Path
) -> None:
    async with receiving(tmp_path) as place:
        for mine in (b"mine", bytes(len(PATTERN))):
            written(place.directory / "a", mine)
            code, text = await refused(place, offered(PATTERN))
            assert (code, text) == (RefusalCode.EXISTS, "another file has that name")
            assert (place.directory / "a").read_bytes() == mine
        assert place.names() == ["a"]


async def test_offers_do_not_have_a_file_hashed_again(
    anyio_backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    really = OpenFile.read

    def counted(self: OpenFile, offset: int, size: int) -> bytes:
        read.append(len(piece := really(self, offset, size)))
        return piece

    monkeypatch.setattr(OpenFile, "read", counted)
    async with receiving(tmp_path) as place:
        written(place.directory / "a")
        # Late enough after its last change to be cached.
        place.receiver.hashes = Hashes(clock=lambda: time.time_ns() + 2 * SETTLED_NS)
        wrong = FileOffer("a", len(PATTERN), bytes(32))
        for _ in range(3):
            assert (await refused(place, wrong))[0] == RefusalCode.EXISTS
        assert sum(read) == len(PATTERN)
        stream, _ = await ask(place, offered(PATTERN))  # nor for a peer that has the same file
        stream.reset()
        assert sum(read) == len(PATTERN)

        # Nor received data, partial or complete.
        half = len(PATTERN) // 2
        stream, _ = await ask(place, offered(PATTERN, "b"))
        await stream.send(Begin(0).encode() + PATTERN[:half])
        await eventually(lambda: place.told.at == half)
        stream.reset()
        await eventually(lambda: len(place.told.stops) == 1)
        stream, resume = await ask(place, offered(PATTERN, "b"))
        assert resume == Resume(half, offered(PATTERN[:half]).sha256)
        await stream.send(Begin(half).encode() + PATTERN[half:])
        await stream.send_eof()
        assert (await read_message(stream, Receipt.decode)).new
        assert (await refused(place, FileOffer("b", len(PATTERN), bytes(32))))[
            0
        ] == RefusalCode.EXISTS
        assert sum(read) == len(PATTERN)


async def test_force_replaces_it_only_when_all_is_there(anyio_backend: str, tmp_path: Path) -> None:
    async with receiving(tmp_path, force=True) as place:
        written(place.directory / "a", b"mine")
        stream, _ = await ask(place, offered(PATTERN))
        await stream.send(Begin(0).encode() + PATTERN)
        await eventually(lambda: place.told.at == len(PATTERN))
        assert (place.directory / "a").read_bytes() == b"mine"
        await stream.send_eof()
        assert (await read_message(stream, Receipt.decode)).new
        assert (place.directory / "a").read_bytes() == PATTERN


async def test_transfer_resumes_after_a_cut(anyio_backend: str, tmp_path: Path) -> None:
    half = len(PATTERN) // 2
    async with receiving(tmp_path) as place:
        stream, _ = await ask(place, offered(PATTERN))
        await stream.send(Begin(0).encode() + PATTERN[:half])
        await eventually(lambda: place.told.at == half)
        stream.reset()
        await eventually(lambda: len(place.told.stops) == 1)
        stream, resume = await ask(place, offered(PATTERN))
        assert resume == Resume(half, offered(PATTERN[:half]).sha256)
        await stream.send(Begin(half).encode() + PATTERN[half:])
        await stream.send_eof()
        assert (await read_message(stream, Receipt.decode)).new
        assert place.names() == ["a"]
        assert (place.directory / "a").read_bytes() == PATTERN


async def test_sender_may_restart_at_offset_0(anyio_backend: str, tmp_path: Path) -> None:
    async with receiving(tmp_path) as place:
        offer = offered(PATTERN)
        partial = partial_name(offer.name, offer.size, offer.sha256)
        written(place.directory / partial, b"not what it begins with")
        stream, resume = await ask(place, offer)
        assert resume.offset == 23
        await stream.send(Begin(5).encode())
        assert (await refusal(stream))[0] == RefusalCode.MALFORMED
        assert (await put(place, PATTERN)).new
        assert (place.directory / "a").read_bytes() == PATTERN


async def test_other_content_than_offered_is_thrown_away(
    anyio_backend: str, tmp_path: Path
) -> None:
    async with receiving(tmp_path) as place:
        stream, _ = await ask(place, offered(PATTERN))
        await stream.send(Begin(0).encode() + bytes(len(PATTERN)))
        await stream.send_eof()
        assert (await refusal(stream))[0] == RefusalCode.MISMATCH
        await eventually(lambda: place.names() == [])


async def test_neither_more_nor_less_than_offered(anyio_backend: str, tmp_path: Path) -> None:
    async with receiving(tmp_path) as place:
        stream, _ = await ask(place, offered(b"content"))
        await stream.send(Begin(0).encode() + b"content!")
        assert (await refusal(stream))[0] == RefusalCode.MALFORMED
        stream, _ = await ask(place, offered(b"content"))
        await stream.send(Begin(0).encode() + b"cont")
        await stream.send_eof()
        assert (await refusal(stream))[0] == RefusalCode.MALFORMED
        (left,) = place.names()
        assert left.endswith(PARTIAL_ENDING)
        assert (place.directory / left).read_bytes() == b"cont"


@pytest.mark.parametrize("name", ["../a", "/etc/passwd", "..", ".profile", "a\0", "x" * 300])
async def test_names_that_would_leave_or_hide(
    anyio_backend: str, tmp_path: Path, name: str
) -> None:
    async with receiving(tmp_path) as place:
        code, _ = await refused(place, offered(b"content", name))
        assert code == RefusalCode.UNSAFE_NAME
        assert place.told.refused_names == [ascii(name)[:80]]
        assert place.names() == []
        assert os.listdir(tmp_path) == ["in"]


@pytest.mark.parametrize("data", [b"\0\0", b"\xff\xff", b"\0\3abc", b"\0\1\xa0"])
async def test_invalid_offers(anyio_backend: str, tmp_path: Path, data: bytes) -> None:
    async with receiving(tmp_path) as place:
        code, text = await refused(place, data)
        assert (code, text) == (RefusalCode.MALFORMED, "that is not how files are sent")


async def test_the_largest_size(anyio_backend: str, tmp_path: Path) -> None:
    async with receiving(tmp_path, max_size=7) as place:
        assert (await put(place, b"content")).new
        code, text = await refused(place, offered(b"content!", "b"))
        assert (code, text) == (RefusalCode.TOO_LARGE, "at most 7 bytes are taken")


async def test_a_full_disk(
    anyio_backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with receiving(tmp_path) as place:
        stream, _ = await ask(place, offered(PATTERN))
        monkeypatch.setattr(os, "pwrite", full)
        await stream.send(Begin(0).encode() + PATTERN[:300_000])
        code, text = await refusal(stream)
        assert (code, text) == (RefusalCode.NO_SPACE, "the disk has no room for it")
        await eventually(lambda: place.names() == [])  # an empty partial file is useless


async def test_two_of_one_name_do_not_mix(anyio_backend: str, tmp_path: Path) -> None:
    async with receiving(tmp_path) as place:
        stream, _ = await ask(place, offered(PATTERN, "same"))
        for other in (offered(PATTERN, "same"), offered(b"content", "SAME")):
            assert (await refused(place, other))[0] == RefusalCode.BUSY
        await stream.send(Begin(0).encode() + PATTERN)
        await stream.send_eof()
        assert (await read_message(stream, Receipt.decode)).new


async def test_so_many_at_a_time(anyio_backend: str, tmp_path: Path) -> None:
    async with receiving(tmp_path, parallel=2) as place:
        streams = [(await ask(place, offered(b"content", name)))[0] for name in "ab"]
        assert (await refused(place, offered(b"content", "c")))[0] == RefusalCode.BUSY
        streams[0].reset()
        await eventually(lambda: len(place.receiver.slots) == 1)
        assert (await put(place, b"content", "c")).new
        streams[1].reset()
    async with receiving(tmp_path) as place:
        streams = [(await ask(place, offered(b"content", name)))[0] for name in "defg"]
        assert (await refused(place, offered(b"content", "h")))[0] == RefusalCode.BUSY


async def test_a_node_id_has_four_over_all_its_connections(
    anyio_backend: str, tmp_path: Path
) -> None:
    async with receiving(tmp_path) as place:
        for name in "abc":
            await ask(place, offered(b"content", name))
        again, _ = await connect_nodes(place.met.client, place.met.server)
        fourth = again.open_stream(LABEL)
        await fourth.send(offered(b"content", "d").encode())
        await read_message(fourth, Resume.decode)
        fifth = again.open_stream(LABEL)
        assert await refusal(fifth) == (RefusalCode.BUSY, "too many transfers at a time: at most 4")


@pytest.mark.parametrize("settings", [{"parallel": 2}, {"count": 2}])
async def test_sender_with_all_slots_loses_one_to_another(
    anyio_backend: str, tmp_path: Path, settings: dict[str, Any]
) -> None:
    async with receiving(tmp_path, **settings) as place, new_node() as other:
        slow, _ = await ask(place, offered(PATTERN, "a"))
        await slow.send(Begin(0).encode() + PATTERN[:1000])
        held, _ = await ask(place, offered(b"content", "b"))
        peer, _ = await connect_nodes(other, place.met.server)
        stream = peer.open_stream(LABEL)
        await stream.send(offered(b"content", "c").encode())
        await read_message(stream, Resume.decode)
        assert await refusal(slow) == (RefusalCode.BUSY, "another sender needs the slot")
        for one in (stream, held):
            await one.send(Begin(0).encode() + b"content")
            await one.send_eof()
            assert (await read_message(one, Receipt.decode)).new
        await eventually(lambda: len(place.receiver.slots) == 0)
        if "count" not in settings:  # the received part of it is kept
            assert (await ask(place, offered(PATTERN, "a")))[1].offset == 1000


@pytest.mark.parametrize("settings", [{"parallel": 1}, {"count": 1}])
async def test_undecided_offer_uses_no_slot(
    anyio_backend: str, tmp_path: Path, settings: dict[str, Any]
) -> None:
    asked, decided = anyio.Event(), anyio.Event()

    async def welcome(peer: Remote, offer: FileOffer) -> bool:
        if offer.name != "wanted":
            asked.set()
            await decided.wait()
        return offer.name == "wanted"

    async with receiving(tmp_path, welcome=welcome, **settings) as place:
        streams = [place.met.peer.open_stream(LABEL) for _ in range(3)]
        for number, stream in enumerate(streams):
            await stream.send(offered(b"content", f"x{number}").encode())
        with anyio.fail_after(5):
            await asked.wait()
        assert (await put(place, b"content", "wanted")).new
        decided.set()
        for stream in streams:
            assert (await refusal(stream))[0] == RefusalCode.DECLINED


async def test_no_more_files_than_wanted(anyio_backend: str, tmp_path: Path) -> None:
    async with receiving(tmp_path, count=1) as place:
        stream, _ = await ask(place, offered(b"content"))
        code, text = await refused(place, offered(b"content", "b"))
        assert (code, text) == (RefusalCode.BUSY, "no more files are taken")
        assert not place.receiver.finished.is_set()
        await stream.send(Begin(0).encode() + b"content")
        await stream.send_eof()
        assert (await read_message(stream, Receipt.decode)).new
        with anyio.fail_after(5):
            await place.receiver.finished.wait()
        assert place.receiver.arrived == 1
        assert (await refused(place, offered(b"content", "b")))[0] == RefusalCode.BUSY


async def test_silent_sender_loses_its_slot(
    anyio_backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver_module, "OFFER_TIMEOUT", 0.05)
    monkeypatch.setattr(receiver_module, "STALL_TIMEOUT", 0.05)
    async with receiving(tmp_path) as place:
        code, text = await refusal(place.met.peer.open_stream(LABEL))
        assert (code, text) == (RefusalCode.MALFORMED, "nothing came for too long")
        stream, _ = await ask(place, offered(PATTERN))
        await stream.send(Begin(0).encode() + PATTERN[:1000])
        assert (await refusal(stream))[1] == "nothing came for too long"
        await eventually(lambda: not place.receiver.of_sender)
        assert len(place.receiver.slots) == 0
        assert not place.receiver.names
        (left,) = place.names()
        assert (place.directory / left).stat().st_size == 1000


async def test_cancelled_transfer_keeps_the_partial_file(
    anyio_backend: str, tmp_path: Path
) -> None:
    async with receiving(tmp_path) as place:
        stream, _ = await ask(place, offered(PATTERN))
        await stream.send(Begin(0).encode() + PATTERN[:100_000])
        await eventually(lambda: place.told.at == 100_000)
        await place.met.server.aclose()
    (left,) = place.names()
    assert (place.directory / left).read_bytes() == PATTERN[:100_000]
