"""Dialling a tunnel (docs/protocol.md section 19): directly, or for a `via://` address."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio

from parley._crypto.identity import NodeId
from parley._crypto.randomness import random_bytes
from parley._lbm import keys
from parley._lbm.errors import LbmDecodeError
from parley._node.errors import CallTimeout, PeerClosedError, StreamResetError, TunnelRefusedError
from parley._node.federation.dials import encode_dial
from parley._node.federation.limits import ANSWER_ALLOWANCE, LONGEST_TEXT
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import DIAL, TUNNEL, CloseCode, ResultCode
from parley._node.protocol.errors import LocalError
from parley._node.protocol.event_types import TRACE_SIZE, TUNNEL_ANSWER
from parley._node.remote.resumer import DIAL_TIMEOUT, Dial
from parley._node.remote.tunnel_stream import TunnelStream
from parley._node.transport.address import Address
from parley._node.transport.backend import Backend
from parley._node.transport.driver import Driver
from parley._node.tunnels.session_pool import SessionPool
from parley._node.tunnels.tunnel_transport import TunnelTransport

# Seconds for opening a tunnel; a caller with less time cancels it.
TUNNEL_TIMEOUT: Final = 2 * DIAL_TIMEOUT
# Maps the codes of a Reset to result codes.
_RESETS: Final[dict[int, int]] = {
    CloseCode.OVERLOADED: ResultCode.OVERLOADED,
    CloseCode.NOT_AUTHORISED: ResultCode.NOT_AUTHORISED,
}


class ViaDialer:
    """Opens tunnels to `via://` addresses. All tunnels through one server share a connection to
    it, which `connect` opens. `current` returns the ID to dial in place of one."""

    def __init__(
        self,
        connect: Callable[[str], Awaitable[Peer]],
        current: Callable[[NodeId], NodeId],
        loop: Callable[[], Backend],
    ) -> None:
        self._connect = connect
        self._current = current
        self._servers: SessionPool[Address] = SessionPool(lambda peer: loop().spawn(peer.close))

    def dial(self, address: Address) -> Dial:
        """Return the dial function of a via address."""
        return tunnel_dial(lambda: self.open(address))

    async def open(self, address: Address) -> TunnelTransport:
        """Open a tunnel to the node of a via address.

        Raises:
            TunnelRefusedError: no tunnel leads there.
            UnreachableError, HandshakeError: cannot connect to its server.
            IdentityEndedError: an ID in the address has ended without a successor.
        """
        assert address.node_id is not None  # `Node` rejects other addresses
        server = address.of_server
        homes = () if address.home is None else (self._current(address.home),)
        peer = await self._servers.acquire(server, lambda: self._connect(str(server)))
        try:
            tunnel = await dial_tunnel(
                peer,
                to=(*homes, address.node_id),
                trace=random_bytes(TRACE_SIZE),
                timeout=TUNNEL_TIMEOUT,
            )
        except BaseException:
            self._servers.release(server)
            raise
        tunnel.add_closed_callback(lambda: self._servers.release(server))
        return tunnel


async def dial_tunnel(
    peer: Peer,
    *,
    to: Sequence[NodeId] | None = None,
    path: Sequence[NodeId] | None = None,
    trace: bytes,
    timeout: float,
) -> TunnelTransport:
    """Open a tunnel whose first hop is `peer`: along `path`, or `to` a server or [home, node] by a
    path that `peer` chooses. `trace` is 16 random bytes.

    `timeout` is in seconds. `peer` gets that time less the round-trip time and 50 ms, so that its
    answer arrives in time. The caller closes the tunnel, unless a driver does.

    Raises:
        TunnelRefusedError: the tunnel was refused or could not be opened; `code` is the reason's
            result code. It is 28 also if `peer` closed the connection or doesn't support tunnels.
    """
    server = peer.node_id
    if server is None or peer.live.path:
        raise TunnelRefusedError(ResultCode.NOT_AUTHORISED)
    peer.live.measure_round_trip()
    left_ms = int((timeout - ANSWER_ALLOWANCE - peer.live.round_trip.estimate) * 1_000)
    if left_ms <= 0:
        raise TunnelRefusedError(ResultCode.DEADLINE_EXCEEDED)
    if path is not None:
        route = tuple(path)
        payload = encode_dial(trace, left_ms / 1_000, path=route)
    else:
        target = tuple(to or ())
        route = (server, *(one for one in target if one != server))
        payload = encode_dial(trace, left_ms / 1_000, to=target)
    try:
        stream = peer.streams.open_tunnel()
    except PeerClosedError as error:
        raise TunnelRefusedError(ResultCode.UNREACHABLE) from error
    except LocalError as error:
        raise TunnelRefusedError(ResultCode.OVERLOADED) from error
    try:
        await _request(stream, payload, timeout)
    except BaseException:
        stream.reset()
        raise
    return TunnelTransport(stream, route)


async def _request(stream: TunnelStream, payload: bytes, timeout: float) -> None:
    """Send a Dial and wait for the Answer; raise TunnelRefusedError unless its code is 0."""
    try:
        event = await stream.request(TUNNEL, DIAL, payload=payload, timeout=timeout)
        answer = TUNNEL_ANSWER.read(event.payload)
    except CallTimeout as error:
        raise TunnelRefusedError(ResultCode.DEADLINE_EXCEEDED) from error
    except StreamResetError as error:
        raise TunnelRefusedError(_RESETS.get(error.code, ResultCode.UNREACHABLE)) from error
    except (PeerClosedError, LocalError, anyio.EndOfStream, LbmDecodeError) as error:
        raise TunnelRefusedError(ResultCode.UNREACHABLE) from error
    code = answer[keys.CODE]
    if code:
        # The Dial may be forwarded over connections with smaller limits than this one.
        text = answer.get(keys.TEXT, "")[:LONGEST_TEXT]
        raise TunnelRefusedError(code, answer.get(keys.HOP, 0), text)


def tunnel_dial(open_tunnel: Callable[[], Awaitable[TunnelTransport]]) -> Dial:
    """Return a dial function that gives a session a new tunnel as its transport."""

    async def dial(accept: Callable[[], Driver | None]) -> None:
        tunnel = await open_tunnel()
        driver = accept()
        if driver is None:
            tunnel.close()
        else:
            tunnel.attach(driver)

    return dial
