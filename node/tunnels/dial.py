"""Dialling a tunnel: Dial on a stream of its own, and what was answered (section 19)."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio

from parley._crypto.identity import NodeId
from parley._lbm import keys
from parley._lbm.errors import LbmDecodeError
from parley._node.errors import CallTimeout, PeerClosedError, StreamResetError, TunnelRefusedError
from parley._node.federation.dials import encode_dial
from parley._node.federation.limits import ANSWER_ALLOWANCE, LONGEST_TEXT
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import DIAL, TUNNEL, CloseCode, ResultCode
from parley._node.protocol.errors import LocalProtocolError
from parley._node.protocol.event_types import TUNNEL_ANSWER
from parley._node.remote.resumer import Dial
from parley._node.remote.tunnel_stream import TunnelStream
from parley._node.transport.driver import Driver
from parley._node.tunnels.tunnel_transport import TunnelOutlet

# What the end of the stream says of the tunnel.
_RESETS: Final[dict[int, int]] = {
    CloseCode.OVERLOADED: ResultCode.OVERLOADED,
    CloseCode.NOT_AUTHORISED: ResultCode.NOT_AUTHORISED,
}


async def dial_tunnel(
    peer: Peer,
    *,
    to: Sequence[NodeId] | None = None,
    path: Sequence[NodeId] | None = None,
    trace: bytes,
    timeout: float,
) -> TunnelOutlet:
    """Open a tunnel whose first hop is `peer`: to a server or to [home, node], by a way that `peer`
    writes; or along a path. `trace` is 16 random bytes, `timeout` seconds for all of it. The other
    side gets that less the round-trip time and 50 ms, so that its own answer arrives in time.

    The caller closes the tunnel, unless a driver does.

    Raises:
        TunnelRefusedError: it is not there; the code says why, 28 also if `peer` hung up or knows
            nothing of tunnels.
    """
    server = peer.node_id
    if server is None or peer.live.path:
        raise TunnelRefusedError(ResultCode.NOT_AUTHORISED)
    peer.live.measure_round_trip()
    left_ms = int((timeout - ANSWER_ALLOWANCE - peer.live.round_trip.estimate) * 1_000)
    if left_ms <= 0:
        raise TunnelRefusedError(ResultCode.DEADLINE_EXCEEDED)
    if path is not None:
        way = tuple(path)
        payload = encode_dial(trace, left_ms / 1_000, path=way)
    else:
        asked = tuple(to or ())
        way = (server, *(one for one in asked if one != server))
        payload = encode_dial(trace, left_ms / 1_000, to=asked)
    try:
        stream = peer.streams.open_tunnel()
    except PeerClosedError as error:
        raise TunnelRefusedError(ResultCode.UNREACHABLE) from error
    except LocalProtocolError as error:
        raise TunnelRefusedError(ResultCode.OVERLOADED) from error
    try:
        await _ask(stream, payload, timeout)
    except BaseException:
        stream.reset()
        raise
    return TunnelOutlet(stream, way)


async def _ask(stream: TunnelStream, payload: bytes, timeout: float) -> None:
    """Ask for it; raises TunnelRefusedError unless the answer is 0."""
    try:
        event = await stream.request(TUNNEL, DIAL, payload=payload, timeout=timeout)
        answer = TUNNEL_ANSWER.read(event.payload)
    except CallTimeout as error:
        raise TunnelRefusedError(ResultCode.DEADLINE_EXCEEDED) from error
    except StreamResetError as error:
        raise TunnelRefusedError(_RESETS.get(error.code, ResultCode.UNREACHABLE)) from error
    except (PeerClosedError, LocalProtocolError, anyio.EndOfStream, LbmDecodeError) as error:
        raise TunnelRefusedError(ResultCode.UNREACHABLE) from error
    code = answer[keys.CODE]
    if code:
        # It goes on to whoever dialled, over connections that may take less than this one.
        text = answer.get(keys.TEXT, "")[:LONGEST_TEXT]
        raise TunnelRefusedError(code, answer.get(keys.HOP, 0), text)


def tunnel_dial(reach: Callable[[], Awaitable[TunnelOutlet]]) -> Dial:
    """How a session is given another transport: an open tunnel that `reach` returns."""

    async def dial(accept: Callable[[], Driver | None]) -> None:
        tunnel = await reach()
        driver = accept()
        if driver is None:
            tunnel.close()
        else:
            tunnel.attach(driver)

    return dial
