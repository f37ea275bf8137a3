"""The receiving side of `parley.file`: a stream handler for any node.

Whatever the sender does, its stream ends with a receipt or a refusal, and files under their final
names are complete. Disk access and hashing run in threads.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

import anyio
from anyio.to_thread import run_sync

from parley._node.apps.transfer.hashes import Hashes
from parley._node.apps.transfer.names import UnsafeNameError, require_safe, same_file_key
from parley._node.apps.transfer.progress import Transfer, Watcher
from parley._node.apps.transfer.protocol import (
    LABEL,
    Begin,
    FileOffer,
    MessageError,
    Receipt,
    RefusalCode,
    Resume,
    TransferRefused,
    read_message,
    storage_refusal,
)
from parley._node.apps.transfer.store import FileStore, Partial
from parley._node.fair_slots import FairSlots
from parley._node.handlers.permissions import Allow
from parley._node.node import Node
from parley._node.remote.remote import Remote
from parley._node.remote.stream import Stream
from parley._node.trust.admission import address_key

logger = logging.getLogger("parley.transfer")

PARALLEL = 8  # concurrent transfers, of all senders
PER_PEER = 4  # offers and transfers per node ID, over all its connections
OFFER_TIMEOUT = 10.0  # seconds to wait for the first message
BEGIN_TIMEOUT = 900.0  # the sender may have to hash the bytes that the receiver has
STALL_TIMEOUT = 60.0  # and for each further piece
BATCH = 256 * 1024  # bytes per write in a thread, at most a stream's window


# Returns whether to accept files from a peer, given its first offer. It may take any time: a
# waiting offer doesn't occupy one of the slots that all senders share.
Welcome = Callable[[Remote, FileOffer], Awaitable[bool]]


async def _everybody(peer: Remote, offer: FileOffer) -> bool:
    return True


@dataclass(eq=False, slots=True)
class _Slot:
    """A transfer in progress; `waiting_since` is set while the receiver waits for the sender."""

    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    evicted: bool = False
    waiting_since: float | None = None


class FileReceiver:
    """Receives files into a store.

    At most `count` files are received, or any number if None; `finished` is set after the last one.
    `welcome` decides whether to accept an offer.

    Example:

        from tempfile import TemporaryDirectory
        from pathlib import Path
        from parley.transfer import FileReceiver, FileStore

        with TemporaryDirectory() as directory, FileStore(Path(directory)) as store:
            FileReceiver(store).offer_on(node)
    """

    def __init__(
        self,
        store: FileStore,
        watcher: Watcher | None = None,
        *,
        parallel: int = PARALLEL,
        count: int | None = None,
        welcome: Welcome = _everybody,
    ) -> None:
        self._store = store
        self._welcome = welcome
        self._watcher = watcher or Watcher()
        self._parallel = parallel
        self._count = count
        self._arrived = 0
        # Number of offers that are read, decided on or received, by node ID or address.
        self.of_sender: Counter[str] = Counter()
        self.slots: FairSlots[_Slot] = FairSlots(lambda slot: slot.waiting_since)
        self.names: set[str] = set()
        self.hashes = Hashes()
        self.finished = anyio.Event()

    @property
    def arrived(self) -> int:
        """The number of files that were received, or that the receiver already had."""
        return self._arrived

    def offer_on(self, node: Node, allow: Allow | None = None) -> None:
        """Receive files from the node's peers, or only from those in `allow`.

        Raises:
            ParleyError: the node already has a handler for files.
        """
        node.on_stream(LABEL, allow=allow)(self.serve)

    async def serve(self, stream: Stream) -> None:
        """Receive one file: the stream handler."""
        sender, slot = _sender(stream.peer), _Slot()
        self.of_sender[sender] += 1
        name = ""
        try:
            if self.of_sender[sender] > PER_PEER:
                raise TransferRefused(
                    RefusalCode.BUSY, f"too many transfers at a time: at most {PER_PEER}"
                )
            with anyio.fail_after(OFFER_TIMEOUT):
                offer = await read_message(stream, FileOffer.decode)
            name = ascii(offer.name)[:80]  # escaped until it has been checked
            name = _checked_name(offer)
            if not await self._welcome(stream.peer, offer):
                raise TransferRefused(RefusalCode.DECLINED, "no files are taken from you")
            self._take_slot(slot, sender)
            with slot.scope:
                await self._take_reserved(stream, offer, slot)
            if slot.evicted:
                raise TransferRefused(RefusalCode.BUSY, "another sender needs the slot")
        except MessageError as error:
            logger.info("%s: %s", stream.peer, error, extra={"event": "transfer.refused"})
            text = "that is not how files are sent"
            self._refuse(stream, name, TransferRefused(RefusalCode.MALFORMED, text))
        except TransferRefused as refusal:
            self._refuse(stream, name, refusal)
        except TimeoutError:
            self._refuse(
                stream, name, TransferRefused(RefusalCode.MALFORMED, "nothing came for too long")
            )
        except OSError as error:
            logger.warning("cannot store %r: %s", name, error, extra={"event": "transfer.failed"})
            self._refuse(stream, name, storage_refusal(error))
        finally:
            self.slots.remove(slot)
            self.of_sender[sender] -= 1
            self.of_sender += Counter()  # removes zero counts
        if self._count is not None and self._arrived >= self._count:
            self.finished.set()

    def _take_slot(self, slot: _Slot, sender: str) -> None:
        """Occupy a slot for a transfer, if necessary by evicting an idle transfer or one of the
        sender with the most.
        """
        free, text = self._parallel - len(self.slots), "too many transfers at a time"
        if self._count is not None:
            wanted = self._count - self._arrived - len(self.slots)
            if wanted < free:
                free, text = wanted, "no more files are taken"
        if free <= 0:
            evicted = None
            if len(self.slots):
                evicted = self.slots.evict_for(sender, anyio.current_time())
            if evicted is None:
                raise TransferRefused(RefusalCode.BUSY, text)
            evicted.evicted = True
            evicted.scope.cancel()
        self.slots.add(slot, sender)

    def _refuse(self, stream: Stream, name: str, refusal: TransferRefused) -> None:
        stream.reset(refusal.code, refusal.text)
        self._watcher.refused(name, _who(stream), refusal)

    async def _take_reserved(self, stream: Stream, offer: FileOffer, slot: _Slot) -> None:
        """Receive a file while no other sender may send one with the same name."""
        key = same_file_key(offer.name)
        if key in self.names:
            raise TransferRefused(RefusalCode.BUSY, "a file of that name is just arriving")
        self.names.add(key)
        try:
            await self._take(stream, offer, slot)
        finally:
            self.names.discard(key)

    async def _take(self, stream: Stream, offer: FileOffer, slot: _Slot) -> None:
        transfer = Transfer(offer, _who(stream))
        new = not await self._is_there(offer, transfer.peer)
        if new:
            await self._receive(stream, transfer, slot)
        else:
            transfer.offset = transfer.at = offer.size
            await stream.send(Resume(offer.size, offer.sha256).encode())
            await _read_begin(stream, slot, offer.size, only=True)
        self._arrived += 1
        self._watcher.finished(transfer, new=new)
        await stream.send(Receipt(offer.sha256, new).encode())
        await stream.send_eof()

    async def _is_there(self, offer: FileOffer, who: str) -> bool:
        file = await run_sync(self._store.open_existing, offer)
        if file is None:
            return False
        try:
            digest, size = await self.hashes.of(file, who)
        finally:
            file.close()
        if size == offer.size and digest.digest() == offer.sha256:
            return True
        await run_sync(self._store.require_replaceable, offer.name)
        return False

    async def _receive(self, stream: Stream, transfer: Transfer, slot: _Slot) -> None:
        offer = transfer.offer
        partial = await run_sync(self._store.open_partial, offer, transfer.peer)
        began = False
        try:
            found = await partial.hash(self.hashes, transfer.peer)
            await stream.send(Resume(partial.size, found).encode())
            begin = await _read_begin(stream, slot, partial.size)
            if begin.offset != partial.size:
                await run_sync(partial.restart)
            transfer.offset = transfer.at = partial.size
            self._watcher.began(transfer)
            began = True
            await self._fill(stream, partial, transfer, slot)
            if partial.digest() != offer.sha256:
                await run_sync(self._store.discard, partial)
                raise TransferRefused(RefusalCode.MISMATCH, "what arrived has another SHA-256")
            await run_sync(self._store.place, partial, offer.name)
        except BaseException as error:
            if began:
                self._watcher.stopped(transfer, error if isinstance(error, Exception) else None)
            if not partial.size:
                with suppress(OSError):
                    self._store.discard(partial)
            raise
        finally:
            if began:  # otherwise its content is unknown
                with suppress(OSError):
                    partial.keep_hash(self.hashes)
            partial.close()

    async def _fill(
        self, stream: Stream, partial: Partial, transfer: Transfer, slot: _Slot
    ) -> None:
        """Write the received bytes, which must be exactly as many as offered."""
        size, batch = transfer.offer.size, bytearray()
        try:
            while (piece := await _next_piece(stream, slot)) is not None:
                if transfer.at + len(piece) > size:
                    raise TransferRefused(
                        RefusalCode.MALFORMED, f"more than the {size:,} bytes offered came"
                    )
                batch += piece
                transfer.at += len(piece)
                self._watcher.advanced(transfer)
                if len(batch) >= BATCH:
                    full, batch = batch, bytearray()
                    await run_sync(partial.write, full)
            full, batch = batch, bytearray()
            await run_sync(partial.write, full)
        finally:
            # Store the received bytes, so that they need not be sent again. Not in a thread,
            # because asyncio may cancel a second time and would not wait for it.
            partial.write(batch)
        if transfer.at != size:
            raise TransferRefused(
                RefusalCode.MALFORMED, f"{transfer.at:,} of the {size:,} bytes offered came"
            )


async def _next_piece(stream: Stream, slot: _Slot) -> bytes | None:
    with anyio.fail_after(STALL_TIMEOUT):
        slot.waiting_since = anyio.current_time()
        try:
            return await stream.receive()
        except anyio.EndOfStream:
            return None
        finally:
            slot.waiting_since = None


async def _read_begin(stream: Stream, slot: _Slot, offset: int, *, only: bool = False) -> Begin:
    with anyio.fail_after(BEGIN_TIMEOUT):
        slot.waiting_since = anyio.current_time()
        try:
            begin = await read_message(stream, Begin.decode)
        finally:
            slot.waiting_since = None
    if begin.offset != offset and (only or begin.offset != 0):
        raise MessageError(f"it begins at offset {begin.offset:,}, which was not offered")
    return begin


def _checked_name(offer: FileOffer) -> str:
    try:
        return require_safe(offer.name)
    except UnsafeNameError as error:
        raise TransferRefused(RefusalCode.UNSAFE_NAME, str(error)) from None


def _sender(peer: Remote) -> str:
    """Return the identity for limits: the node ID, or the remote address if there is none."""
    return str(peer.node_id or address_key(peer.name)[0])


def _who(stream: Stream) -> str:
    return str(stream.peer.node_id or stream.peer.name)
