"""A whole conversation on an open connection, controlled by a script.

Whatever the script sends, the core raises no exception, both sides can decode all of it, no
deadline remains due, and the end is reported once. The same script gives the same conversation.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Final

from parley._node.protocol.states import LIVE
from tests.fuzz.application import Application
from tests.fuzz.meeting import OURS, START, Setting, fixed_randomness, opened
from tests.fuzz.peer import FuzzingPeer
from tests.fuzz.script import Kind, Step

# More turns than this for one step are a loop.
MOST_TURNS: Final = 500
# The most bytes that may wait for the transport after a script of some kilobytes.
MOST_QUEUED: Final = 4 << 20
_PUBLIC: Final = OURS.key("ed25519").public


class Action(IntEnum):
    """The meaning of an ACTION's category, modulo their number."""

    APPLICATION = 0  # The subcategory selects the action: `Application.act`.
    WAIT = 1  # a quarter of a second for each of the subcategory
    BLOCK = 2  # The transport stops or resumes accepting data.
    UPDATE_KEYS = 3  # By the honest peer, as are the next two.
    OFFER_REKEY = 4
    ANSWER_REKEY = 5
    END = 6  # the transport ends


class Conversation:
    """A core after its handshake, its application, and the peer."""

    def __init__(self, setting: Setting) -> None:
        self._core, flights = opened(setting)
        self._peer = FuzzingPeer(setting, flights, _PUBLIC)
        self._application = Application(self._core, START)
        self._now = START
        self._blocked = False
        self._said = b""
        self._others: Final[dict[Action, Callable[[], bytes]]] = {
            Action.UPDATE_KEYS: self._peer.update_keys,
            Action.OFFER_REKEY: self._peer.offer_rekey,
            Action.ANSWER_REKEY: self._peer.answer_rekey,
        }

    def take(self, step: Step) -> None:
        """Take one step."""
        if step.kind is Kind.ACTION:
            self._act(Action(step.category % len(Action)), step)
        elif step.kind is Kind.RAW:
            self._said += step.payload
        else:
            self._said += self._peer.say(step, sealed=step.kind is Kind.SEALED)
        if not step.held:
            self._deliver()

    def finish(self) -> None:
        """Deliver the remaining data, and close."""
        self._blocked = False
        self._deliver()
        self._core.receive_eof(self._now)
        self._settle()
        assert self._core.ended
        assert self._application.ended is not None, "an end without a report"

    def _deliver(self) -> None:
        said, self._said = self._said, b""
        self._core.receive_data(said, self._now)
        self._settle()

    def _settle(self) -> None:
        """Run until there are no reports and no data to send."""
        for _ in range(MOST_TURNS):
            reports = self._core.reports()
            self._application.take(reports)
            wire = b"" if self._blocked else self._core.data_to_send(self._now)
            self._peer.hear(wire)
            if not reports and not wire:
                break
        else:
            raise AssertionError("it never falls quiet")
        assert self._core.queued_bytes <= MOST_QUEUED
        assert (self._application.ended is None) == (self._core.state in LIVE)

    def _act(self, action: Action, step: Step) -> None:
        match action:
            case Action.APPLICATION:
                self._application.act(step)
            case Action.WAIT:
                self._wait(step.subcategory / 4)
            case Action.BLOCK:
                self._blocked = not self._blocked
            case Action.END:
                self._core.receive_eof(self._now)
            case _:
                self._said += self._others[action]()

    def _wait(self, seconds: float) -> None:
        """Let time pass; each deadline is handled when it is due."""
        end = self._now + seconds
        for _ in range(MOST_TURNS):
            due = min(self._core.next_deadline(), self._application.next_deadline())
            if due > end:
                break
            self._now = self._application.now = max(self._now, due)
            self._core.handle_deadline(self._now)
            self._application.handle_deadline()
            self._settle()
        else:
            raise AssertionError("a deadline that is handled stays due")
        self._now = self._application.now = end


def converse(setting: Setting, steps: list[Step]) -> None:
    """Run a script."""
    with fixed_randomness():
        conversation = Conversation(setting)
        for step in steps:
            conversation.take(step)
        conversation.finish()
