"""The handshake over a channel, from Hello to the second Proof (section 5).

Transcripts hold the transmitted bytes. `Misbehaviour` changes the messages that this side sends.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from nacl.utils import random as random_bytes

from tests.reference import cbor, exchange, handshake, schedule
from tests.reference.cbor import LbmError
from tests.reference.channel import Channel, ConnectionLost
from tests.reference.exchange import Offer
from tests.reference.handshake import Agreement, Config, Retry
from tests.reference.identity import RemoteIdentity, check_node_information, read_identity
from tests.reference.primitives import CryptoFailure
from tests.reference.resume import read_answer
from tests.reference.sealing import Direction, Opened, Signer, Suite, verify_seal
from tests.reference.statements import read_presented
from tests.reference.wire import CELLS, CODES, TYPES, Event, Violation, cells_payload

Change = Callable[[bytes], bytes]


@dataclass(frozen=True)
class Misbehaviour:
    """Changes by event name ('Hello', 'second Hello', 'Retry', 'Reply', 'Proof', 'Proof inner').

    A changed raw event enters the own transcript as changed. `proof_signer` signs the Proof in
    place of the identity's key; `proof_form` False sends it unsealed (in `chain`).
    """

    changes: dict[str, Change] = field(default_factory=dict)
    proof_signer: Signer | None = None
    proof_form: bool = True

    def apply(self, name: str, data: bytes) -> bytes:
        """The bytes to send instead of `data`."""
        return self.changes[name](data) if name in self.changes else data


HONEST: Final = Misbehaviour()


@dataclass
class Established:
    """What a handshake leaves; in plaintext only `agreement` is set."""

    agreement: Agreement
    outgoing: Direction | None = None
    incoming: Direction | None = None
    remote: RemoteIdentity | None = None
    keys: schedule.ApplicationKeys | None = None


def initiate(
    channel: Channel, config: Config, wrong: Misbehaviour, expected: bytes | None
) -> Established:
    """The initiator's part; `expected` is the node id of the policy `pinned`, if it is that."""
    names = config.shares if config.shares is not None else tuple(config.names("kex")[:1])
    offers = {name: Offer.fresh(name) for name in names}
    random, events = random_bytes(32), []
    event = wrong.apply("Hello", handshake.hello_event(config, random, offers.values()))
    channel.send_frame(event)
    answer = channel.receive_frame()
    events = [event, answer]
    decision = handshake.accept(config, offers, answer, retried=False)
    if isinstance(decision, Retry):
        offers = {decision.kex: Offer.fresh(decision.kex)}
        event = handshake.hello_event(config, random, offers.values())
        event = wrong.apply("second Hello", event)
        channel.send_frame(event)
        answer = channel.receive_frame()
        events += [event, answer]
        decision = handshake.accept(config, offers, answer, retried=True)
    if isinstance(decision, Retry):
        raise Violation("protocol-error", "a second Retry")
    agreement, share = decision
    if agreement.suite is None:
        return Established(agreement)
    try:
        secret = offers[agreement.suite.kex].complete(share)
    except CryptoFailure as error:
        raise Violation("protocol-error", "share") from error
    suite, t1 = agreement.suite, b"".join(events)
    keys = schedule.handshake_keys(suite.hash, t1, secret, config.network_key)
    start = schedule.chain_start_responder(keys)
    incoming = Direction(suite, keys.hs_responder, start, keys.commit)
    proof_r = channel.receive_frame()
    remote = check_proof(config, suite, incoming.read(proof_r), expected)
    start = schedule.chain_start_initiator(keys, proof_r)
    outgoing = Direction(suite, keys.hs_initiator, start, keys.commit)
    proof_i = send_proof(channel, config, outgoing, wrong)
    application = schedule.application_keys(keys, proof_r, proof_i)
    return Established(
        agreement,
        _bound(outgoing, application.ap_initiator, application),
        _bound(incoming, application.ap_responder, application),
        remote,
        application,
    )


