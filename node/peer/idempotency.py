"""The key of a call with `once=`, and the state of its sending (section 18)."""

import time
from typing import Final

from parley._crypto.randomness import random_bytes
from parley._lbm.codec import Value
from parley._node.errors import CallRefused, NotOnceError, OutcomeUnknownError
from parley._node.messaging.idempotency import NOT_REMEMBERED
from parley._node.messaging.outgoing_calls import OutgoingCall
from parley._node.peer.answer_stream import answer_of
from parley._node.protocol.codes import LOST, CloseCode
from parley._node.protocol.limits import ONCE_AGAIN, ONCE_KEY_SIZE

# It goes on while the machine sleeps, as the other node's ten minutes do; the loop's may not. (On
# Linux it is CLOCK_BOOTTIME; elsewhere CLOCK_MONOTONIC goes on.)
_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class IdempotencyKey:
    """A key for `Peer.call(.., once=key)`, over as many sessions as it takes; 16 random bytes by
    default.

    `epoch` is the `once_epoch` of the peer that was asked first, and `sent` when that was, in
    seconds of the loop's clock; None until then. Once `is_over` no further try will do: the node
    has forgotten the key, or was asked more than 5 minutes ago.

    Raises:
        ValueError: `value` is not 16 bytes.
    """

    __slots__ = ("_began", "_lost", "epoch", "is_over", "sent", "value")

    def __init__(self, value: bytes | None = None) -> None:
        if value is None:
            value = random_bytes(ONCE_KEY_SIZE)
        if len(value) != ONCE_KEY_SIZE:
            raise ValueError(f"the key of a call that is made once is {ONCE_KEY_SIZE} bytes")
        self.value = bytes(value)
        self.epoch: bytes | None = None
        self.sent: float | None = None
        self.is_over = False
        self._began = 0.0  # `sent` of the clock that goes on
        self._lost: tuple[int, str] = (CloseCode.NORMAL, "")

    def __repr__(self) -> str:
        return f"<IdempotencyKey {self.value.hex()}>"

    @classmethod
    def of(cls, once: "bool | bytes | IdempotencyKey") -> "IdempotencyKey":
        """The key that `once=` of a call names: a new one for True.

        Raises:
            TypeError: it is something else. A key must not be taken for a mere yes: with a new one
                in its place the handler would run again.
            ValueError: it is not 16 bytes.
        """
        if isinstance(once, IdempotencyKey):
            return once
        if once is not True and not isinstance(once, bytes):
            raise TypeError(
                f"once is True, 16 bytes or an IdempotencyKey, not {type(once).__name__}"
            )
        return cls(None if once is True else once)

    def sending(self, epoch: bytes, now: float) -> None:
        """It is sent for the first time."""
        self.epoch, self.sent, self._began = epoch, now, time_with_sleep()

    def age(self, now: float) -> float:
        """Seconds since it was sent first, 0 if it never was; the machine's sleep included."""
        if self.sent is None:
            return 0.0
        return max(now - self.sent, time_with_sleep() - self._began)

    def unknown(self) -> OutcomeUnknownError:
        """The error for a call that was sent, and will not be asked again."""
        assert self.epoch is not None
        assert self.sent is not None
        return OutcomeUnknownError(*self._lost, self.value, self.epoch, self.sent)

    def lost(self, code: int, text: str) -> OutcomeUnknownError:
        """The same, with why its session ended."""
        self._lost = code, text
        return self.unknown()


def time_with_sleep() -> float:
    """Seconds of a clock that goes on while the machine sleeps."""
    return time.clock_gettime(_CLOCK)


def epoch_to_ask(key: IdempotencyKey, epoch: bytes | None, now: float) -> bytes:
    """The epoch of a peer, if that may be asked at `now`.

    Raises:
        NotOnceError: the peer remembers nothing, and no other was asked.
        OutcomeUnknownError: another was asked that remembers no more, or too long ago.
    """
    if key.sent is None:
        if epoch is None:
            raise NotOnceError
    elif epoch is None or epoch != key.epoch or key.age(now) > ONCE_AGAIN:
        key.is_over = True
        raise key.unknown()
    return epoch


def answer_of_once(key: IdempotencyKey, call: OutgoingCall, *, again: bool) -> Value:
    """The data of an answered call, or what its code means for the caller; `again` says that it
    was sent before."""
    if call.code == LOST:
        raise key.lost(call.close_code, call.close_text)
    try:
        return answer_of(call)
    except CallRefused as refused:
        if not again or refused.code not in NOT_REMEMBERED:
            raise
        # This Call was not carried out, but the first one may have been.
        key.is_over = True
        raise key.unknown() from refused
