"""Trust on first use: dial an address, and ask the user about an unknown node.

An unknown address is dialled twice. The first connection uses a temporary identity and learns the
node's ID, which the user is asked to confirm. Without a terminal the node is refused, unless
`--trust` is given. A node cannot connect to itself, so users dial their own node with a temporary
identity.
"""

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Final

from parley._crypto.identity import Identity, NodeId
from parley._node.cli.options import NodeOptions
from parley._node.cli.output import Output
from parley._node.cli.prompts import can_prompt, prompt_yes_no
from parley._node.cli.run import dial, make_node, peer_fields, remark_successor
from parley._node.errors import ConfigError, NotTrustedError
from parley._node.logs import one_line
from parley._node.node import Node
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import CloseCode
from parley._node.transport.address import Address
from parley._node.trust.known_peers import KnownPeer, KnownPeers
from parley._node.trust.policies import Candidate, FirstUse, known_peers_of
from parley._node.trust.words import fingerprint, in_two_lines

_STRANGER: Final = """\
You have not connected to {place} before. The node there has the ID
    {node_id}
or, as words to read aloud,
    {words}
Its operator can compare this with the output of `parley id show`.
Trust this node from now on?"""


@asynccontextmanager
async def open_node(options: NodeOptions, out: Output, address: str) -> AsyncIterator[Node]:
    """Run a node that can dial `address`, once the node there is trusted.

    Raises:
        NotTrustedError: the user does not trust it. AddressError, and the errors of `Node.connect`:
            it can't be reached.
    """
    identity = await _identity_for(options, out, Address.parse(address))
    async with make_node(options, identity=identity) as node:
        yield node


@asynccontextmanager
async def connect(options: NodeOptions, out: Output, address: str) -> AsyncIterator[Peer]:
    """Connect to `address`. Leaving the block closes the peer and the node."""
    async with open_node(options, out, address) as node:
        peer = await dial(node, address, options.dialling_trust(address))
        remark_successor(out, address, peer)
        out.event("connected", **peer_fields(peer))
        try:
            yield peer
            await peer.close()
        finally:
            peer.live.drop(CloseCode.GOING_AWAY)  # no effect if already closed


async def _identity_for(options: NodeOptions, out: Output, address: Address) -> Identity:
    """Return the identity to dial with, after recording an unknown node."""
    identity = options.identity()
    there = address.node_id
    policy = None if there or options.plaintext else options.dialling_trust(str(address))
    known_peers = known_peers_of(policy)
    if known_peers is not None:
        on_record = known_peers.by_name(address.place)
        if on_record is not None:
            there = on_record.node_id
        elif isinstance(policy, FirstUse):
            there = await _who_is_there(options, address)
            if there != identity.node_id:
                trusted = options.trust is not None
                statements = options.statements()
                statements.refresh()
                lines = known_peers.lookup_all(statements.table.lineage(there))
                await _introduce(out, known_peers, lines, there, address.place, trusted=trusted)
    if there != identity.node_id:
        return identity
    if not options.uses_own_identity:
        raise ConfigError(
            f"cannot connect to '{address}': it is your own node ID; give another key with "
            "--identity"
        )
    if sys.stderr.isatty():
        out.remark(f"{address.place} is your own node: connecting with a temporary identity")
    return options.temporary_identity()


async def _who_is_there(options: NodeOptions, address: Address) -> NodeId:
    """Return the ID that the node at an address proves, and disconnect."""
    met: list[NodeId] = []

    async def look(candidate: Candidate) -> bool:
        met.append(candidate.node_id)
        return False

    identity = options.temporary_identity()
    async with make_node(options, identity=identity) as node:
        try:
            await dial(node, str(address), look)
        except NotTrustedError:
            if not met:
                raise
    return met[0]


async def _introduce(
    out: Output,
    known_peers: KnownPeers,
    lines: Sequence[KnownPeer],
    there: NodeId,
    place: str,
    *,
    trusted: bool,
) -> None:
    """Record an unknown node at an address, after asking the user. If there are `lines` for it or
    its predecessors, add the address to the first of them instead. If `trusted` (`--trust
    first-use` is given), accept the node without a question when there is no terminal.
    """
    words = fingerprint(there)
    if lines:
        _say(f"the node at {place} is already known as {_called(lines[0])}")
    elif can_prompt(out):
        question = _STRANGER.format(place=place, node_id=there, words=in_two_lines(words, "    "))
        if not await prompt_yes_no(question):
            raise NotTrustedError(
                f"cannot trust the node at {place!r}: you declined; its ID is {there}"
            )
    elif trusted:
        _say(f"trusting the node at {place} from now on: {there} ({words})")
    else:
        raise NotTrustedError(
            f"cannot trust the node at {place!r}: it is unknown, and there is no terminal to ask "
            f"at; its ID is {there} ({words}); append #NODEID to the address, or give --trust "
            "first-use"
        )
    # A successor's line of its own would outlive a conflict about it, or a person's refusal.
    known_peers.add(lines[0].node_id if lines else there, place, datetime.now(UTC))


def _called(peer: KnownPeer) -> str:
    """Return the user's name for a peer, or its first address, or its ID."""
    named = [name for name in peer.names if "://" not in name]
    return (*named, *peer.names, str(peer.node_id))[0]


def _say(text: str) -> None:
    print(f"parley: {one_line(text)}", file=sys.stderr, flush=True)
