"""Row 2: secrets that would open a recorded session leave the memory when they are no longer
needed.

That is after a handshake, an epoch, a rekey or a connection has ended. All objects of the process
are searched, for the secrets and for other forms of them. test_row_02_forward_secrecy.py shows that
nothing else opens the recording.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import anyio
import pytest
from anyio.abc import ByteStream

from parley._crypto.identity import Identity
from parley._crypto.randomness import random_bytes
from parley._crypto.registry import NAMES
from parley._node.node import Node
from parley._node.transport.memory import memory_pair
from parley._node.trust.policies import AnyPeer
from tests.node.network import config as node_config
from tests.node.network import eventually
from tests.node.protocol.pair import ALIVE, events_of
from tests.reference import schedule
from tests.reference.handshake import handshake_cells
from tests.reference.sealing import Suite
from tests.reference.wire import CELLS
from tests.security.busy_sessions import HYBRID, NETWORK_KEY, busy, make_pair
from tests.security.eavesdropper import (
    Tape,
)
from tests.security.exchanges import (
    Exchanges,
    in_memory,
    private_keys,
    veiled,
)

pytestmark = pytest.mark.alone


class Slotted:
    __slots__ = ("secret",)

    def __init__(self, secret: object) -> None:
        self.secret = secret


def cached(secret: bytes) -> object:
    """Return a function that caches its results."""
    remembering = lru_cache(lambda size: secret[:size] + b"!")
    remembering(len(secret))
    return remembering


HOLDERS: dict[str, Callable[[bytes], object]] = {
    "a list": lambda secret: [secret],
    "a tuple": lambda secret: [(secret, 1)],
    "a dict in a list": lambda secret: [{"a": secret}],
    "a key of a dict": lambda secret: Slotted({secret: 1}),
    "a slot": Slotted,
    "a slot, within more bytes": lambda secret: Slotted(b"before" + secret + b"behind"),
    "a bytearray": lambda secret: Slotted(bytearray(secret)),
    "a number": lambda secret: Slotted(int.from_bytes(secret)),
    "digits": lambda secret: Slotted(f"a repr of {secret.hex()}"),
    "an exception": lambda secret: ValueError("a message", secret),
    "a closure": lambda secret: lambda: secret,
    "a default": lambda secret: lambda kept=secret: kept,
    "a bound method": lambda secret: [Slotted(secret).__repr__],
    "a cache": cached,
}


class TappedStream(ByteStream):
    """A byte stream that records the sent bytes."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self.sent = bytearray()

    async def send(self, item: bytes) -> None:
        await self._stream.send(item)
        self.sent += item

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        return await self._stream.receive(max_bytes)

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()


def test_the_search_finds_a_secret_wherever_it_is() -> None:
    hidden = {where: veiled(random_bytes(32)) for where in (*HOLDERS, "nowhere")}
    holders = [hold(veiled(hidden[where])) for where, hold in HOLDERS.items()]
    assert in_memory(hidden) == set(HOLDERS)
    holders.clear()
    assert in_memory(hidden) == set()


def derived_secrets(
    wires: tuple[bytes, bytes], shared: bytes, network_key: bytes | None
) -> dict[str, bytes]:
    """Derive all secrets of section 5 from a veiled shared secret, veiled again, by name."""
    initiator, responder = map(events_of, wires)
    (hello, proof_i), (reply, proof_r) = initiator[:2], responder[:2]
    names = handshake_cells(reply)[1][CELLS["suite"]]
    suite = Suite(*(names[number] for number in range(1, 6)))
    keys = schedule.handshake_keys(suite.hash, hello + reply, veiled(shared), network_key)
    done = schedule.application_keys(keys, proof_r, proof_i)
    secrets = {
        "hs": keys.hs,
        "hs initiator": keys.hs_initiator,
        "hs responder": keys.hs_responder,
        "master": done.master,
        "commit": keys.commit,
        "ap initiator": done.ap_initiator,
        "ap responder": done.ap_responder,
        "rekey": done.rekey,
        **({"early": keys.early} if network_key else {}),
    }
    return {name: veiled(secret) for name, secret in secrets.items()}


