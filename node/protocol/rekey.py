"""The progress of rekeys: offer, answer, and the KeyUpdate of each direction (docs/protocol.md
section 6).

A new offer may follow once both KeyUpdates of the last rekey were sent and received. Each secret is
dropped as soon as it is used.
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
    """The phase of our part of a rekey."""

    IDLE = auto()
    OFFERED = auto()  # our offer is unanswered
    SWITCHING = auto()  # the keys are there; a KeyUpdate is yet to be sent or to come


class KeyUpdateLimit:
    """The plain KeyUpdates of one direction: their rate, and how many are `left` until its next
    rekey. None is added after `suspended_at`."""

    __slots__ = ("_allowance", "_most", "left", "suspended_at")

    def __init__(self, rate: Rate, most: int) -> None:
        self._allowance = TokenBucket(rate)
        self._most = most
        self.left = most
        self.suspended_at = NEVER

    def take(self, now: float) -> bool:
        """Return whether one more is allowed now."""
        if not self.left or not self._allowance.take(min(now, self.suspended_at)):
            return False
        self.left -= 1
        return True

    def renew(self) -> None:
        self.left = self._most


class RekeyState:
    """Both sides' rekeys of one connection, `allowance` offers of each in 10 s.

    `number` is the number of the last one; the peer must continue it until `deadline`.
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
        self._secret = secret  # `rekey` of the key schedule
        self._initiator = initiator
        rate = Rate(allowance, REKEY_RATE_SECONDS / allowance)
        self._seen = TokenBucket(rate)
        self._made = TokenBucket(rate)
        self._ephemeral: EphemeralKey | None = None
        self._crossed = False  # the other side's offer crossed ours and was ignored
        self._value_after_offer = b""
        self._secrets: RekeySecrets | None = None
        self._sent = self._received = False
        self.update_due = False  # the other side answered: its next event is a KeyUpdate
        self.number = 0
        self.deadline = NEVER
        # Plain KeyUpdates between rekeys; ours are half as many as the other side has to take.
        self.updates = KeyUpdateLimit(KEY_UPDATES, UPDATES_BETWEEN_REKEYS)
        self.own_updates = KeyUpdateLimit(OWN_KEY_UPDATES, UPDATES_BETWEEN_REKEYS // 2)
        self.phase = Phase.IDLE

    def may_offer(self, now: float) -> bool:
        return self.phase is Phase.IDLE and now >= self._made.next_at()

    def offer(self, now: float) -> bytes:
        """Begin: return the share for RekeyOffer. Call `offer_sent` afterwards.

        Raises:
            LimitReachedError: more than the allowance in 10 s.
        """
        if not self._made.take(now):
            wait = self._made.next_at() - now
            reason = f"the last rekey is less than 10 s old: try again in {wait:.1f} s"
            raise LimitReachedError(reason)
        self._crossed = False
        self.phase = Phase.OFFERED
        self.deadline = now + REKEY_TIMEOUT
        self._ephemeral = self._suite.kex_algorithm.generate()
        return self._ephemeral.share

    def offer_sent(self, chain: bytes) -> None:
        """Remember `chain`, the value of our direction after the offer."""
        self._value_after_offer = chain

    def offer_received(self, now: float) -> bool:
        """Return whether the peer's offer is to be answered; one that crosses ours may not be.

        Raises:
            RemoteProtocolError: `protocol-error`, too early; `overloaded`, too many.
        """
        if self.phase is Phase.SWITCHING:
            raise violation(f"a RekeyOffer before rekey {self.number} was over")
        if self.phase is Phase.OFFERED and self._initiator:
            if self._crossed:
                raise violation(f"a second RekeyOffer before an answer, after rekey {self.number}")
            self._crossed = True
            return False
        if not self._seen.take(now):
            reason = f"too many rekeys in 10 s: one more after rekey {self.number}"
            raise RemoteProtocolError(CloseCode.OVERLOADED, reason)
        if self.phase is Phase.OFFERED:  # ours crossed it, is forgotten and does not count
            self._ephemeral = None
            self._made.give_back()
        self.phase = Phase.IDLE
        return True

    def answer(self, share: bytes) -> tuple[bytes, bytes]:
        """Return the share for RekeyAnswer and the shared secret. Call `derive` afterwards."""
        return self._suite.kex_algorithm.respond(share)

    def answer_received(self, share: bytes, now: float) -> tuple[bytes, bytes]:
        """Return the chain value after our offer and the shared secret. Call `derive` afterwards.

        Raises:
            RemoteProtocolError: `protocol-error`, nobody asked.
        """
        if self.phase is not Phase.OFFERED or self._ephemeral is None:
            raise violation(f"a RekeyAnswer without an offer, after rekey {self.number}")
        # The other side measures between the arrivals of our offers. Counting from its
        # answer, no delay on the way can make the next one arrive too early.
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
        """Return our direction's next secret, and the commitment for its chain."""
        return self._take(self._initiator, sent=True)

    def take_receiving(self, number: int) -> tuple[bytes, bytes]:
        """Return the peer's next secret, and the commitment for its chain.

        Raises:
            RemoteProtocolError: `protocol-error`, a wrong number.
        """
        if self.phase is not Phase.SWITCHING or self._received or number != self.number:
            raise violation(f"a KeyUpdate for rekey {number}")
        self.update_due = False
        return self._take(not self._initiator, sent=False)

    def resume(self, now: float) -> None:
        """Restart the time that the peer has, since it could not continue for a while."""
        if self.deadline != NEVER:
            self.deadline = now + REKEY_TIMEOUT
        self.own_updates.suspended_at = NEVER

    def suspend(self, now: float) -> None:
        """Stop our own rate: the peer receives nothing for a while, and then everything
        together."""
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
            # Plain updates may follow, for as long as the other side keeps its KeyUpdate back:
            # what was taken would then open an epoch that is over.
            self._secrets = replace(secrets, next_initiator=b"")
        else:
            self._secrets = replace(secrets, next_responder=b"")
        return (secrets.next_initiator if initiator else secrets.next_responder), secrets.commit
