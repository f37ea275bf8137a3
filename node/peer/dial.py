"""Dialling a node: trying its addresses in order, checking its identity, and cleaning up failed
dials.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

import anyio
from anyio.abc import ByteStream

from parley._node.config import NodeConfig
from parley._node.errors import ConfigError, HandshakeError, UnreachableError
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.states import State
from parley._node.remote.resumer import DIAL_TIMEOUT, Dial, Prove, SessionResumer
from parley._node.transport.address import Address
from parley._node.transport.backend import Backend
from parley._node.transport.driver import Driver
from parley._node.transport.transport import StreamTransport
from parley._node.trust.policies import (
    AcceptHook,
    Dialled,
    Pinned,
    ResolvedPolicy,
    TrustPolicy,
    as_policy,
)


def parse_addresses(address: str, also: Iterable[str]) -> list[Address]:
    """Parse the addresses of one node; if one includes the node ID, it applies to all.

    Raises:
        AddressError: an address is invalid.
        ConfigError: two addresses have different node IDs.
    """
    if isinstance(also, str) or not isinstance(also, Iterable):
        raise ConfigError(f"invalid also {also!r}: expected a list of addresses")
    first, *others = [Address.parse(text) for text in (address, *also)]
    for other in others:
        if first.node_id is None and other.node_id is not None:
            first = first.with_node_id(other.node_id)
        if other.node_id not in (None, first.node_id):
            raise ConfigError(f"invalid also '{other}': it has another node ID than {first}")
    if first.node_id is None:
        return [first, *others]
    return [one.with_node_id(first.node_id) for one in (first, *others)]


def policy_for(
    target: Address | None, trust: TrustPolicy | AcceptHook | None, config: NodeConfig
) -> ResolvedPolicy:
    """Return the trust policy for an address: its node ID, or the successor of that, if it has one,
    otherwise `trust`.

    Raises:
        ConfigError: neither is given, or the policy cannot be combined with plaintext.
    """
    if target is not None and target.node_id is not None:
        if trust is not None:
            as_policy(trust)  # Check the policy even though the address decides.
        trust = Dialled(target.node_id)
    if trust is None:
        where = "this node" if target is None else f"the node at {target}"
        raise ConfigError(
            f"cannot decide whether to trust {where}: the address has no node ID, and no trust "
            "policy is given; append #NODEID, or give trust="
        )
    policy = as_policy(trust)
    if config.plaintext == "only" and not policy.allows_plaintext:
        raise ConfigError(
            f"cannot use trust {policy.name!r} with plaintext={config.plaintext!r}: "
            "unencrypted peers cannot prove a node ID; use trust 'any' or plaintext='never'"
        )
    return policy


async def open_peer(
    peer: Peer, dials: Sequence[Dial], timeout: float, anew: Callable[[TrustPolicy], Peer]
) -> None:
    """Dial until an address answers, then do the handshake; raises the errors of `Node.connect`.

    `anew` creates another peer, for the case that the remote node no longer knows the session.
    """
    backend = peer.backend
    resumer = SessionResumer(peer.live, dials, proof(peer, anew))
    peer.live.use_resumer(resumer)
    with drop_on_failure(peer):
        with anyio.move_on_after(timeout) as scope:
            resumer.next = await _dial(peer, dials, backend.now() + timeout)
            await peer.live.opened()
        if scope.cancelled_caught:
            raise HandshakeError(
                CloseCode.TIMEOUT, f"the handshake did not complete in {timeout:g} s"
            )


async def _dial(peer: Peer, dials: Sequence[Dial], until: float) -> int:
    """Dial in order, each with its share of the time; return the index of the dial that
    answered.
    """
    *others, final = dials
    for number, dial in enumerate(others):
        share = (until - peer.backend.now()) / (len(dials) - number)
        with suppress(UnreachableError), anyio.move_on_after(share):
            await dial(lambda: peer.driver)
        if peer.driver.was_connected:
            return number
    await final(lambda: peer.driver)
    return len(others)  # If this dial also failed, the peer has ended with the reason.


async def open_over(peer: Peer, stream: ByteStream) -> None:
    """Do the handshake over a byte stream, as either side; raises the errors of `Node.connect`."""
    StreamTransport(stream, peer.driver, peer.backend)
    with drop_on_failure(peer):
        await peer.live.opened()


def stream_dial(redial: Callable[[], Awaitable[ByteStream]], backend: Backend) -> Dial:
    """Return a dial function that opens another byte stream for a session."""

    async def dial(accept: Callable[[], Driver | None]) -> None:
        stream = await redial()
        driver = accept()
        if driver is None:
            await anyio.aclose_forcefully(stream)
        else:
            StreamTransport(stream, driver, backend)

    return dial


def proof(peer: Peer, anew: Callable[[TrustPolicy], Peer]) -> Prove:
    """Return a function that opens and closes a session of its own to prove that a peer answers."""

    async def prove(dial: Dial) -> None:
        assert peer.node_id is not None  # A session can only resume if its peer is authenticated.
        fresh = anew(Pinned(peer.node_id))
        with drop_on_failure(fresh), anyio.fail_after(DIAL_TIMEOUT):
            await dial(lambda: fresh.driver)
            await fresh.live.opened()
        fresh.live.drop(CloseCode.NORMAL)

    return prove


@contextmanager
def drop_on_failure(peer: Peer) -> Iterator[None]:
    """Clean up after a dial that failed, timed out or was cancelled, even at the last moment."""
    try:
        yield
    except (HandshakeError, TimeoutError) as failure:
        peer.driver.blame()
        _log_failure(peer, failure, refused=True)
        # The responder still has to send its Reject or Close; the core limits how long this takes.
        if peer.core.state is not State.CLOSING:
            peer.live.drop(CloseCode.GOING_AWAY)
        raise
    except BaseException as error:
        if isinstance(error, UnreachableError):
            _log_failure(peer, error, refused=False)
        peer.live.drop(CloseCode.GOING_AWAY)
        raise


def _log_failure(peer: Peer, error: Exception, *, refused: bool) -> None:
    """Log why a dial failed."""
    if not peer.core.initiator:
        return  # It was accepted, not dialled, and its end is logged elsewhere.
    ended, why = peer.live.ended, str(error) or "it took too long"
    if ended is not None and ended.reason not in why:
        why = f"{why}: {ended.reason}"
    peer.handlers.log.dial_failed(peer.name, why, refused=refused)