@pytest.mark.parametrize(
    ("kex", "network_key"),
    [(HYBRID, None), ("x25519", NETWORK_KEY)],
    ids=["hybrid", "classical in a network"],
)
def test_after_the_handshake_its_secrets_are_in_no_object(
    kex: str, network_key: bytes | None, exchanges: Exchanges
) -> None:
    others = private_keys()
    pair = make_pair(algorithms={"kex": (kex,)}, network_key=network_key)
    pair.carry(pair.a)
    # The search works: it finds the offerer's private part, which is still needed.
    assert in_memory(exchanges.hidden) & {"private 0", "private 2"}
    assert private_keys() == others + (kex == HYBRID)
    pair.pump()
    wires = bytes(pair.a.wire), bytes(pair.b.wire)
    hidden = exchanges.hidden | derived_secrets(wires, exchanges.agreed[0], network_key)
    assert in_memory(hidden) == {"commit", "rekey", "ap initiator", "ap responder"}
    assert private_keys() == others

    pair.a.core.update_keys(pair.now)
    pair.pump()
    assert in_memory(hidden) == {"commit", "rekey", "ap responder"}

    pair.a.core.close(pair.now)
    pair.pump()
    pair.a.core.receive_eof(pair.now)
    pair.b.core.receive_eof(pair.now)
    assert in_memory(hidden) == set()


@pytest.mark.parametrize("kex", NAMES["kex"])
def test_after_a_rekey_nothing_of_it_and_of_the_epochs_before_is_in_any_object(
    kex: str, exchanges: Exchanges
) -> None:
    others = private_keys()
    tape = Tape()
    pair = make_pair(tape, algorithms={"kex": (kex,)})
    pair.pump()
    busy(pair)
    epochs = {f"epoch {epoch}": hidden for epoch, hidden in tape.secrets.items()}
    last = {
        f"epoch {(sent, max(n for s, n in tape.secrets if s == sent))}" for sent in (0 < 1, 0 > 1)
    }
    hidden = {
        **epochs,
        "rekey": tape.rekey,
        **{f"shared {n}": secret for n, secret in enumerate(exchanges.agreed)},
        **{f"private {n}": secret for n, secret in enumerate(exchanges.private)},
    }
    assert len(epochs) > 6
    assert in_memory(hidden) == last
    assert private_keys() == others
    pair.b.core.close(pair.now)
    pair.pump()
    assert in_memory(hidden) == set()


@pytest.mark.parametrize("ends", ["refused", "cut", "aborted", "late"])
def test_a_handshake_that_fails_leaves_no_secret(ends: str, exchanges: Exchanges) -> None:
    pair = make_pair(algorithms={"kex": (HYBRID,)})
    if ends == "refused":
        pair.b.answer = False
        pair.pump()
    else:
        pair.carry(pair.a)
        match ends:
            case "cut":
                for side in pair.sides:
                    side.core.receive_eof(pair.now)
                    side.collect(pair.now)
            case "aborted":
                for side in pair.sides:
                    side.core.close(pair.now)
                    side.collect(pair.now)
            case "late":
                pair.advance(60.0)
    assert pair.a.code != ALIVE
    assert pair.b.code != ALIVE
    assert exchanges.shared
    assert in_memory(exchanges.hidden) == set()


@pytest.mark.anyio
async def test_nodes_that_run_on_hold_no_secret_of_a_session_that_is_over(
    anyio_backend: str, exchanges: Exchanges
) -> None:
    others = private_keys()
    settings = node_config(algorithms={"kex": (HYBRID,)})
    ours, theirs = map(TappedStream, memory_pair())
    with anyio.fail_after(10):
        async with (
            Node(Identity.create(), config=settings) as server,
            Node(Identity.create(), config=settings) as client,
        ):

            @server.on_call("echo")
            async def echo(call: Any) -> object:
                return call.data

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(server.accept_stream, theirs)
                peer = await client.connect_stream(ours, trust=AnyPeer())
            assert await peer.call("echo", 1) == 1
            wires = bytes(ours.sent), bytes(theirs.sent)
            hidden = exchanges.hidden | derived_secrets(wires, exchanges.agreed[0], None)
            assert in_memory(hidden) == {"commit", "rekey", "ap initiator", "ap responder"}
            assert private_keys() == others
            await peer.close()
            await eventually(lambda: not server.peers and not client.peers)
            # The node's own objects, and a Peer that the application still references.
            assert peer.node_id is not None
            assert in_memory(hidden) == set()
            assert private_keys() == others
