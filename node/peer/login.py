"""Logging in at a home, and out (section 20)."""

from collections.abc import Callable, Sequence

from parley._node.messaging.outgoing_calls import OutgoingCall
from parley._node.peer.answer_stream import answer_of
from parley._node.peer.peer import Peer
from parley._node.protocol.errors import ConnectionClosedError

# Seconds for an answer.
LOGIN_TIMEOUT = 10.0


async def log_in(
    peer: Peer, exports: Sequence[str] = (), timeout: float | None = LOGIN_TIMEOUT
) -> None:
    """Log in at a peer, which from then on lets others reach this node over this session. `exports`
    are for people there to see.

    Raises:
        CallRefused: we have no account there (code 20), or too many are logged in (19).
        CallTimeout: no answer in time.
        PeerClosedError: the connection is over.
        PayloadTooLargeError: there are too many exports for it.
    """
    logins, now = peer.calls.logins, peer.backend.now
    await _ask(peer, lambda done: logins.login(exports, now(), timeout, done))


async def log_out(peer: Peer, timeout: float | None = LOGIN_TIMEOUT) -> None:
    """Log out; raises as `log_in`."""
    logins, now = peer.calls.logins, peer.backend.now
    await _ask(peer, lambda done: logins.logout(now(), timeout, done))


async def _ask(peer: Peer, send: Callable[[Callable[[], None]], OutgoingCall]) -> None:
    waiter = peer.backend.waiter()
    try:
        call = send(waiter.wake)
    except ConnectionClosedError as error:
        raise peer.closed_error() from error
    try:
        await waiter
    finally:
        if not call.done:
            peer.outgoing.cancel(call)
    answer_of(call)
