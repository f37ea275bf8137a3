"""Target `handshake`: either side in each state of a handshake, with arbitrary further input.

Until both Proofs are verified, only the peer's identity is reported, and only the holder of its key
can have it. The input is a byte for the state and a script: EVENT is a raw event, SEALED one under
the keys of the Proof.
"""

from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Final

from parley._node.protocol.connection import Connection
from parley._node.protocol.reports import (
    ConnectionEnded,
    HandshakeCompleted,
    PeerIdentified,
    Report,
)
from parley._node.protocol.states import LIVE, State
from tests.fuzz.allowed import APPLICATION
from tests.fuzz.meeting import (
    NETWORK_KEY,
    SCALAR,
    SIGNER,
    START,
    THEIRS,
    Setting,
    begin,
    fixed_randomness,
    frames_of,
    recorded,
)
from tests.fuzz.script import Kind, Step, parse
from tests.reference import handshake as reference
from tests.reference.exchange import Offer
from tests.reference.sealing import Direction
from tests.reference.wire import TYPES, Event, Violation, frame

MAX_SIZE: Final = 4096
# More than any deadline of a handshake and of closing, in seconds.
LONG: Final = 60


class Action(IntEnum):
    """The meaning of an ACTION's category, modulo their number."""

    HONEST = 0  # The peer sends the next message of a successful handshake.
    ACCEPT = 1
    REFUSE = 2
    WAIT = 3  # seconds by the subcategory
    END = 4  # the transport ends
    UNSEALED = 5  # an event under the keys of the Proof, without a seal
    WRONG_SEAL = 6  # the same with a bit of its seal changed
    CLOSE = 7


@dataclass(frozen=True)
class Moment:
    """A setting, and how many steps of a successful handshake are complete. `unasked`: the core's
    output has not been read yet.
    """

    setting: Setting
    said: int
    unasked: bool = False


USUAL: Final = (Setting("responder"), Setting("initiator"))
RETRIED: Final = (
    Setting("responder", their_kex=("x25519-mlkem768", "x25519")),
    Setting("initiator", kex=("x25519-mlkem768", "x25519")),
)
# The library draws what an ML-KEM share is answered with, so the Proof after it is not fixed.
HYBRID: Final = Setting(
    "responder",
    kex=("x25519-mlkem768", "x25519"),
    their_kex=("x25519-mlkem768", "x25519"),
)
NETWORK: Final = (
    Setting("responder", core={"network_key": NETWORK_KEY}),
    Setting("initiator", core={"network_key": NETWORK_KEY}),
)
PLAINTEXT: Final = (
    Setting("responder", None),
    Setting("initiator", None),
    Setting("responder", core={"plaintext": "both"}),
)
MOMENTS: Final = (
    *(Moment(setting, said) for setting in USUAL for said in range(3)),
    *(Moment(setting, said) for setting in RETRIED for said in range(2)),
    *(Moment(setting, said) for setting in NETWORK for said in range(2)),
    *(Moment(setting, 0) for setting in PLAINTEXT),
    Moment(HYBRID, 0),
    *(Moment(setting, 0, unasked=True) for setting in (USUAL[1], NETWORK[1], PLAINTEXT[1])),
)


def fuzz(data: bytes) -> None:
    """Lead a core to a state, and continue with the script."""
    moment = MOMENTS[data[0] % len(MOMENTS)] if data else MOMENTS[0]
    with fixed_randomness():
        encounter = Encounter(moment)
        for step in parse(data[1:]):
            encounter.take(step)
        encounter.finish()


@cache
def honest(setting: Setting) -> tuple[bytes, ...]:
    """Yield the peer's frames, one after the other."""
    if setting not in (*RETRIED, HYBRID):
        flights = recorded(setting)
        return (flights.first, flights.proof) if flights.proof else (flights.first,)
    config = setting.their_config()
    if setting.side == "initiator":
        return (frame(reference.retry_event("x25519")),)
    hellos = [
        reference.hello_event(config, SCALAR, [Offer(kex, SCALAR, SCALAR * 2)])
        for kex in (setting.their_kex if setting in RETRIED else setting.their_kex[:1])
    ]
    return tuple(map(frame, hellos))


