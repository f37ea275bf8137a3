"""Row 2. Mistake: no forward secrecy: who gets the long-term keys reads what was recorded.

Promise: with both identities' private keys leaked after the session (and the network key,
and all that a node still held of a later epoch), a recorded session stays closed; and what
would open it is in nobody's memory any more.

Also: tests/node/protocol/test_initiator.py::test_ephemeral_keys_and_random_are_fresh, and
row 21 for what key updates and rekeys leave behind under load.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import anyio
import pytest

from crypto.identity import Identity
from crypto.randomness import random_bytes
from crypto.registry import NAMES, SIGNING
from node.node import Node
from node.protocol.observer import Observer
from node.transport.memory import memory_pair
from node.trust import AnyPeer
from tests.node.network import config as node_config
from tests.node.network import eventually
from tests.node.protocol.pair import ALIVE, Pair, events_of, make_config
from tests.reference import schedule
from tests.reference.handshake import handshake_cells
from tests.reference.recorded import seed
from tests.reference.sealing import Suite
from tests.reference.wire import CELLS
from tests.security.eavesdropper import (
    Secrets,
    Tape,
    derived,
    followed,
    guesses,
    opened,
)
from tests.security.exchanges import (
    Exchanges,
    in_memory,
    private_keys,
    veiled,
    watched_exchanges,
)
from tests.security.witness import TappedStream

NETWORK_KEY = seed("network key of row 2")  # the vectors, which other tests load, have another
HYBRID = "x25519-mlkem768"
OWNERS = ("ours", "theirs")
LEAKED = [seed(f"{owner} {name}") for owner in OWNERS for name in NAMES["signing"]]
PRIMARIES = [seed(f"{owner} {NAMES['signing'][0]}") for owner in OWNERS]


def identity(owner: str, *names: str) -> Identity:
    """One whose private keys are in `LEAKED`."""
    return Identity.from_keys([SIGNING[name].load(seed(f"{owner} {name}")) for name in names])


@pytest.fixture
def exchanges() -> Iterator[Exchanges]:
    with watched_exchanges() as exchanges:
        yield exchanges


@dataclass
class Recorded:
    """A session that is over, what passed, and what was agreed in it."""

    tape: Tape
    offer: bytes
    answer: bytes
    network_key: bytes | None


def busy(pair: Pair) -> None:
    """Events on several streams in several epochs: plain updates, and two rekeys by `b`."""
    for number in range(6):
        for side in pair.sides:
            stream = side.core.open_stream(f"stream {number}")
            side.core.send_data(stream, b"secret %d" % number)
            side.core.send(1, 0, 64, 1, b"secret %d" % number, lbm=False, seal=number % 2 == 0)
        pair.pump()
        match number:
            case 1:
                pair.a.core.update_keys(pair.now)
                pair.b.core.update_keys(pair.now)
            case 2 | 4:
                pair.b.core.rekey(pair.now)
            case 3:
                pair.b.core.update_keys(pair.now)
        pair.pump()


def make_pair(tape: Observer | None = None, **settings: Any) -> Pair:
    """Two cores whose identities have a key of every algorithm."""
    settings.setdefault("rekey_allowance", 100)
    a, b = (make_config(identity(owner, *NAMES["signing"]), **settings) for owner in OWNERS)
    return Pair(a, b, observers=(tape, None))


def record(
    kex: str, network_key: bytes | None = None, sealing: str = "chain", **names: str
) -> Recorded:
    """A whole session, recorded from Hello to Close."""
    suite = {"kex": kex, "sealing": sealing, **names}
    algorithms = {parameter: (name,) for parameter, name in suite.items()}
    tape = Tape()
    pair = make_pair(tape, algorithms=algorithms, network_key=network_key)
    pair.pump()
    busy(pair)
    pair.a.core.close(pair.now)
    pair.pump()
    assert len(tape.events) > 40
    assert len(tape.rekeys) == 2
    offer, answer = (shares(side.wire)[kex] for side in pair.sides)
    return Recorded(tape, offer, answer, network_key)


def shares(wire: bytes | bytearray) -> dict[str, bytes]:
    """The key shares that a side's Hello or Reply had."""
    shares: dict[str, bytes] = handshake_cells(events_of(wire)[0])[1][CELLS["shares"]]
    return shares


def everything_opens(recorded: Recorded, exchanges: Exchanges) -> bool:
    """What the two sides knew opens all of it: the eavesdropper works, and lacks only that."""
    first, *again = map(veiled, exchanges.agreed)
    keys = derived(recorded.tape, first, recorded.network_key, dict(enumerate(again, 1)))
    assert keys == {**keys, **{e: veiled(hidden) for e, hidden in recorded.tape.secrets.items()}}
    return opened(recorded.tape, keys) == recorded.tape.everything


@pytest.mark.parametrize("sealing", NAMES["sealing"])
@pytest.mark.parametrize("network_key", [None, NETWORK_KEY], ids=["open", "network"])
@pytest.mark.parametrize("cipher", NAMES["cipher"])
def test_both_identities_private_keys_open_nothing(
    cipher: str, network_key: bytes | None, sealing: str, exchanges: Exchanges
) -> None:
    recorded = record("x25519", network_key, sealing, cipher=cipher)
    for guess in guesses("x25519", recorded.offer, recorded.answer, LEAKED):
        for key in {None, network_key}:
            assert opened(recorded.tape, derived(recorded.tape, guess, key)) == []
    assert everything_opens(recorded, exchanges)


