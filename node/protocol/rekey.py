"""The state of rekeys: offer, answer, and the KeyUpdate of each direction (docs/protocol.md section
6).

A new offer is allowed once both KeyUpdates of the last rekey were sent and received. Secrets are
deleted as soon as they were used.
"""

from dataclasses import replace
from enum import Enum, auto
from typing import Final

from parley._crypto.key_exchange import EphemeralKey
from parley._crypto.key_schedule import RekeySecrets, rekey_root, rekey_secrets
from parley._crypto.registry import Suite
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.errors import (
    LimitReachedError,
    RemoteProtocolError,
    violation,
)
from parley._node.protocol.limits import (
    KEY_UPDATES,
    OWN_KEY_UPDATES,
    REKEY_RATE_SECONDS,
    REKEY_TIMEOUT,
    UPDATES_BETWEEN_REKEYS,
)
from parley._node.protocol.rate_limit import Rate, TokenBucket

NEVER: Final = float("inf")


class Phase(Enum):
    """The local phase of a rekey."""

    IDLE = auto()
    OFFERED = auto()  # the local offer is unanswered
    SWITCHING = auto()  # the new keys are derived; a KeyUpdate hasn't been sent or received yet


class KeyUpdateLimit:
    """The plain KeyUpdates of one direction: their rate limit, and how many are `left` until its
    next rekey. After `suspended_at` the rate limit isn't refilled.
    """

    __slots__ = ("_allowance", "_most", "left", "suspended_at")

    def __init__(self, rate: Rate, most: int) -> None:
        self._allowance = TokenBucket(rate)
        self._most = most
        self.left = most
        self.suspended_at = NEVER

    def take(self, now: float) -> bool:
        """Return whether one more KeyUpdate is allowed now."""
        if not self.left or not self._allowance.take(min(now, self.suspended_at)):
            return False
        self.left -= 1
        return True

    def renew(self) -> None:
        self.left = self._most


