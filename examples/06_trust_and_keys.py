"""Identities and trust: key files, pinned IDs, trust on first use, hooks and network keys.

Alice connects to Bob, while Eve tries to impersonate him.

Run it with `uv run python examples/06_trust_and_keys.py`.
"""

import logging
import secrets
import tempfile
from pathlib import Path

import anyio

from parley import (
    HandshakeError,
    Identity,
    Node,
    NodeConfig,
    NotTrustedError,
    PeerClosedError,
    load_identity,
    save_identity,
)
from parley.errors import IdentityChangedError, WrongPassphraseError
from parley.trust import Candidate, FirstUse, KnownPeers


def key_file(directory: Path) -> Identity:
    """Save an identity to an encrypted key file and load it again.

    The key file is the node's identity: a program that has it can act as this node.
    """
    path = directory / "alice.key"
    created = Identity.create()
    save_identity(path, created, b"correct horse")  # readable only by the owner, and encrypted
    try:
        load_identity(path, b"battery staple")
    except WrongPassphraseError as error:
        print("key file:", error)
    loaded = load_identity(path, b"correct horse")
    print("key file: the same node ID:", loaded.node_id == created.node_id)
    return loaded


async def pinned(alice: Node, bob: Node, eve: Node) -> None:
    """Connect to an address that contains a node ID: only that node is accepted."""
    address = await bob.listen("tcp://127.0.0.1:0")
    peer = await alice.connect(address)
    print("pinned: connected to bob:", peer.node_id == bob.node_id)
    # Keys are also replaced automatically, depending on time and traffic.
    peer.update_keys()  # switches to the next sending key
    print("pinned: agreed on new keys, rekey number", await peer.rekey())

    place = (await eve.listen("tcp://127.0.0.1:0")).split("#")[0]
    try:  # An attacker redirects Alice to Eve's address, but Eve cannot prove Bob's node ID.
        await alice.connect(f"{place}#{bob.node_id}")
    except NotTrustedError:
        print("pinned: eve was rejected")


async def first_use(alice: Node, bob: Node, eve: Node, directory: Path) -> None:
    """Connect to an address without a node ID, with trust on first use.

    The first node seen at an address is recorded, and later connections to it require the same
    node.
    """
    known = KnownPeers(directory / "known_peers")
    trust = FirstUse(known)
    socket = f"unix://{directory}/socket"
    await bob.listen(socket)
    for _ in range(2):
        peer = await alice.connect(socket, trust=trust)
        await peer.close()
    print("first use: recorded only bob:", [one.node_id for one in known] == [bob.node_id])
    await bob.aclose()  # then Eve listens at Bob's address
    await eve.listen(socket)
    try:
        await alice.connect(socket, trust=trust)
    except IdentityChangedError as changed:
        print("first use: another node was detected:", changed.new == eve.node_id)


async def accept_hook(alice: Node, eve: Node) -> None:
    """Decide in your own code which peers may connect."""
    members = {alice.node_id}

    async def is_member(candidate: Candidate) -> bool:
        return (
            candidate.node_id in members
        )  # The node ID is proved. A real hook could query a database.

    async with Node(Identity.create(), trust=is_member) as club:
        address = await club.listen("tcp://127.0.0.1:0")
        peer = await alice.connect(address)
        print("hook: alice was accepted:", await peer.ping() < 5)
        # The dialling node proves its identity last, so `connect` succeeds and the next operation
        # fails. The reason is only in the club's log; Eve gets a general error.
        rejected = await eve.connect(address)
        try:
            await rejected.ping()
        except PeerClosedError as error:
            print("hook: eve was rejected:", error)


async def network_key(eve: Node) -> None:
    """Use a network key: a private network does not respond to nodes that lack it."""
    settings = NodeConfig(network_key=secrets.token_bytes(32))
    one, two = Node(Identity.create(), config=settings), Node(Identity.create(), config=settings)
    async with one, two:
        address = await one.listen("tcp://127.0.0.1:0")
        print("network key: members can connect:", (await two.connect(address)).is_open)
        try:
            await eve.connect(address)
        except HandshakeError as error:
            print("network key: eve gets no answer:", error.text)


async def main(identity: Identity, directory: Path) -> None:
    alice, bob, eve = Node(identity), Node(Identity.create()), Node(Identity.create())
    async with alice, bob, eve:
        await pinned(alice, bob, eve)
        await first_use(alice, bob, eve, directory)
        await accept_hook(alice, eve)
        await network_key(eve)


if __name__ == "__main__":
    logging.getLogger("parley").setLevel(
        logging.ERROR
    )  # don't show the warnings about refused peers
    with tempfile.TemporaryDirectory() as name:
        anyio.run(main, key_file(Path(name)), Path(name))
