"""An attacker between two cores who sees each event and can send other bytes instead.

Both cores are honest, and their applications send as soon as they may. The attacker has no key.
`assert_refused` checks the required result.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from parley._node.protocol.codes import CONNECTION, CloseCode
from parley._node.protocol.codes import HELLO as HELLO_EVENT
from parley._node.protocol.event import parse_raw
from parley._node.protocol.frames import frame
from parley._node.protocol.limits import CLOSE_LINGER
from parley._node.protocol.reports import (
    ConnectionEnded,
    HandshakeCompleted,
    KeysUpdated,
    PeerIdentified,
)
from parley._node.protocol.states import State
from tests.node.protocol.pair import ALIVE, START, Pair, Side, events_of
from tests.security.shapes import FROM_INITIATOR, INITIATORS_PROOF, Shape

LATER: Final = "later"  # the name of all events after the handshake
# Close codes that a side may report after interference. internal-error and a clean end are not
# among them.
TYPED: Final = frozenset(
    {
        CloseCode.PROTOCOL_ERROR,
        CloseCode.BAD_RECORD,
        CloseCode.AUTHENTICATION_FAILED,
        CloseCode.NO_COMMON_ALGORITHM,
        CloseCode.UNSUPPORTED_VERSION,
        CloseCode.PLAINTEXT_REFUSED,
        CloseCode.FRAME_TOO_LARGE,
        CloseCode.TIMEOUT,
    }
)


@dataclass(frozen=True)
class Passing:
    """An event in transit: its name, its frame, and the frames that passed before it."""

    name: str
    frame: bytes
    earlier: dict[str, bytes] = field(default_factory=dict)


class Instead(NamedTuple):
    """Bytes sent in place of an event: to its receiver, and back to its sender."""

    onward: bytes
    back: bytes = b""


Tamper = Callable[[Passing], Instead]


def honest(passing: Passing) -> Instead:
    """Pass every event unchanged."""
    return Instead(passing.frame)


class Middle(Pair):
    """A pair of cores with an attacker in between, who never reports to one that the other left.

    The initiator's application sends an event as soon as its connection is open, and the
    responder's answers each event. With `apart`, each event is delivered and answered before the
    next one. Otherwise, events that were sent together arrive together.
    """

    def __init__(self, shape: Shape, tamper: Tamper = honest, *, apart: bool = False) -> None:
        super().__init__(shape.config("initiator"), shape.config("responder"))
        self.shape = shape
        self.touched = False  # whether any event was changed
        self._tamper = tamper
        self._apart = apart
        self._names = {
            id(self.a): [name for name in shape.events if name in FROM_INITIATOR],
            id(self.b): [name for name in shape.events if name not in FROM_INITIATOR],
        }
        self._passed: dict[str, bytes] = {}
        self._given = {id(side): b"" for side in self.sides}
        self._greeted = False
        self._answered = 0
        self._identified: set[int] = set()

    def carry(self, sender: Side) -> bytes:
        """Forward everything that a side sends, with the attacker's changes."""
        sent = sender.take(self.now)
        flight: list[Instead] = []
        for event in events_of(sent):
            names = self._names[id(sender)]
            passing = Passing(names.pop(0) if names else LATER, frame(event), dict(self._passed))
            self._passed[passing.name] = passing.frame
            flight.append(self._tamper(passing))
            self.touched |= flight[-1] != Instead(passing.frame)
        if not self._apart:
            flight = [Instead(b"".join(i.onward for i in flight), b"".join(i.back for i in flight))]
        for onward, back in flight:
            self._give(self.other(sender), onward)
            self._give(sender, back)
            if self._apart:
                self.carry(self.other(sender))
        return sent

    def _give(self, receiver: Side, data: bytes) -> None:
        if not data:
            return
        self._given[id(receiver)] += data
        self.deliver(receiver, data)
        if id(receiver) not in self._identified and receiver.all(PeerIdentified):
            self._identified.add(id(receiver))
            self._assert_matching(receiver)
        if not self._greeted and self.a.core.state is State.OPEN:
            self._greeted = True
            self.a.core.send(1, 0, 64, 1, b"from the application", lbm=False)
        if self._answered < len(self.b.events) and self.b.core.state is State.OPEN:
            self._answered += 1
            self.b.core.send(1, 0, 64, 1, b"an answer", lbm=False)

    def _assert_matching(self, side: Side) -> None:
        """Check that a side identified the other only if both received the sent bytes unchanged.

        This covers the transcript up to the side's own decision.
        """
        other = self.other(side)
        sizes = self.shape.sizes()
        initiators = sum(size for name, size in sizes.items() if name in FROM_INITIATOR)
        responders = sum(sizes.values()) - initiators
        if side is self.a:  # its own Proof has not been sent yet
            initiators -= sizes[INITIATORS_PROOF]
            mine, theirs = initiators, responders
        else:
            mine, theirs = responders, initiators
        assert self._given[id(side)][:theirs] == bytes(other.wire)[:theirs]
        assert bytes(side.wire)[:mine] == self._given[id(other)][:mine]

    def _untouched(self, side: Side) -> bool:
        return bytes(self.other(side).wire).startswith(self._given[id(side)]) and side.opened

    def conclude(self) -> None:
        """Continue until both sides are idle, and run each deadline."""
        config = self.a.core.config
        self.pump()
        self.run(START + config.handshake_timeout - self.now)
        for side in self.sides:
            assert side.opened or side.code != ALIVE, "a handshake after its deadline"
        self.run(config.idle_before_ping + config.ping_timeout + CLOSE_LINGER)

    def assert_refused(self, *, any_code: bool = False) -> None:
        """Check that both sides ended with a typed error and that no application was reached.

        There is one exception. An application may have received exactly the sent data, if the fault
        was in the other direction, after the handshake, and has not been noticed there yet.
        `any_code` permits all codes, because a forged Reject may contain any code.
        """
        for side in self.sides:
            assert side.core.ended, "left open past its deadline"
            ended = side.all(ConnectionEnded)
            assert len(ended) == 1
            assert any_code or ended[0].code in TYPED
            kinds = (PeerIdentified, HandshakeCompleted, KeysUpdated, ConnectionEnded)
            talked = any(not isinstance(report, kinds) for report in side.reports)
            assert not talked or self._untouched(side), "an application was reached"
            assert side.reports[-1] is ended[0]
        if not self.a.opened:
            # A dialling side ends without a Reject.
            for event in events_of(self.a.wire):
                raw = parse_raw(event)
                assert (raw.category, raw.subcategory) == (CONNECTION, HELLO_EVENT)
            assert not self.b.opened
