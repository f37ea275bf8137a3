"""The key of a call with `once=`, and the state of its sending (section 18)."""

import time
from typing import Final

from parley._crypto.identity import NodeId
from parley._crypto.randomness import random_bytes
from parley._lbm.codec import Value
from parley._node.errors import CallRefused, NotOnceError, OutcomeUnknownError
from parley._node.messaging.idempotency import NOT_REMEMBERED
from parley._node.messaging.outgoing_calls import OutgoingCall
from parley._node.peer.answer_stream import answer_of
from parley._node.protocol.codes import LOST, CloseCode
from parley._node.protocol.limits import ONCE_AGAIN, ONCE_KEY_SIZE

# This clock must also count while the machine sleeps, because the remote cache expires after ten
# minutes of real time. The loop's clock may stop. Outside Linux, CLOCK_MONOTONIC keeps counting.
_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class IdempotencyKey:
    """A key for `Peer.call(.., once=key)`, usable across sessions with one node ID; 16 random bytes
    by default.

    Attributes: value: the 16 bytes. node_id, epoch: the node ID and `once_epoch` of the first peer
    that was called; None before the first call. sent: when the first call was sent, in seconds of
    the loop's clock; None before. is_over: whether the key can no longer be used, because the node
    has forgotten it or more than 5 minutes have passed.

    Example:

        from parley import IdempotencyKey

        key = IdempotencyKey()
        try:
            await peer.call("greet", "Ann", once=key)
        except Exception as error:
            print(f"call again with the same key: {error}")

    Raises:
        ValueError: `value` is not 16 bytes long.
    """

    __slots__ = ("_began", "_lost", "epoch", "is_over", "node_id", "sent", "value")

    def __init__(self, value: bytes | None = None) -> None:
        if value is None:
            value = random_bytes(ONCE_KEY_SIZE)
        if len(value) != ONCE_KEY_SIZE:
            raise ValueError(f"invalid key of {len(value)} bytes: expected {ONCE_KEY_SIZE} bytes")
        self.value = bytes(value)
        self.epoch: bytes | None = None
        self.node_id: NodeId | None = None
        self.sent: float | None = None
        self.is_over = False
        self._began = 0.0  # The time of `sent` on the clock that counts during sleep.
        self._lost: tuple[int, str] = (CloseCode.NORMAL, "")

    def __repr__(self) -> str:
        return f"<IdempotencyKey {self.value.hex()}>"

    @classmethod
    def of(cls, once: "bool | bytes | IdempotencyKey") -> "IdempotencyKey":
        """Return the key for a `once=` argument: a new key for True.

        Raises:
            TypeError: it has another type. Treating a key of the wrong type as True would create a
                new key and run the handler again.
            ValueError: the key is not 16 bytes long.
        """
        if isinstance(once, IdempotencyKey):
            return once
        if once is not True and not isinstance(once, bytes):
            raise TypeError(f"invalid once {once!r}: expected True, 16 bytes or an IdempotencyKey")
        return cls(None if once is True else once)

    def sending(self, node_id: NodeId | None, epoch: bytes, now: float) -> None:
        """Record the first sending."""
        self.node_id, self.epoch = node_id, epoch
        self.sent, self._began = now, time_with_sleep()

    def age(self, now: float) -> float:
        """Return the seconds since the first sending, including the machine's sleep; 0 before."""
        if self.sent is None:
            return 0.0
        return max(now - self.sent, time_with_sleep() - self._began)

    def unknown(self) -> OutcomeUnknownError:
        """Return the error for a call that was sent and will not be repeated."""
        assert self.epoch is not None
        assert self.sent is not None
        return OutcomeUnknownError(*self._lost, self.value, self.epoch, self.sent)

    def lost(self, code: int, text: str) -> OutcomeUnknownError:
        """Record why the session ended; return the error for a call that was sent."""
        self._lost = code, text
        return self.unknown()


def time_with_sleep() -> float:
    """Return the time of a clock that counts while the machine sleeps, in seconds."""
    return time.clock_gettime(_CLOCK)


def epoch_to_ask(
    key: IdempotencyKey, node_id: NodeId | None, epoch: bytes | None, now: float
) -> bytes:
    """Return the peer's epoch, after checking that the call can be sent at `now`.

    Raises:
        NotOnceError: the peer does not support `once`, and the key has not been used.
        OutcomeUnknownError: the first call was sent too long ago, or to another node ID, or the
            node has restarted.
    """
    if key.sent is None:
        if epoch is None:
            raise NotOnceError
    elif epoch is None or (node_id, epoch) != (key.node_id, key.epoch) or key.age(now) > ONCE_AGAIN:
        key.is_over = True
        raise key.unknown()
    return epoch


def answer_of_once(key: IdempotencyKey, call: OutgoingCall, *, again: bool) -> Value:
    """Return the data of an answered call, or raise the error for its code.

    `again` means that the call was sent before.
    """
    if call.code == LOST:
        raise key.lost(call.close_code, call.close_text)
    try:
        return answer_of(call)
    except CallRefused as refused:
        if not again or refused.code not in NOT_REMEMBERED:
            raise
        # The node did not run this call, but it may have run the first one.
        key.is_over = True
        raise key.unknown() from refused
