"""`StatementExchange`: the key statements that a server sends to and accepts from one member
(sections 19 and 22).

A statement has a slot, and all valid statements of one slot mean the same. Therefore a slot crosses
a stream at most once per direction. The next stream begins with the slots that each side has then,
because a statement may have been lost with the stream, or dropped by its reader.
"""

from collections.abc import Collection, Iterable, Mapping

from parley._crypto.errors import StatementError
from parley._crypto.statements import Statement
from parley._lbm import keys
from parley._lbm.codec import encode
from parley._node.federation.limits import STATEMENT_EVENTS, STATEMENT_EVENTS_ACCEPTED
from parley._node.protocol.event_types import (
    LARGEST_STATEMENTS,
    MOST_SLOTS,
    MOST_STATEMENTS,
    STATEMENTS,
)
from parley._node.protocol.rate_limit import TokenBucket


class StatementExchange:
    """The exchange of statements with one member.

    The rates are kept across its streams and link sessions, so that a member cannot send more by
    opening others.
    """

    __slots__ = ("_accepted", "_passed", "_sent", "_shared", "_theirs", "_waiting")

    def __init__(self, shared: Mapping[bytes, Statement]) -> None:
        self._sent = TokenBucket(STATEMENT_EVENTS)
        self._accepted = TokenBucket(STATEMENT_EVENTS_ACCEPTED)
        self._shared = shared
        self.begin_stream()

    def begin_stream(self) -> None:
        """Begin a stream, on which the member has not sent Have."""
        self._passed = set[bytes]()  # the slots that were sent or received on this stream
        self._theirs: Collection[bytes] | None = None  # the slots in the member's Have
        # Statements to send by slot, predecessors first.
        self._waiting: dict[bytes, Statement] = {}

    def slots(self) -> list[bytes]:
        """Return the slots for Have."""
        return list(self._shared)[:MOST_SLOTS]

    def received_have(self, slots: Iterable[bytes] | None) -> None:
        """Queue the statements that the member lacks. `slots` are those in its Have, None if it
        does not accept statements.
        """
        if slots is not None:
            self._theirs = frozenset(slots)
            self._queue()

    def share(self, shared: Mapping[bytes, Statement]) -> None:
        """Replace the statements that are shared with members, by slot and predecessors first."""
        self._shared = shared
        self._queue()

    def _queue(self) -> None:
        theirs = self._theirs
        if theirs is not None:
            self._waiting = {
                slot: statement
                for slot, statement in self._shared.items()
                if slot not in theirs and slot not in self._passed
            }

    def next_at(self) -> float | None:
        """Return the time at which `next_payload` returns a payload, or None without one."""
        return self._sent.next_at() if self._waiting else None

    def next_payload(self, now: float) -> bytes | None:
        """Return the payload of the next event to send, at most 64 KiB of statements, or None."""
        if not self._waiting or not self._sent.take(now):
            return None
        batch: list[bytes] = []
        size = 0
        for slot, statement in list(self._waiting.items())[:MOST_STATEMENTS]:
            size += len(statement.encoded)
            if size > LARGEST_STATEMENTS:
                break
            batch.append(statement.encoded)
            self._passed.add(slot)
            del self._waiting[slot]
        return encode({keys.STATEMENTS: batch})

    def count_wrong_signature(self, now: float) -> bool:
        """Count a statement with a wrong signature as another event of the member. Return False if
        that exceeds its rate, so that the rest of the event must be dropped.
        """
        return self._accepted.take(now)

    def receive(self, payload: bytes, now: float) -> list[bytes] | None:
        """Return the statements in an event, or None if the member exceeds its rate.

        Raises:
            LbmDecodeError: the event is malformed.
        """
        if not self._accepted.take(now):
            return None
        statements: list[bytes] = STATEMENTS.read(payload)[keys.STATEMENTS]
        # Slots that this server has not stored are not recorded for long, because a member could
        # send any number of them.
        self._passed.intersection_update(self._shared)
        for encoded in statements:
            try:
                slot = Statement.parse(encoded).slot
            except StatementError:
                continue
            self._passed.add(slot)
            self._waiting.pop(slot, None)
        return statements
