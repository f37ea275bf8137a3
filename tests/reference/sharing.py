"""Key statements on streams `federation` (section 22), from one end of one link session.

Written from the document. The end stores what it accepts, and methods return the slots of the
statements to send, in any order.
"""

from collections.abc import Iterable
from typing import Any, Final

from tests.reference import cbor, statements
from tests.reference.statements import Invalid, ReadStatement
from tests.reference.wire import CELLS, Violation, own_cells

MOST_SLOTS: Final = 1_024
MOST_STATEMENTS: Final = 64
MOST_BYTES: Final = 65_536
MOST_STEPS: Final = 8
MOST_SUCCESSIONS: Final = 2
# Statements that are read at once, and the seconds until there is one more.
MOST_EVENTS: Final = 24
EVENT_SECONDS: Final = 2.5


class Sharing:
    """One end: `named` are the IDs of the server itself and of its members.

    `dropped` lists why statements were not stored: a reason of section 22, `not on record`,
    `no room`, or `rate` behind too many wrong signatures. `ignored` counts events that were not
    read.
    """

    def __init__(self, named: Iterable[bytes] = (), stored: Iterable[bytes] = ()) -> None:
        self.named = set(named)
        self.stored: dict[bytes, ReadStatement] = {}
        self.dropped: list[str] = []
        self.ignored = 0
        self._left = float(MOST_EVENTS)
        self._theirs: set[bytes] | None = None
        self._passed: set[bytes] = set()
        for data in stored:
            statement = statements.read(data)
            self.stored[statement.slot] = statement

    def slots(self) -> list[bytes]:
        """The slots of the shared statements, sorted."""
        connected, before = set(self.named), 0
        while len(connected) > before:
            before = len(connected)
            for one in self.stored.values():
                pair = {one.origin, one.successor} - {None}
                if pair & connected:
                    connected |= {node for node in pair if node is not None}
        return sorted(slot for slot, one in self.stored.items() if one.origin in connected)

    def begin_stream(self) -> None:
        """The next stream."""
        self._theirs = None
        self._passed = set()

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self._left = min(MOST_EVENTS, self._left + seconds / EVENT_SECONDS)

    def receive_have(self, payload: bytes) -> set[bytes]:
        """Have, which is well-formed otherwise; raises Violation where the stream is reset."""
        try:
            slots = own_cells(payload, "slots").get(CELLS["slots"])
        except cbor.LbmError as error:
            raise Violation("protocol-error", f"malformed: {error}") from error
        if slots is None:
            return set()
        if not isinstance(slots, list) or len(slots) > MOST_SLOTS or not all(map(_is_slot, slots)):
            raise Violation("protocol-error", "no array of at most 1,024 slots")
        self._theirs = set(slots)
        return self.due()

    def receive(self, payload: bytes) -> set[bytes]:
        """Statements after Have; raises Violation where the stream is reset."""
        if not self._use():
            self.ignored += 1
            return set()
        try:
            found = own_cells(payload, "statements").get(CELLS["statements"])
        except cbor.LbmError as error:
            raise Violation("protocol-error", f"malformed: {error}") from error
        if not isinstance(found, list) or not 1 <= len(found) <= MOST_STATEMENTS:
            raise Violation("protocol-error", "no array of 1 to 64 byte strings")
        if not all(isinstance(one, bytes) for one in found) or sum(map(len, found)) > MOST_BYTES:
            raise Violation("protocol-error", "not byte strings of at most 65,536 bytes in all")
        for number, data in enumerate(found, 1):
            if self._take(data) in ("signature", "consent") and not self._use():
                self.dropped += ["rate"] * (len(found) - number)
                break
        return self.due()

    def news(self, data: bytes) -> set[bytes]:
        """A statement that this end has stored otherwise."""
        statement = statements.read(data)
        self.stored.setdefault(statement.slot, statement)
        return self.due()

    def due(self) -> set[bytes]:
        """The slots that are sent now."""
        if self._theirs is None:
            return set()
        found = set(self.slots()) - self._theirs - self._passed
        self._passed |= found
        return found

    def _use(self) -> bool:
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def _take(self, data: bytes) -> str | None:
        """Store a statement, or return why it is dropped."""
        try:
            statement = statements.read(data)
            if not self._is_on_record(statement.origin):
                raise Invalid("not on record", "")
            if statement.slot in self.stored:
                self._passed.add(statement.slot)
                return None
            if statement.successor is not None and len(self._successors(statement.origin)) >= (
                MOST_SUCCESSIONS
            ):
                raise Invalid("no room", "")
            statements.check(statement)
        except Invalid as invalid:
            self.dropped.append(invalid.reason)
            return invalid.reason
        self.stored[statement.slot] = statement
        self._passed.add(statement.slot)
        return None

    def _successors(self, origin: bytes) -> list[bytes]:
        found = (one for one in self.stored.values() if one.origin == origin)
        return [one.successor for one in found if one.successor is not None]

    def _is_on_record(self, node: bytes) -> bool:
        """22.30, without seen IDs and without a person's choice."""
        for one in self.named:
            at = one
            for _ in range(MOST_STEPS + 1):
                if at == node:
                    return True
                successors = self._successors(at)
                if len(successors) != 1:
                    break
                at = successors[0]
        return False


def _is_slot(one: Any) -> bool:
    return isinstance(one, bytes) and len(one) == 32
