"""Who a node is and whom it trusts: key files, trust policies, fresh keys, a network key.

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
    """An identity is its keys: who holds the file is that node."""
    path = directory / "alice.key"
    created = Identity.create()
    save_identity(path, created, b"correct horse")  # for the owner's eyes only, and sealed
    try:
        load_identity(path, b"battery staple")
    except WrongPassphraseError as error:
        print("key file:", error)
    loaded = load_identity(path, b"correct horse")
    print("key file: the same node again:", loaded.node_id == created.node_id)
    return loaded


async def pinned(alice: Node, bob: Node, eve: Node) -> None:
    """An address that carries a node id means that node and no other."""
    address = await bob.listen("tcp://127.0.0.1:0")
    peer = await alice.connect(address)
    print("pinned: it is bob:", peer.node_id == bob.node_id)
    # Keys change by themselves, with time and traffic; these are for those who want it now.
    peer.update_keys()  # the next keys in our direction, from now on
    print("pinned: fresh keys were agreed on, rekey number", await peer.rekey())

    place = (await eve.listen("tcp://127.0.0.1:0")).split("#")[0]
    try:  # somebody leads alice to eve's place: eve cannot prove to be bob
        await alice.connect(f"{place}#{bob.node_id}")
    except NotTrustedError:
        print("pinned: it is not bob")


async def first_use(alice: Node, bob: Node, eve: Node, directory: Path) -> None:
    """Without a node id: whoever is met first at an address has to be met there again."""
    known = KnownPeers(directory / "known_peers")
    trust = FirstUse(known)
    socket = f"unix://{directory}/door"
    await bob.listen(socket)
    for _ in range(2):
        peer = await alice.connect(socket, trust=trust)
        await peer.close()
    print("first use: it was bob both times:", [one.node_id for one in known] == [bob.node_id])
    await bob.aclose()  # and somebody else takes his place
    await eve.listen(socket)
    try:
        await alice.connect(socket, trust=trust)
    except IdentityChangedError as changed:
        print("first use: the id has changed:", changed.new == eve.node_id)


async def accept_hook(alice: Node, eve: Node) -> None:
    """A node that listens may ask the application about everybody who comes."""
    members = {alice.node_id}

    async def is_member(candidate: Candidate) -> bool:
        return candidate.node_id in members  # proved; it might as well ask a database

    async with Node(Identity.create(), trust=is_member) as club:
        address = await club.listen("tcp://127.0.0.1:0")
        peer = await alice.connect(address)
        print("hook: alice is in:", await peer.ping() < 5)
        # The node that dials proves itself last, so it meets the refusal after `connect`. The
        # reason stands in the club's log and nowhere else.
        stranger = await eve.connect(address)
        try:
            await stranger.ping()
        except PeerClosedError as error:
            print("hook: eve is told no more than:", error)


async def network_key(eve: Node) -> None:
    """A private network says nothing at all to those who do not hold its key."""
    settings = NodeConfig(network_key=secrets.token_bytes(32))
    one, two = Node(Identity.create(), config=settings), Node(Identity.create(), config=settings)
    async with one, two:
        address = await one.listen("tcp://127.0.0.1:0")
        print("network key: members meet:", (await two.connect(address)).is_open)
        try:
            await eve.connect(address)
        except HandshakeError as error:
            print("network key: eve is not even answered:", error.text)


async def main(identity: Identity, directory: Path) -> None:
    alice, bob, eve = Node(identity), Node(Identity.create()), Node(Identity.create())
    async with alice, bob, eve:
        await pinned(alice, bob, eve)
        await first_use(alice, bob, eve, directory)
        await accept_hook(alice, eve)
        await network_key(eve)


if __name__ == "__main__":
    logging.getLogger("parley").setLevel(logging.ERROR)  # refusals are warnings; not today
    with tempfile.TemporaryDirectory() as name:
        anyio.run(main, key_file(Path(name)), Path(name))
