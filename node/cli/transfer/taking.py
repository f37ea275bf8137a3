"""Receiving by a short code: the sender is found, and has to have the code before it may send."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.util import find_spec
from typing import Final

from parley._crypto.identity import Identity
from parley._node.apps.codes.code import Code, CodeGoneError
from parley._node.apps.codes.exchange import take_code
from parley._node.apps.codes.slots import find_slot
from parley._node.apps.transfer.protocol import LABEL
from parley._node.cli.introduction import dialling_node
from parley._node.cli.options import NodeOptions
from parley._node.cli.output import Output
from parley._node.cli.run import hinting
from parley._node.cli.transfer.giving import entered_home
from parley._node.discovery.discovery import find
from parley._node.errors import ConfigError, HandshakeError, ParleyError
from parley._node.node import Node
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import CloseCode
from parley._node.transport.address import Address
from parley._node.trust.policies import AnyPeer

MOST_TRIED: Final = 3  # nodes on the local network that say they wait at the slot


# Called with the node and the peer that has the code, before the peer is told so.
Ready = Callable[[Node, Peer], object]


@asynccontextmanager
async def found_by_code(
    options: NodeOptions, out: Output, code: Code, at: str | None, home: str | None, ready: Ready
) -> AsyncIterator[Peer]:
    """The peer that has the code: at an address, through a home, or on the local network.

    Raises:
        WrongCodeError, CodeGoneError: as `take_code`; or nobody waits there. ConfigError: both ways
            are given, or none where the local network cannot be asked. And as `Node.connect`.
    """
    if at is not None and home is not None:
        raise ConfigError(f"cannot use --at {at} with --home {home}: leave one of the options out")
    if home is not None:
        async with (
            dialling_node(options, out, home) as node,
            entered_home(node, options, home, LABEL) as server,
        ):
            there = await find_slot(server, code.slot)
            if there == node.node_id:
                raise ConfigError(
                    f"cannot receive from {there.short}: it is your own node id; give --fresh on "
                    "one side"
                )
            assert server.server is not None  # it has answered
            peer = await server.reach(server.server, there)
            await _prove(node, peer, code, ready)
            yield peer
        return
    places = [(at,)] if at is not None else await _announced(out, code)
    identities = _identities(options, places)
    left = list(places)
    for identity in identities:
        async with Node(identity, config=options.config()) as node:
            try:
                peer = await _first(node, options, code, left, ready)
            except HandshakeError as error:
                if error.code != CloseCode.AUTHENTICATION_FAILED or identity is identities[-1]:
                    raise
                continue  # it may be our own node, which does not say so
            yield peer
            return


async def _prove(node: Node, peer: Peer, code: Code, ready: Ready) -> None:
    """Raises as `take_code`, and hangs up then."""
    try:
        await take_code(node, peer, code, partial(ready, node, peer))
    except BaseException:
        peer.live.drop(CloseCode.GOING_AWAY)
        raise


async def _announced(out: Output, code: Code) -> list[tuple[str, ...]]:
    """The addresses of each node on the local network that says it waits at the slot."""
    if find_spec("zeroconf") is None:
        raise ConfigError(
            f"cannot find the sender of the code {code.slot}-..: searching the local network "
            "requires the extra 'discovery'; give --at ADDR or --home ADDR"
        )
    out.remark("looking on the local network ..")
    found = await find(slot=code.slot)
    if not found:
        raise CodeGoneError(
            f"nobody on the local network waits at {code.slot}: give --at ADDR or --home ADDR, "
            "as the sender shows it"
        )
    return [one.addresses for one in found[:MOST_TRIED]]


def _identities(options: NodeOptions, places: Sequence[tuple[str, ...]]) -> list[Identity]:
    """With whose key to go there, and then with whose. A node never talks to itself: whoever
    receives from themselves does so with a throw-away one."""
    identity = options.identity()
    if not options.is_own:
        return [identity]
    there = {Address.parse(place).node_id for ways in places for place in ways}
    fresh = options.throw_away()
    return [fresh] if identity.node_id in there else [identity, fresh]


async def _first(
    node: Node,
    options: NodeOptions,
    code: Code,
    places: list[tuple[str, ...]],
    ready: Ready,
) -> Peer:
    """The first that has the code; else the last one's error. Who was met, and may have had its
    guess, is no more among `places`."""
    why: ParleyError = CodeGoneError("nobody waits for this code")
    for place in list(places):
        address, *also = place
        # The code proves who it is, so that whoever answers will do until then.
        trust = AnyPeer() if options.trust is None else options.dialling_trust(address)
        try:
            with hinting():
                peer = await node.connect(address, also=also, trust=trust)
            places.remove(place)
            await _prove(node, peer, code, ready)
        except ParleyError as error:
            why = error
        else:
            return peer
    raise why
