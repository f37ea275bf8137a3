"""Connect by a short code: the sender shows the code, and the receiver enters it."""

import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from typing import Final

import anyio

from parley._crypto.identity import Identity, NodeId
from parley._node.apps.pairing.code import SECONDS, Code, CodeGoneError, draw_slot
from parley._node.apps.pairing.exchange import LABEL as CODE_LABEL
from parley._node.apps.pairing.exchange import CodeListener, take_code
from parley._node.apps.pairing.slots import claim_slot, find_slot, free_slot, keep_slot
from parley._node.apps.transfer.protocol import LABEL
from parley._node.cli.first_contact import open_node
from parley._node.cli.options import NodeOptions
from parley._node.cli.output import Output
from parley._node.cli.param_types import warn
from parley._node.cli.run import handshake_hint, make_node
from parley._node.discovery.discovery import announce, find
from parley._node.errors import ConfigError, HandshakeError, KnownPeersError, ParleyError
from parley._node.node import Node
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import CloseCode
from parley._node.transport.address import Address
from parley._node.trust.known_peers import KnownPeers, default_known_peers
from parley._node.trust.policies import AnyPeer, Pinned
from parley._node.trust.words import fingerprint, in_two_lines
from parley._node.tunnels.home_server import Home

EVERYWHERE: Final = "tcp://0.0.0.0:0"
# For addresses that mean all interfaces: the socket family, an address of the documentation range
# to find the outgoing interface, and the loopback address.
_ELSEWHERE: Final = {
    "0.0.0.0": (socket.AF_INET, "192.0.2.1", "127.0.0.1"),  # noqa: S104  # not bound here
    "::": (socket.AF_INET6, "2001:db8::1", "::1"),
}


@dataclass(frozen=True)
class Rendezvous:
    """How the sender of a code can be found."""

    home: str | None
    listen: Sequence[str]
    announced: bool

    @classmethod
    def chosen(
        cls, home: str | None, listen: list[str] | None, announced: bool | None
    ) -> "Rendezvous":
        """Return the rendezvous for the options; ConfigError if they exclude each other."""
        places = listen or ([] if home else [EVERYWHERE])
        if announced and not places:
            raise ConfigError(
                f"cannot use --announce with --home {home}: it announces a listening address; "
                "give --listen too"
            )
        found = find_spec("zeroconf") is not None
        tcp = any(place.startswith("tcp://") for place in places)
        default = found and tcp and not home
        return cls(home, places, default if announced is None else announced)


@asynccontextmanager
async def accept_by_code(
    options: NodeOptions, out: Output, meeting: Rendezvous
) -> AsyncIterator[Peer]:
    """Show a code, and yield the peer that used it. The peer is recorded as known.

    Raises:
        WrongCodeError, CodeGoneError: as for `CodeListener.taker`. Also the errors of listening.
    """
    async with AsyncExitStack() as stack:
        if meeting.home is None:
            node = await stack.enter_async_context(make_node(options, options.listening_trust()))
        else:
            node = await stack.enter_async_context(open_node(options, out, meeting.home))
            await node.change_trust(options.listening_trust())
        home = kept = None
        slot = draw_slot()
        if meeting.home is not None:
            home = await stack.enter_async_context(log_in(node, options, meeting.home, CODE_LABEL))
            session = await home.ready()
            slot = await claim_slot(session)
            kept = partial(keep_slot, home, session, slot)
        code = Code.draw(slot)
        giver = CodeListener(node, code, lambda peer: _failed(out, peer))
        places = [await node.listen(place) for place in meeting.listen]
        if meeting.announced:
            await stack.enter_async_context(announce(node, slot=slot))
        _show(out, code, places, meeting)
        async with anyio.create_task_group() as tasks:
            if kept is not None:
                tasks.start_soon(kept)
            peer = await giver.taker()
            tasks.cancel_scope.cancel()
        if home is not None:
            await _freed(home, slot)
        assert peer.node_id is not None  # the code has proved it
        await node.change_trust(Pinned(peer.node_id))  # refuse all other nodes
        record_peer(out, peer.node_id)
        yield peer


@asynccontextmanager
async def log_in(
    node: Node, options: NodeOptions, address: str, export: str
) -> AsyncIterator[Home]:
    """Log the node in to a home server."""
    trust = options.dialling_trust(address)
    async with node.home(address, exports=[export], trust=trust) as home:
        with handshake_hint():
            await home.ready(attempts=1)
        yield home


def record_peer(out: Output, node_id: NodeId) -> None:
    """Record a peer that has proved the code. Warn if the file cannot be written."""
    words = fingerprint(node_id)
    out.event("met", node_id=str(node_id), words=words)
    out.print(f"met   {out.petnames.beside(node_id)}")
    out.print(f"      {in_two_lines(words, '      ')}")
    try:
        KnownPeers(default_known_peers()).add(node_id, None, datetime.now(UTC))
    except (KnownPeersError, ConfigError) as error:
        warn(f"cannot record the peer: {error}")


async def _freed(home: Home, slot: int) -> None:
    with suppress(ParleyError):  # otherwise the slot is freed when the session ends
        await free_slot(home, slot)


def _failed(out: Output, peer: str) -> None:
    out.event("wrong-code", peer=peer)
    out.print(f"a peer tried a wrong code: {peer}")


