"""A file that is offered again after a cut, over a link, which dials by itself.

Only failures that may pass by themselves are tried again, a limited number of times in a row; a try
that brought bytes across begins a new row. A session that loses its transport and goes on over
another one is not cut: a transfer does not notice.
"""

from typing import Final, Protocol

import anyio

from parley._node.apps.transfer.protocol import Receipt, RefusalCode
from parley._node.apps.transfer.sender import Source, send_file
from parley._node.apps.transfer.watcher import Transfer, Watcher
from parley._node.errors import CallRefused, PeerClosedError, StreamResetError
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import CloseCode

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


class OpenSessions(Protocol):
    """Where the session comes from over which a file is sent: a `Link` is one."""

    async def ready(self, *, attempts: int | None = None) -> Peer:
        """The peer of a session that is open; raises as `Link.ready`."""


class OneSession:
    """A session that is not made anew once it is over."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    async def ready(self, *, attempts: int | None = None) -> Peer:
        """The peer; PeerClosedError once its session is over."""
        if not self._peer.is_open:
            raise self._peer.closed_error()
        return self._peer


async def send_over_link(
    link: OpenSessions, source: Source, watcher: Watcher, retries: int = RETRIES
) -> Receipt:
    """Send a file, going on after cuts. So many dials may fail in a row, and so many tries bring
    nothing across; then it raises as `send_file` and `Link.ready`."""
    progress = _Progress(watcher)
    failures = 0
    while True:
        # The end of a session is the first of the attempts that the link counts.
        peer = await link.ready(attempts=retries + 1)
        progress.moved = False
        try:
            return await send_file(peer, source, progress)
        except (CallRefused, PeerClosedError, StreamResetError) as error:
            failures = 1 if progress.moved else failures + 1
            passing = is_passing(error.code, refused=isinstance(error, CallRefused))
            if not passing or failures > retries:
                raise
            if not isinstance(error, PeerClosedError):
                pause = min(FIRST_PAUSE * 2.0 ** (failures - 1), LONGEST_PAUSE)
                watcher.retrying(source.offer.name, error, failures, pause)
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