def test_nor_do_they_open_what_the_hybrid_exchange_protects(exchanges: Exchanges) -> None:
    recorded = record(HYBRID)
    for guess in guesses(HYBRID, recorded.offer, recorded.answer, PRIMARIES):
        assert opened(recorded.tape, derived(recorded.tape, guess)) == []
    assert everything_opens(recorded, exchanges)


@pytest.mark.parametrize("hash_name", NAMES["hash"])
@pytest.mark.parametrize("signing", NAMES["signing"])
def test_whatever_signs_and_hashes_the_keys_do_not_follow_from_it(
    signing: str, hash_name: str, exchanges: Exchanges
) -> None:
    recorded = record("x25519", signing=signing, hash=hash_name)
    for guess in guesses("x25519", recorded.offer, recorded.answer, PRIMARIES):
        assert opened(recorded.tape, derived(recorded.tape, guess)) == []
    assert everything_opens(recorded, exchanges)


def test_one_half_of_the_hybrid_exchange_opens_nothing(exchanges: Exchanges) -> None:
    """Should X25519 fall to a quantum computer, or ML-KEM to a discovery."""
    recorded = record(HYBRID)
    true = veiled(exchanges.agreed[0])
    post_quantum, classical = true[:32], true[32:]
    for guess in guesses("x25519", recorded.offer[-32:], recorded.answer[-32:], PRIMARIES):
        for secret in (post_quantum + guess, guess + classical, post_quantum, classical):
            assert opened(recorded.tape, derived(recorded.tape, secret)) == []
    assert everything_opens(recorded, exchanges)


@pytest.mark.parametrize("kex", NAMES["kex"])
def test_what_a_node_holds_later_opens_no_earlier_epoch(kex: str, exchanges: Exchanges) -> None:
    """A node that is taken over gives away its current epochs, and what follows plainly."""
    recorded = record(kex)
    tape = recorded.tape
    numbers = {sent: max(n for s, n in tape.secrets if s == sent) for sent in (True, False)}
    assert min(numbers.values()) >= 3
    for sent in (True, False):
        for number in range(numbers[sent] + 1):
            held: Secrets = {(sent, number): veiled(tape.secrets[sent, number])}
            keys = followed(tape, held, veiled(tape.rekey))
            seen = opened(tape, keys)
            assert {event.epoch for event in seen} == set(keys)
            assert min(keys) == (sent, number)
            # As far as the next rekey: from there on it is closed again.
            rekeyed = [n for s, n in tape.rekeyed_epochs if s == sent and n > number]
            assert max(keys)[1] == min(rekeyed, default=numbers[sent] + 1) - 1
    assert everything_opens(recorded, exchanges)


@pytest.mark.parametrize("kex", NAMES["kex"])
def test_all_that_was_known_before_a_rekey_opens_nothing_after_it(
    kex: str, exchanges: Exchanges
) -> None:
    recorded = record(kex)
    tape, true = recorded.tape, veiled(exchanges.agreed[0])
    before = derived(tape, true)
    assert {epoch for epoch in tape.secrets if epoch not in before}
    for guess in guesses(kex, recorded.offer, recorded.answer, [true[:32]]):
        keys = derived(tape, true, again={1: guess, 2: guess})
        later = {epoch: key for epoch, key in keys.items() if epoch not in before}
        assert opened(tape, later) == []
    assert everything_opens(recorded, exchanges)


@pytest.mark.parametrize("kex", NAMES["kex"])
def test_ephemeral_keys_are_never_used_again(kex: str, exchanges: Exchanges) -> None:
    """Neither in another session of the same two, nor in a rekey, nor by the other side."""
    sent: list[bytes] = []
    for _ in range(10):
        pair = make_pair(algorithms={"kex": (kex,)})
        pair.pump()
        sent += [shares(side.wire)[kex] for side in pair.sides]
        for _ in range(3):
            pair.a.core.rekey(pair.now)
            pair.pump()
            pair.b.core.rekey(pair.now)
            pair.pump()
    parts = {"x25519": 1 + 1, HYBRID: 3 + 1}[kex]  # drawn by the offerer, by the answerer
    assert len(exchanges.private) == len(set(exchanges.private)) == 10 * 7 * parts
    assert len(exchanges.agreed) == 10 * 7
    assert len(exchanges.shared) == 2 * 10 * 7
    assert len(set(sent)) == 20
    classical = {share[-32:] for share in sent}
    assert len(classical) == 20


# Memory.


class Slotted:
    __slots__ = ("secret",)

    def __init__(self, secret: object) -> None:
        self.secret = secret


def cached(secret: bytes) -> object:
    """A function that remembers what it returned."""
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


def test_the_search_finds_a_secret_wherever_it_is() -> None:
    hidden = {where: veiled(random_bytes(32)) for where in (*HOLDERS, "nowhere")}
    holders = [hold(veiled(hidden[where])) for where, hold in HOLDERS.items()]
    assert in_memory(hidden) == set(HOLDERS)
    holders.clear()
    assert in_memory(hidden) == set()


def derived_secrets(
    wires: tuple[bytes, bytes], shared: bytes, network_key: bytes | None
) -> dict[str, bytes]:
    """All that section 5 derives from a veiled shared secret, veiled again, by name."""
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
    # The search finds what is there: the offerer still needs its part.
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
            # The node's own objects, and a Peer that the application keeps.
            assert peer.node_id is not None
            assert in_memory(hidden) == set()
            assert private_keys() == others