def _show(out: Output, code: Code, places: Sequence[str], meeting: Rendezvous) -> None:
    out.event(
        "code",
        code=str(code),
        seconds=int(SECONDS),
        addresses=list(places),
        home=meeting.home,
        announced=meeting.announced,
    )
    for port in [place.port for place in map(Address.parse, places) if place.host in _ELSEWHERE]:
        out.print(f"listening on all network interfaces, port {port}; --listen ADDR restricts it")
    out.print(f"code  {code}")
    out.print(f"      valid for one receiver, for {SECONDS / 60:g} minutes")
    ways = [f" --home {meeting.home}"] if meeting.home else []
    ways += [""] if meeting.announced else []
    ways += [f" --at {_dialled(place)}" for place in places]
    for number, way in enumerate(ways):
        out.print(f"{'   or' if number else 'enter'} parley receive {code}{way}")


def _dialled(place: str) -> str:
    """Return an address for the receiver, with a reachable host in place of all interfaces.

    The node ID is left out, because the code proves it.
    """
    address = Address.parse(place).without_node_id()
    there = _ELSEWHERE.get(address.host)
    if there is None:
        return str(address)
    version, elsewhere, loopback = there
    with socket.socket(version, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect((elsewhere, 9))
            host = sock.getsockname()[0]  # connecting a UDP socket sends nothing
        except OSError:
            host = loopback
    return str(replace(address, host=host))


MOST_TRIED: Final = 3  # maximum number of announced nodes to try


# Called with the node and the peer that has proved the code, before the peer is notified.
Ready = Callable[[Node, Peer], object]


@asynccontextmanager
async def connect_by_code(
    options: NodeOptions, out: Output, code: Code, at: str | None, home: str | None, ready: Ready
) -> AsyncIterator[Peer]:
    """Connect to the sender of the code: at an address, through a home, or on the local network.

    Raises:
        WrongCodeError, CodeGoneError: as for `take_code`, or no sender waits.
        ConfigError: `at` and `home` are given, or the local network can't be searched. Also those
            of `Node.connect`.
    """
    if at is not None and home is not None:
        raise ConfigError(f"cannot use --at {at} with --home {home}: leave one of the options out")
    if home is not None:
        async with (
            open_node(options, out, home) as node,
            log_in(node, options, home, LABEL) as server,
        ):
            there = await find_slot(server, code.slot)
            if there == node.node_id:
                raise ConfigError(
                    f"cannot receive from {there.short}: it is your own node id; give --fresh on "
                    "one side"
                )
            assert server.server is not None  # set, because the home has answered
            peer = await server.reach(server.server, there)
            await _prove(node, peer, code, ready)
            yield peer
        return
    places = [(at,)] if at is not None else await _announced(out, code)
    identities = _identities(options, places)
    left = list(places)
    for identity in identities:
        async with make_node(options, identity=identity) as node:
            try:
                peer = await _first(node, options, code, left, ready)
            except HandshakeError as error:
                if error.code != CloseCode.AUTHENTICATION_FAILED or identity is identities[-1]:
                    raise
                continue  # it may be the user's own node, which refuses without a reason
            yield peer
            return


async def _prove(node: Node, peer: Peer, code: Code, ready: Ready) -> None:
    """Prove the code to a peer; disconnect on an error of `take_code`."""
    try:
        await take_code(node, peer, code, partial(ready, node, peer))
    except BaseException:
        peer.live.drop(CloseCode.GOING_AWAY)
        raise


async def _announced(out: Output, code: Code) -> list[tuple[str, ...]]:
    """Return the addresses of each node on the local network that announces the slot."""
    if find_spec("zeroconf") is None:
        raise ConfigError(
            f"cannot find the sender of the code {code.slot}-..: searching the local network "
            "requires the extra 'discovery'; give --at ADDR or --home ADDR"
        )
    out.remark("searching the local network")
    found = await find(slot=code.slot)
    if not found:
        raise CodeGoneError(
            f"cannot find the sender of the code {code.slot}-..: no node on the local network "
            "announces it; give --at ADDR or --home ADDR, as the sender shows"
        )
    return [one.addresses for one in found[:MOST_TRIED]]


def _identities(options: NodeOptions, places: Sequence[tuple[str, ...]]) -> list[Identity]:
    """Return the identities to try, in order.

    A node cannot connect to itself, so a user who sends files to themselves needs a temporary one.
    """
    identity = options.identity()
    if not options.uses_own_identity:
        return [identity]
    there = {Address.parse(place).node_id for ways in places for place in ways}
    fresh = options.temporary_identity()
    return [fresh] if identity.node_id in there else [identity, fresh]


async def _first(
    node: Node,
    options: NodeOptions,
    code: Code,
    places: list[tuple[str, ...]],
    ready: Ready,
) -> Peer:
    """Connect to the first sender that has the code, or raise the last error.

    Tried senders are removed from `places`.
    """
    why: ParleyError = CodeGoneError("cannot receive: no sender is waiting for this code")
    for place in list(places):
        address, *also = place
        # The code proves the sender's identity, so any node may answer at first.
        trust = AnyPeer() if options.trust is None else options.dialling_trust(address)
        try:
            with handshake_hint():
                peer = await node.connect(address, also=also, trust=trust)
            places.remove(place)
            await _prove(node, peer, code, ready)
        except ParleyError as error:
            why = error
        else:
            return peer
    raise why
