"""Logging in and out at a home server (section 20)."""

from collections.abc import Callable, Sequence

from parley._node.messaging.outgoing_calls import OutgoingCall
from parley._node.peer.answer_stream import answer_of
from parley._node.peer.peer import Peer
from parley._node.protocol.errors import ConnectionClosedError

# In seconds.
LOGIN_TIMEOUT = 10.0


async def log_in(
    peer: Peer, exports: Sequence[str] = (), timeout: float | None = LOGIN_TIMEOUT
) -> None:
    """Log in at a home server, so that other nodes can reach this node through this session.

    The server shows `exports` to its users.

    Raises:
        CallRefused: this node has no account there (code 20), or too many nodes are logged in (19).
        CallTimeout: no answer arrived in time.
        PeerClosedError: the connection has ended.
        PayloadTooLargeError: the list of exports is too large.
    """
    logins, now = peer.calls.logins, peer.backend.now
    await _ask(peer, lambda done: logins.login(exports, now(), timeout, done))


async def log_out(peer: Peer, timeout: float | None = LOGIN_TIMEOUT) -> None:
    """Log out; raises the errors of `log_in`."""
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
