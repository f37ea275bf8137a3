"""Recorded handshakes: the reference's messages to a core in each step of a handshake.

Identities and randomness are fixed, so that the same script always gets the same bytes. The
reference's messages are created once for each setting and then replayed; the core's steps run again
for each input.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Literal
from unittest.mock import patch

from parley._crypto import key_exchange as our_exchange
from parley._crypto.identity import Identity
from parley._crypto.registry import SIGNING
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.connection import Connection
from parley._node.protocol.limits import Limits
from tests.reference import cbor, exchange, handshake, schedule
from tests.reference.exchange import Offer
from tests.reference.handshake import Agreement, Config
from tests.reference.identity import Identity as ReferenceIdentity
from tests.reference.recorded import seed
from tests.reference.sealing import Direction, Suite
from tests.reference.wire import CELLS, TYPES, Event, frame

Side = Literal["initiator", "responder"]

START: Final = 1000.0
OURS: Final = Identity.from_keys([SIGNING["ed25519"].load(seed("fuzzed core"))])
THEIRS: Final = ReferenceIdentity.from_seeds(("ed25519", seed("fuzzing peer")))
# The reference's own key creates the library's object for each signature.
SIGNER: Final = SIGNING["ed25519"].load(seed("fuzzing peer"))
NETWORK_KEY: Final = seed("network key")
SCALAR: Final = seed("fuzzing peer's scalar")
_HEADER: Final = 4


@dataclass(frozen=True)
class Setting:
    """Our side, and the settings of both; `suite` None for an unencrypted connection."""

    side: Side = "responder"
    suite: Suite | None = field(default_factory=lambda: Suite(kex="x25519"))
    core: Mapping[str, Any] = field(default_factory=dict, hash=False)
    limits: Limits = field(default_factory=Limits)
    kex: tuple[str, ...] = ("x25519",)  # ours
    their_kex: tuple[str, ...] = ("x25519",)

    def config(self) -> CoreConfig:
        """Ours."""
        algorithms = {"kex": self.kex}
        if self.suite is not None:
            suite = self.suite
            algorithms |= {
                "hash": (suite.hash,),
                "cipher": (suite.cipher,),
                "sealing": (suite.sealing,),
            }
        settings: dict[str, Any] = {"plaintext": "never" if self.suite else "only", **self.core}
        return CoreConfig(identity=OURS, limits=self.limits, algorithms=algorithms, **settings)

    def their_config(self) -> Config:
        """The reference's."""
        return Config(
            THEIRS,
            kex=self.their_kex,
            encrypted=self.suite is not None,
            plaintext=self.suite is None,
            network_key=self.core.get("network_key"),
        )


@dataclass(frozen=True)
class Chain:
    """The beginning of one direction; `direction` recreates it for each input."""

    suite: Suite
    secret: bytes
    chain: bytes
    commit: bytes

    def direction(self) -> Direction:
        """Return a direction without any event."""
        return Direction(self.suite, self.secret, self.chain, self.commit)


@dataclass(frozen=True)
class Keys:
    """What both sides have after the handshake."""

    proof: Chain  # of the reference's Proof
    outgoing: Chain  # of the reference
    incoming: Chain
    rekey: bytes


@dataclass(frozen=True)
class Flights:
    """What the reference sends; frames. `keys` None on an unencrypted connection."""

    first: bytes  # Hello or Reply
    proof: bytes
    keys: Keys | None
    limits: Mapping[str, int]
    suite: Suite | None


class FixedRandomness:
    """Bytes that look random and are the same in every run."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, size: int) -> bytes:
        self._count += 1
        block = seed(f"fuzzing randomness {self._count}")
        return (block * (size // len(block) + 1))[:size]


@contextmanager
def fixed_randomness() -> Iterator[None]:
    """Within it, ephemeral keys of both sides are the same in every run."""
    with (
        patch.object(our_exchange, "random_bytes", FixedRandomness()),
        patch.object(exchange, "random_bytes", lambda size: SCALAR[:size].ljust(size, b"\1")),
    ):
        yield


def begin(setting: Setting) -> Connection:
    """Return a core without any input; only within `fixed_randomness`."""
    return Connection(
        _config(setting),
        initiator=setting.side == "initiator",
        now=START,
        random=lambda size: bytes(size),
    )


def opened(setting: Setting) -> tuple[Connection, Flights]:
    """A core after its handshake, whose reports and flights were taken."""
    core, flights = begin(setting), recorded(setting)
    core.data_to_send(START)
    core.receive_data(flights.first, START)
    if flights.keys is not None:
        core.receive_data(flights.proof, START)
        core.accept_peer(START)
        core.receive_data(b"", START)  # Data that arrived with the Proof.
    core.reports()
    core.data_to_send(START)
    return core, flights


@cache
def recorded(setting: Setting) -> Flights:
    """Return the reference's messages in a successful handshake without a Retry."""
    with fixed_randomness():
        core = begin(setting)
        if setting.side == "initiator":
            return _respond(core, setting.their_config())
        return _initiate(core, setting.their_config())


