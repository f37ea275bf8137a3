"""A connection that is dialled again, and a file that is offered again, after a cut.

Only failures that may pass by themselves are tried again, a limited number of times in a row; a try
that brought bytes across begins a new row.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from node.apps.transfer.protocol import Receipt, RefusalCode
from node.apps.transfer.sender import Source, send_file
from node.apps.transfer.watcher import Transfer, Watcher
from node.errors import (
    CallRefused,
    HandshakeError,
    PeerClosedError,
    StreamResetError,
    UnreachableError,
)
from node.peer.peer import Peer
from node.protocol.codes import CloseCode

RETRIES: Final = 8
FIRST_PAUSE: Final = 0.5  # seconds; each next one in a row is twice as long
LONGEST_PAUSE: Final = 30.0

_PASSING = frozenset(
    {
        CloseCode.CONNECTION_LOST,
        CloseCode.TIMEOUT,
        CloseCode.NORMAL,
        CloseCode.GOING_AWAY,
        CloseCode.OVERLOADED,
        CloseCode.TOO_MANY_STREAMS,
        CloseCode.BAD_RECORD,  # a broken line; what comes over the next is checked likewise
        CloseCode.CANCELLED,
    }
)


class TransferLine:
    """A peer that is dialled again once its connection is over; one at a time."""

    def __init__(self, peer: Peer, dial: Callable[[], Awaitable[Peer]]) -> None:
        self.who = str(peer.node_id or peer.name)
        self._peer = peer
        self._dial = dial
        self._lock = anyio.Lock()

    async def peer(self) -> Peer:
        """The peer, over an open connection; raises what dialling raises."""
        async with self._lock:
            if not self._peer.is_open:
                self._peer = await self._dial()
            return self._peer

    async def close(self) -> None:
        """Say Close."""
        await self._peer.close()


async def send_with_retries(
    line: TransferLine, source: Source, watcher: Watcher, retries: int = RETRIES
) -> Receipt:
    """Send a file, going on after cuts; raises as `send_file` and `TransferLine.peer` at last."""
    progress = _Progress(watcher)
    failures = 0
    while True:
        progress.moved = False
        try:
            return await send_file(await line.peer(), source, progress)
        except (CallRefused, HandshakeError, PeerClosedError, StreamResetError) as error:
            failed: Exception = error
            passing = is_passing(error.code, refused=isinstance(error, CallRefused))
        except UnreachableError as error:
            failed, passing = error, True
        failures = 1 if progress.moved else failures + 1
        if not passing or failures > retries:
            raise failed
        pause = min(FIRST_PAUSE * 2.0 ** (failures - 1), LONGEST_PAUSE)
        watcher.retrying(source.offer.name, failed, failures, pause)
        await anyio.sleep(pause)


def is_passing(code: int, *, refused: bool) -> bool:
    """Whether what ended a try with this code may be over at the next."""
    return code == RefusalCode.BUSY if refused else code in _PASSING


class _Progress(Watcher):
    """Hands on what tries tell, and sees whether bytes go across."""

    def __init__(self, watcher: Watcher) -> None:
        self.moved = False
        self._watcher = watcher
        self._furthest = 0

    def began(self, transfer: Transfer) -> None:
        # What the receiver has is what really went across in earlier tries.
        self.moved = transfer.offset > self._furthest
        self._furthest = max(self._furthest, transfer.offset)
        self._watcher.began(transfer)

    def advanced(self, transfer: Transfer) -> None:
        self._watcher.advanced(transfer)

    def stopped(self, transfer: Transfer, error: Exception | None) -> None:
        self._watcher.stopped(transfer, error)

    def finished(self, transfer: Transfer, *, new: bool) -> None:
        self._watcher.finished(transfer, new=new)