def respond(
    channel: Channel, config: Config, wrong: Misbehaviour, expected: bytes | None
) -> Established:
    """Run the responder's side; it refuses with Reject, Close or silence, as section 5
    specifies.
    """
    event = channel.receive_frame()
    events = [event]
    decision = _decide(channel, config, event, None)
    if isinstance(decision, Retry):
        retry = wrong.apply("Retry", handshake.retry_event(decision.kex))
        channel.send_frame(retry)
        event = channel.receive_frame()
        events += [retry, event]
        decision = _decide(channel, config, event, events[0])
    if isinstance(decision, Retry):
        raise Violation("protocol-error", "a Retry after a Retry")
    suite, share, secret = decision.suite, b"", b""
    if suite is not None:
        offered = handshake.handshake_cells(event)[1][CELLS["shares"]][suite.kex]
        try:
            share, secret = exchange.answer(suite.kex, offered)
        except CryptoFailure as error:
            channel.send_frame(
                handshake.reject_event("protocol-error", handshake.sentence("protocol-error"))
            )
            raise Violation("protocol-error", "share") from error
    reply = handshake.reply_event(config, random_bytes(32), suite, share)
    reply = wrong.apply("Reply", reply)
    channel.send_frame(reply)
    if suite is None:
        return Established(decision)
    t1 = b"".join([*events, reply])
    keys = schedule.handshake_keys(suite.hash, t1, secret, config.network_key)
    start = schedule.chain_start_responder(keys)
    outgoing = Direction(suite, keys.hs_responder, start, keys.commit)
    proof_r = send_proof(channel, config, outgoing, wrong)
    start = schedule.chain_start_initiator(keys, proof_r)
    incoming = Direction(suite, keys.hs_initiator, start, keys.commit)
    proof_i = channel.receive_frame()
    opened = incoming.read(proof_i)
    check_type(opened)  # another event than a Proof is met with silence
    application = schedule.application_keys(keys, proof_r, proof_i)
    outgoing = _bound(outgoing, application.ap_responder, application)
    try:
        remote = check_proof(config, suite, opened, expected)
    except Violation:
        refuse_proof(channel, config, outgoing)
        raise
    incoming = _bound(incoming, application.ap_initiator, application)
    return Established(decision, outgoing, incoming, remote, application)


def _decide(
    channel: Channel, config: Config, event: bytes, first: bytes | None
) -> Agreement | Retry:
    handshake.check_network_key(config, event)
    try:
        if first is None:
            first_event(event)
        return handshake.respond(config, event, first)
    except Violation as violation:
        text = handshake.sentence(violation.code, violation.why)
        channel.send_frame(handshake.reject_event(violation.code, text))
        raise


def first_event(event: bytes) -> None:
    """Raise Violation for a Resume, because this side has no session."""
    kind, _ = handshake.handshake_cells(event)
    if kind in (TYPES["Resumed"], TYPES["Received"]):
        raise Violation("protocol-error", "not a Hello")
    if kind == TYPES["Resume"]:
        read_answer(event, "Resume")
        raise Violation("unknown-session")


def _bound(old: Direction, secret: bytes, keys: schedule.ApplicationKeys) -> Direction:
    chain = schedule.chain_bind(old.suite.hash, old.chain, keys.th2)
    return Direction(old.suite, secret, chain, old.commit)


def send_proof(channel: Channel, config: Config, outgoing: Direction, wrong: Misbehaviour) -> bytes:
    """Sends the Proof; the event as sent."""
    cells = {CELLS["keys"]: config.identity.cell(), CELLS["node"]: config.node}
    if config.statements:
        cells[CELLS["statements"]] = list(config.statements)
    inner = Event(0, 0, *TYPES["Proof"], cbor.encode_payload(cells)).inner
    signer = wrong.proof_signer or config.identity.key(outgoing.suite.signing)
    inner = wrong.apply("Proof inner", inner)
    event = outgoing.write(0, inner, signer, sealed=wrong.proof_form)
    event = wrong.apply("Proof", event)
    channel.send_frame(event)
    return event


def check_type(opened: Opened) -> None:
    """Raises Violation for anything but a Proof."""
    event = opened.event
    if (event.stream, event.async_id, event.type) != (0, 0, TYPES["Proof"]):
        raise Violation("protocol-error", "not a Proof")


def check_proof(
    config: Config, suite: Suite, opened: Opened, expected: bytes | None
) -> RemoteIdentity:
    """The other side's identity; raises Violation for a Proof that is refused."""
    check_type(opened)
    event = opened.event
    if not opened.form:
        raise Violation("authentication-failed", "an unsealed Proof")
    try:
        cells = event.cells(cbor.HANDSHAKE_ITEMS)
    except LbmError as error:
        raise Violation("authentication-failed", "malformed Proof") from error
    remote = read_identity(cells.get(CELLS["keys"]))
    check_node_information(cells.get(CELLS["node"]))
    remote = replace(remote, presented=read_presented(cells))
    if suite.signing not in remote.keys:
        raise Violation("authentication-failed", "no key of the negotiated algorithm")
    try:
        verify_seal(suite, remote.keys[suite.signing], opened)
    except Violation as violation:
        raise Violation("authentication-failed", "signature") from violation
    if remote.id == config.identity.id:
        raise Violation("authentication-failed", "one's own node id")
    if expected is not None and remote.id != expected:
        raise Violation("authentication-failed", "not the expected node id")
    return remote


def refuse_proof(channel: Channel, config: Config, outgoing: Direction) -> None:
    """The responder's Close under ap_r[0]."""
    payload = cells_payload(code=CODES["authentication-failed"])
    signer = config.identity.key(outgoing.suite.signing)
    inner = Event(0, 0, *TYPES["Close"], payload).inner
    try:
        channel.send_frame(outgoing.write(0, inner, signer, sealed=True))
    except ConnectionLost:
        return  # it has gone already
    channel.finish()