def frames_of(wire: bytes) -> list[bytes]:
    """The events of some whole frames."""
    events, position = [], 0
    while position < len(wire):
        end = position + _HEADER + int.from_bytes(wire[position : position + _HEADER])
        events.append(wire[position + _HEADER : end])
        assert len(wire) >= end, "half a frame was sent"
        position = end
    return events


def proof_inner(config: Config) -> bytes:
    """The inside of an honest Proof."""
    cells = {CELLS["keys"]: config.identity.cell(), CELLS["node"]: config.node}
    return Event(0, 0, *TYPES["Proof"], cbor.encode_payload(cells)).inner


@cache
def _config(setting: Setting) -> CoreConfig:
    return setting.config()


def _initiate(core: Connection, config: Config) -> Flights:
    offer = Offer(config.kex[0], SCALAR, SCALAR * 2)
    hello = handshake.hello_event(config, SCALAR, [offer])
    core.receive_data(frame(hello), START)
    reply, *proofs = frames_of(core.data_to_send(START))
    decision = handshake.accept(config, {offer.kex: offer}, reply, retried=False)
    agreement, share = _agreed(decision)
    if agreement.suite is None:
        return Flights(frame(hello), b"", None, agreement.limits, None)
    (theirs,) = proofs
    suite, secret = agreement.suite, offer.complete(share)
    keys = schedule.handshake_keys(suite.hash, hello + reply, secret, config.network_key)
    start = schedule.chain_start_responder(keys)
    incoming = Direction(suite, keys.hs_responder, start, keys.commit)
    incoming.read(theirs)
    start = schedule.chain_start_initiator(keys, theirs)
    proof = Chain(suite, keys.hs_initiator, start, keys.commit)
    outgoing = proof.direction()
    ours = outgoing.write(0, proof_inner(config), SIGNER, sealed=True)
    application = schedule.application_keys(keys, theirs, ours)
    bound = Keys(
        proof,
        _bound(outgoing, application.ap_initiator, application),
        _bound(incoming, application.ap_responder, application),
        application.rekey,
    )
    return Flights(frame(hello), frame(ours), bound, agreement.limits, suite)


def _respond(core: Connection, config: Config) -> Flights:
    (hello,) = frames_of(core.data_to_send(START))
    agreement = handshake.respond(config, hello)
    assert isinstance(agreement, Agreement)
    suite, share, secret = agreement.suite, b"", b""
    if suite is not None:
        offered = handshake.handshake_cells(hello)[1][CELLS["shares"]][suite.kex]
        share, secret = exchange.answer(suite.kex, offered, SCALAR)
    reply = handshake.reply_event(config, SCALAR, suite, share)
    if suite is None:
        return Flights(frame(reply), b"", None, agreement.limits, None)
    keys = schedule.handshake_keys(suite.hash, hello + reply, secret, config.network_key)
    start = schedule.chain_start_responder(keys)
    proof = Chain(suite, keys.hs_responder, start, keys.commit)
    outgoing = proof.direction()
    ours = outgoing.write(0, proof_inner(config), SIGNER, sealed=True)
    core.receive_data(frame(reply) + frame(ours), START)
    core.accept_peer(START)
    core.receive_data(b"", START)  # Data that arrived with the Proof.
    (theirs,) = frames_of(core.data_to_send(START))
    start = schedule.chain_start_initiator(keys, ours)
    incoming = Direction(suite, keys.hs_initiator, start, keys.commit)
    incoming.read(theirs)
    application = schedule.application_keys(keys, ours, theirs)
    bound = Keys(
        proof,
        _bound(outgoing, application.ap_responder, application),
        _bound(incoming, application.ap_initiator, application),
        application.rekey,
    )
    return Flights(frame(reply), frame(ours), bound, agreement.limits, suite)


def _agreed(decision: tuple[Agreement, bytes] | handshake.Retry) -> tuple[Agreement, bytes]:
    assert isinstance(decision, tuple), "an unexpected Retry"
    return decision


def _bound(old: Direction, secret: bytes, keys: schedule.ApplicationKeys) -> Chain:
    chain = schedule.chain_bind(old.suite.hash, old.chain, keys.th2)
    return Chain(old.suite, secret, chain, old.commit)
