"""Target `resume`: two cores over transports that a script cuts, copies and forges.

The input is a byte for the setting and a script (`script.py`). A RAW step is the first bytes on a
new transport to the responder; an EVENT or SEALED one is sent under valid keys by one side. Unless
such a step occurred, each side receives exactly the other side's events, in order.
"""

from contextlib import suppress
from enum import IntEnum
from typing import Final

from parley._crypto.identity import Identity
from parley._crypto.registry import SIGNING
from parley._node.protocol.codes import CONNECTION, CloseCode
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.resume_attempt import ResumeAttempt
from tests.fuzz.allowed import ALLOWED, APPLICATION
from tests.fuzz.meeting import NETWORK_KEY, fixed_randomness
from tests.fuzz.script import Kind, Step, parse
from tests.node.protocol.cut_pair import CutPair
from tests.node.protocol.pair import ALIVE, Side
from tests.reference.recorded import seed

MAX_SIZE: Final = 2048
# The application's events have this category.
SAID: Final = 64
_IDENTITIES: Final = [
    Identity.from_keys([SIGNING["ed25519"].load(seed(f"resuming {side}"))]) for side in "ab"
]
_USUAL: Final = {"resume": 30.0, "algorithms": {"kex": ("x25519",)}}
SETTINGS: Final = (
    _USUAL,
    {**_USUAL, "resume": 2.0, "resume_buffer": 1 << 20, "network_key": NETWORK_KEY},
    {**_USUAL, "algorithms": {"kex": ("x25519",), "hash": ("sha512",), "sealing": ("each",)}},
)


class Act(IntEnum):
    """The meaning of an ACTION's category, modulo their number; its stream's parity selects the
    side.
    """

    SAY = 0  # the payload, so many times as the async id has sixteenths
    CUT = 1
    COME_BACK = 2
    WAIT = 3  # A quarter of a second for each of the subcategory; data sent meanwhile is lost.
    CARRY = 4  # so many bytes of what a side sends as the subcategory has eights, and a cut
    REPLAY = 5  # an old Resume, one of its bytes changed by the first of the payload
    ANSWER = 6  # An attempt gets an old answer, likewise.
    LOSE_ANSWER = 7  # the responder's answer to an attempt
    STEAL = 8  # An attacker replays a Resume and adds the payload.
    CLOSE = 9
    PUMP = 10


class Meeting:
    """Both cores, and what each has said."""

    def __init__(self, setting: int) -> None:
        a, b = (CoreConfig(identity=of, **SETTINGS[setting]) for of in _IDENTITIES)  # type: ignore[arg-type]  # settings by name
        self._pair = CutPair(a, b)
        self._pair.pump()
        self._pair.forget()
        self._said: dict[str, list[bytes]] = {"a": [], "b": []}
        self._honest = True
        self._closing = False

    def take(self, step: Step) -> None:
        """Take one step."""
        pair = self._pair
        side = pair.b if step.stream & 1 else pair.a
        if step.kind is Kind.RAW:
            fresh, asked = pair.listen(step.payload)
            pair.answer(fresh, asked)
        elif step.kind is not Kind.ACTION:
            self._lie(side, step)
        else:
            with suppress(*APPLICATION):
                self._act(Act(step.category % len(Act)), side, step)
        for each in pair.sides:
            while each.collect(pair.now):
                pass

    def finish(self) -> None:
        """Reconnect at last, and check that no event was lost, duplicated or reordered."""
        pair = self._pair
        for side, other in ((pair.a, "b"), (pair.b, "a")):
            heard = [e.payload for e in side.events if e.category == SAID]
            if self._honest:
                assert heard == self._said[other][: len(heard)]
        if not self._honest or self._closing or (pair.a.code, pair.b.code) != (ALIVE, ALIVE):
            return
        pair.cut()
        assert pair.come_back().outcome == "resumed"
        for side, other in ((pair.a, "b"), (pair.b, "a")):
            assert side.code == ALIVE
            assert [e.payload for e in side.events if e.category == SAID] == self._said[other]

    def _act(self, act: Act, side: Side, step: Step) -> None:
        pair = self._pair
        match act:
            case Act.SAY:
                self._say(side, step)
            case Act.CUT:
                pair.cut()
            case Act.COME_BACK:
                pair.come_back()
            case Act.WAIT:
                pair.advance(step.subcategory / 4)
                self._lost()
            case Act.CARRY:
                sent = side.take(pair.now)
                pair.deliver(pair.other(side), sent[: step.subcategory * 8])
                pair.cut()
            case Act.REPLAY:
                if pair.resumes:
                    old = pair.resumes[step.async_id % len(pair.resumes)]
                    pair.answer(*pair.listen(_changed(old, step)))
            case Act.ANSWER:
                attempt = pair.a.core.start_attempt(pair.now)
                if pair.answers:
                    old = pair.answers[step.async_id % len(pair.answers)]
                    attempt.receive_data(_changed(old, step), pair.now)
                self._forged(attempt)
            case Act.LOSE_ANSWER:
                _, fresh, asked = pair.ask()
                pair.answers.append(pair.answer(fresh, asked))
            case Act.STEAL:
                _, fresh, asked = pair.ask()
                pair.answer(fresh, asked)
                if not pair.b.core.is_suspended:
                    pair.deliver(pair.b, step.payload)
            case Act.CLOSE:
                self._closing = True
                side.core.close(pair.now)
            case Act.PUMP:
                if not any(s.core.is_suspended or s.core.ended for s in pair.sides):
                    pair.pump()

    def _say(self, side: Side, step: Step) -> None:
        name = "b" if side is self._pair.b else "a"
        for number in range(1 + step.async_id // 16):
            said = b"%d " % number + step.payload
            side.core.send(1, 0, SAID, 1, said, lbm=False)
            self._said[name].append(said)

    def _lie(self, side: Side, step: Step) -> None:
        """Send under valid keys, regardless of the rules, unless there is no transport."""
        pair = self._pair
        if any(s.core.is_suspended or s.state not in ("OPEN", "DRAINING") for s in pair.sides):
            return
        self._honest = False
        category = step.category or CONNECTION
        payload = step.payload or b"\0"
        pair.inject(
            side,
            step.stream >> 1,
            category,
            step.subcategory or 1,
            payload,
            async_id=step.async_id,
            sealed=step.kind is Kind.SEALED,
        )

    def _lost(self) -> None:
        """The transport is lost with the data sent on it."""
        self._pair.cut()

    def _forged(self, attempt: ResumeAttempt) -> None:
        assert attempt.outcome in (None, "failed", "rejected"), "an old answer was taken"
        assert self._pair.a.core.is_suspended
        assert self._pair.a.code in (ALIVE, CloseCode.NORMAL)


def _changed(old: bytes, step: Step) -> bytes:
    """With a byte changed, if the step has something to change it by."""
    if not step.payload or not step.payload[0]:
        return old
    at = step.subcategory % len(old)
    return old[:at] + bytes([old[at] ^ step.payload[0]]) + old[at + 1 :]


def fuzz(data: bytes) -> None:
    """Take the script."""
    with fixed_randomness():
        meeting = Meeting(data[0] % len(SETTINGS) if data else 0)
        for step in parse(data[1:]):
            try:
                meeting.take(step)
            except ALLOWED["resume"]:
                return
        meeting.finish()