class Encounter:
    """A core in the middle of a handshake."""

    def __init__(self, moment: Moment) -> None:
        self._setting = setting = moment.setting
        self._core: Connection = begin(setting)
        self._honest = iter(honest(setting))
        self._keys: Direction | None = None
        if setting not in (*RETRIED, HYBRID) and (keys := recorded(setting).keys):
            self._keys = keys.proof.direction()
        self._authorised = setting.core.get("network_key") is None
        self._accepted = self._completed = self._ended = False
        self._forged: bool | None = None  # the first event under the keys has no right seal
        self._now = START
        self._said = b""
        if not moment.unasked:
            self._core.data_to_send(START)
        for _ in range(moment.said):
            self._say_honest()
            self._deliver()

    def take(self, step: Step) -> None:
        """Take one step."""
        if step.kind is Kind.ACTION:
            self._act(Action(step.category % len(Action)), step)
        elif step.kind is Kind.RAW:
            self._said += step.payload
        elif step.kind is Kind.EVENT or self._keys is None:
            self._said += frame(_event(step).raw)
        else:
            self._say_encrypted(step, sealed=True)
        if not step.held:
            self._deliver()

    def finish(self) -> None:
        """Deliver the remaining data; without more input the core must then end."""
        self._deliver()
        if self._core.state in LIVE:
            self._core.receive_eof(self._now)
        for _ in range(2):  # The handshake's timeout, and the closing timeout.
            self._now += LONG
            self._core.handle_deadline(self._now)
            self._check()
        assert self._core.ended
        assert self._ended, "an end without a report"

    def _act(self, action: Action, step: Step) -> None:
        core = self._core
        try:
            match action:
                case Action.HONEST:
                    self._say_honest()
                case Action.ACCEPT:
                    core.accept_peer(self._now)
                    core.receive_data(b"", self._now)  # Data that arrived with the Proof.
                    self._accepted = True
                case Action.REFUSE:
                    core.refuse_peer("a script said so", self._now)
                case Action.WAIT:
                    self._now += step.subcategory
                    core.handle_deadline(self._now)
                case Action.END:
                    core.receive_eof(self._now)
                case Action.UNSEALED:
                    self._say_encrypted(step, sealed=False)
                case Action.WRONG_SEAL:
                    self._say_encrypted(step, sealed=True, flip_seal=True)
                case Action.CLOSE:
                    core.close(self._now)
        except APPLICATION:
            return

    def _say_honest(self) -> None:
        said = next(self._honest, b"")
        self._said += said
        if self._keys is not None and said == recorded(self._setting).proof:
            self._forged = bool(self._forged)

    def _say_encrypted(self, step: Step, *, sealed: bool, flip_seal: bool = False) -> None:
        if self._keys is None:
            return
        if self._forged is None:
            self._forged = flip_seal or not sealed
        # An ACTION's type is private; its content is a Proof.
        event = _event(step)
        if step.kind is Kind.ACTION:
            event = Event(0, 0, *TYPES["Proof"], step.payload)
        self._said += frame(
            self._keys.write(event.stream, event.inner, SIGNER, sealed=sealed, flip_seal=flip_seal)
        )

    def _deliver(self) -> None:
        said, self._said = self._said, b""
        if not self._authorised:
            self._authorised = self._has_right_mac(said)
        self._core.receive_data(said, self._now)
        self._check()

    def _has_right_mac(self, said: bytes) -> bool:
        """Whether a Hello with the network key's mac is among whole frames."""
        if self._setting.side == "initiator":
            return True
        try:
            events = frames_of(said)
            reference.check_network_key(self._setting.their_config(), events[0])
        except (AssertionError, IndexError, Violation):
            return False
        return True

    # What must hold, whatever is said.

    def _check(self) -> None:
        for report in self._core.reports():
            assert not self._ended, "a report after the last"
            self._check_report(report)
        assert self._ended == (self._core.state in (State.CLOSING, State.ENDED))
        sent = frames_of(self._core.data_to_send(self._now))
        assert not sent or self._authorised, "a word to a peer without the network key"
        if self._setting.side == "initiator" and not self._accepted and not self._completed:
            assert all(_is(event, "Hello") for event in sent), "the initiator refuses in silence"

    def _check_report(self, report: Report) -> None:
        match report:
            case PeerIdentified(identity):
                assert not self._completed
                assert identity.node_id == THEIRS.id, "somebody else"
                assert not self._forged, "a Proof without a right seal"
            case HandshakeCompleted(agreed):
                encrypted = agreed.suite is not None
                assert encrypted == self._accepted, "open before the peer was accepted"
                assert encrypted or self._setting in PLAINTEXT
                self._completed = True
            case ConnectionEnded():
                self._ended = True
            case _:
                assert self._completed, f"before the Proofs: {report}"


def _event(step: Step) -> Event:
    return Event(step.stream, step.async_id, step.category, step.subcategory, step.payload)


def _is(event: bytes, name: str) -> bool:
    return event[:8] == Event(0, 0, *TYPES[name]).raw[:8]