class RekeyState:
    """The rekeys of one connection, with `allowance` offers of each side in 10 s.

    `number` is the number of the last rekey; the peer must continue it before `deadline`.
    """

    __slots__ = (
        "_crossed",
        "_ephemeral",
        "_initiator",
        "_made",
        "_received",
        "_secret",
        "_secrets",
        "_seen",
        "_sent",
        "_suite",
        "_value_after_offer",
        "deadline",
        "number",
        "own_updates",
        "phase",
        "update_due",
        "updates",
    )

    def __init__(self, suite: Suite, secret: bytes, initiator: bool, allowance: int) -> None:
        self._suite = suite
        self._secret = secret  # the secret `rekey` of the key schedule
        self._initiator = initiator
        rate = Rate(allowance, REKEY_RATE_SECONDS / allowance)
        self._seen = TokenBucket(rate)
        self._made = TokenBucket(rate)
        self._ephemeral: EphemeralKey | None = None
        self._crossed = False  # the peer's offer crossed the local one and was ignored
        self._value_after_offer = b""
        self._secrets: RekeySecrets | None = None
        self._sent = self._received = False
        self.update_due = False  # the peer answered, so its next event must be a KeyUpdate
        self.number = 0
        self.deadline = NEVER
        # Plain KeyUpdates between rekeys; the local limit is half of the number that the peer
        # accepts.
        self.updates = KeyUpdateLimit(KEY_UPDATES, UPDATES_BETWEEN_REKEYS)
        self.own_updates = KeyUpdateLimit(OWN_KEY_UPDATES, UPDATES_BETWEEN_REKEYS // 2)
        self.phase = Phase.IDLE

    def may_offer(self, now: float) -> bool:
        return self.phase is Phase.IDLE and now >= self._made.next_at()

    def offer(self, now: float) -> bytes:
        """Begin a rekey and return the share for RekeyOffer. Call `offer_sent` afterwards.

        Raises:
            LimitReachedError: more offers than the allowance in 10 s.
        """
        if not self._made.take(now):
            wait = self._made.next_at() - now
            reason = f"cannot rekey: too many rekeys in 10 s; try again in {wait:.1f} s"
            raise LimitReachedError(reason)
        self._crossed = False
        self.phase = Phase.OFFERED
        self.deadline = now + REKEY_TIMEOUT
        self._ephemeral = self._suite.kex_algorithm.generate()
        return self._ephemeral.share

    def offer_sent(self, chain: bytes) -> None:
        """Remember `chain`, the value of the sending direction after the offer."""
        self._value_after_offer = chain

    def offer_received(self, now: float) -> bool:
        """Return whether to answer the peer's offer. If both sides' offers cross, only one is
        answered.

        Raises:
            RemoteProtocolError: `protocol-error` if it is too early; `overloaded` if there
                are too many.
        """
        if self.phase is Phase.SWITCHING:
            raise violation(f"a RekeyOffer before rekey {self.number} was complete")
        if self.phase is Phase.OFFERED and self._initiator:
            if self._crossed:
                raise violation(f"a second RekeyOffer before an answer, after rekey {self.number}")
            self._crossed = True
            return False
        if not self._seen.take(now):
            reason = f"too many rekeys in 10 s: one more after rekey {self.number}"
            raise RemoteProtocolError(CloseCode.OVERLOADED, reason)
        if self.phase is Phase.OFFERED:  # the crossed local offer is discarded and doesn't count
            self._ephemeral = None
            self._made.give_back()
        self.phase = Phase.IDLE
        return True

    def answer(self, share: bytes) -> tuple[bytes, bytes]:
        """Return the share for RekeyAnswer and the shared secret. Call `derive` afterwards."""
        return self._suite.kex_algorithm.respond(share)

    def answer_received(self, share: bytes, now: float) -> tuple[bytes, bytes]:
        """Return the chain value after the local offer, and the shared secret. Call `derive`
        afterwards.

        Raises:
            RemoteProtocolError: `protocol-error` if there is no offer.
        """
        if self.phase is not Phase.OFFERED or self._ephemeral is None:
            raise violation(f"a RekeyAnswer without an offer, after rekey {self.number}")
        # The peer measures the time between our offers as they arrive. If we count from its answer,
        # network delay can't make the next offer arrive too early.
        self._made.give_back()
        self._made.take(now)
        self.update_due = True
        ephemeral, self._ephemeral = self._ephemeral, None
        return self._value_after_offer, ephemeral.derive(share)

    def derive(
        self, shared_secret: bytes, after_offer: bytes, after_answer: bytes, now: float
    ) -> None:
        """Derive the next keys of both directions from the chain values after offer and answer."""
        hash = self._suite.hash_algorithm
        root = rekey_root(hash, self._secret, shared_secret)
        secrets = rekey_secrets(hash, root, after_offer, after_answer)
        self._secret = secrets.rekey
        self._secrets = secrets
        self._sent = self._received = False
        self.number += 1
        self.phase = Phase.SWITCHING
        self.deadline = now + REKEY_TIMEOUT

    def take_sending(self) -> tuple[bytes, bytes]:
        """Return the next secret of the sending direction, and the commitment for its chain."""
        return self._take(self._initiator, sent=True)

    def take_receiving(self, number: int) -> tuple[bytes, bytes]:
        """Return the next secret of the receiving direction, and the commitment for its chain.

        Raises:
            RemoteProtocolError: `protocol-error` if the number is wrong.
        """
        if self.phase is not Phase.SWITCHING or self._received or number != self.number:
            raise violation(f"a KeyUpdate for rekey {number}")
        self.update_due = False
        return self._take(not self._initiator, sent=False)

    def resume(self, now: float) -> None:
        """Restart the peer's deadline, because it couldn't continue without a transport."""
        if self.deadline != NEVER:
            self.deadline = now + REKEY_TIMEOUT
        self.own_updates.suspended_at = NEVER

    def suspend(self, now: float) -> None:
        """Stop refilling the local rate limit, because the peer will receive all events together
        later.
        """
        self.own_updates.suspended_at = now

    def _take(self, initiator: bool, *, sent: bool) -> tuple[bytes, bytes]:
        secrets = self._secrets
        if secrets is None:
            raise RemoteProtocolError(CloseCode.INTERNAL_ERROR, "a rekey without secrets")
        if sent:
            self._sent = True
            self.own_updates.renew()
        else:
            self._received = True
            self.updates.renew()
        if self._sent and self._received:
            self._secrets = None
            self.phase = Phase.IDLE
            self.deadline = NEVER
        elif initiator:
            # If the peer delays its KeyUpdate, plain updates can follow; stored secrets would then
            # decrypt an epoch that has ended.
            self._secrets = replace(secrets, next_initiator=b"")
        else:
            self._secrets = replace(secrets, next_responder=b"")
        return (secrets.next_initiator if initiator else secrets.next_responder), secrets.commit
