"""Scarce dialogs: callers go first, feeds take turns, and every feed gets a turn."""

from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.simproto.codec import RESPONSE, serialise_message
from parley._node.dialects.simproto.feeds import DialogScheduler
from tests.node.dialects.simproto.sides import Side


class Feed:
    """Sends a note whenever it gets a dialog."""

    def __init__(self, room: DialogScheduler, name: str, log: list[str]) -> None:
        self.room = room
        self.name = name
        self.log = log

    def pump(self) -> None:
        if self.room.take(self):
            self.log.append(self.name)
            self.room.queue(self)  # it has more


def filled(dialogs: int) -> tuple[Side, DialogScheduler]:
    """Return a side all of whose dialogs wait for responses."""
    side = Side(DialectLimits(requests=dialogs))
    for _ in range(dialogs):
        side.sim.outgoing.call("echo", b"", 0.0, None, lambda: None)
    return side, side.sim.room


def answer(side: Side, *dialogs: int) -> None:
    for dialog in dialogs:
        side.receive(serialise_message(RESPONSE, dialog, b"\0"))


def test_callers_go_first_and_feeds_in_turn() -> None:
    side, room = filled(8)
    log: list[str] = []
    for name in ("a", "b"):
        Feed(room, name, log).pump()
    room.wait(lambda: log.append("caller"))
    assert room.others_wait
    answer(side, 1, 2, 3, 4)
    assert log == ["caller", "a", "b", "a"]


def test_an_unused_turn_goes_to_the_next_caller() -> None:
    side, room = filled(1)
    log: list[str] = []

    def first() -> None:
        log.append("first")

    def second() -> None:
        log.append("second")

    room.wait(first)
    room.wait(second)
    answer(side, 1)
    assert log == ["first"]
    room.leave(first)
    assert log == ["first", "second"]
    room.leave(second)
    assert not room.others_wait
    room.wait(first)
    room.leave(first)
    assert log == ["first", "second"]


def test_notes_have_three_dialogs_in_four() -> None:
    side = Side(DialectLimits(requests=1))
    feed = Feed(side.sim.room, "a", [])
    assert side.sim.room.take(feed)
    assert not side.sim.room.take(feed)
    side.sim.room.forget(feed)
    assert not side.sim.room.others_wait


def test_the_end_wakes_waiting_callers() -> None:
    side, room = filled(2)
    log: list[str] = []
    room.wait(lambda: log.append("one"))
    room.wait(lambda: log.append("two"))
    side.core.receive_eof(0.0)
    side.said()
    assert log == ["one", "two"]
