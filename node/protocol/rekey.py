"""A rekey's progress: offer, answer, and the KeyUpdate of each direction (section 6).

One rule: a new offer may follow only when both KeyUpdates of the last rekey were sent
and received. Holds the secrets between answer and KeyUpdates and drops each as soon as
it is used. Writes nothing: the channel sends what `Rekeying` decides.
"""

from dataclasses import replace
from enum import Enum, auto

from crypto.exchange import EphemeralKey
from crypto.registry import Suite
from crypto.schedule import RekeySecrets, rekey_root, rekey_secrets
from node.protocol.codes import CloseCode
from node.protocol.errors import LocalProtocolError, RemoteProtocolError, violation
from node.protocol.limits import REKEY_RATE_SECONDS


class Phase(Enum):
    """Where our part of a rekey stands."""

    IDLE = auto()
    OFFERED = auto()  # our offer is unanswered
    SWITCHING = auto()  # the keys are there; a KeyUpdate is yet to be sent or to come


class Rekeying:
    """Both sides' rekeys of one connection. `number` is that of the last one begun."""

    __slots__ = (
        "_allowance",
        "_crossed",
        "_ephemeral",
        "_initiator",
        "_offers_made",
        "_offers_seen",
        "_received",
        "_secret",
        "_secrets",
        "_sent",
        "_suite",
        "_value_after_offer",
        "number",
        "offered_at",
        "phase",
        "update_due",
    )

    def __init__(self, suite: Suite, secret: bytes, initiator: bool, allowance: int) -> None:
        self._suite = suite
        self._secret = secret  # `rekey` of the key schedule
        self._initiator = initiator
        self._allowance = allowance
        # When the last ones were, `allowance` at most. (No deques: an empty one takes 600 bytes.)
        self._offers_seen: list[float] = []
        self._offers_made: list[float] = []
        self._ephemeral: EphemeralKey | None = None
        self._crossed = False  # the other side's offer crossed ours and was ignored
        self._value_after_offer = b""
        self._secrets: RekeySecrets | None = None
        self._sent = self._received = False
        self.update_due = False  # the other side answered: its next event is a KeyUpdate
        self.number = 0
        self.offered_at = 0.0
        self.phase = Phase.IDLE

    def may_offer(self, now: float) -> bool:
        """Whether an offer of ours is allowed now."""
        return self.phase is Phase.IDLE and now >= self.next_offer()

    def next_offer(self) -> float:
        """From when on the allowance lets us offer."""
        offers = self._offers_made
        return offers[0] + REKEY_RATE_SECONDS if len(offers) == self._allowance else 0.0

    def offer(self, now: float) -> bytes:
        """Begin: the share for RekeyOffer. Follow with `offer_sent`.

        Raises:
            LocalProtocolError: more than the allowance in 10 s.
        """
        if now < self.next_offer():
            raise LocalProtocolError("the last rekey is less than 10 s old")
        self._remember(self._offers_made, now)
        self._crossed = False
        self.phase = Phase.OFFERED
        self.offered_at = now
        self._ephemeral = self._suite.kex_algorithm.generate()
        return self._ephemeral.share

    def offer_sent(self, chain: bytes) -> None:
        """`chain` is our direction's value right after the offer."""
        self._value_after_offer = chain

    def offer_received(self, now: float) -> bool:
        """Whether the other side's offer is to be answered; a crossing one may not.

        Raises:
            RemoteProtocolError: `protocol-error`, too early; `overloaded`, too many.
        """
        if self.phase is Phase.SWITCHING:
            raise violation("a RekeyOffer before the last rekey was over")
        if self.phase is Phase.OFFERED and self._initiator:
            if self._crossed:
                raise violation("a second RekeyOffer before an answer")
            self._crossed = True
            return False
        seen = self._offers_seen
        if len(seen) == self._allowance and now < seen[0] + REKEY_RATE_SECONDS:
            raise RemoteProtocolError(CloseCode.OVERLOADED, "too many rekeys in 10 s")
        self._remember(seen, now)
        if self.phase is Phase.OFFERED:  # ours crossed it, is forgotten and does not count
            self._ephemeral = None
            self._offers_made.pop()
        self.phase = Phase.IDLE
        return True

    def answer(self, share: bytes) -> tuple[bytes, bytes]:
        """The share for RekeyAnswer and the shared secret. Follow with `derive`."""
        return self._suite.kex_algorithm.respond(share)

    def answer_received(self, share: bytes, now: float) -> tuple[bytes, bytes]:
        """The chain value after our offer and the shared secret. Follow with `derive`.

        Raises:
            RemoteProtocolError: `protocol-error`, nobody asked.
        """
        if self.phase is not Phase.OFFERED or self._ephemeral is None:
            raise violation("a RekeyAnswer that nobody asked for")
        # The other side measures between the arrivals of our offers. Counting from its
        # answer, no delay on the way can make the next one arrive too early.
        self._offers_made[-1] = now
        self.update_due = True
        ephemeral, self._ephemeral = self._ephemeral, None
        return self._value_after_offer, ephemeral.derive(share)

    def derive(self, shared_secret: bytes, after_offer: bytes, after_answer: bytes) -> None:
        """Make the next keys of both directions from the chain values `a` and `b`."""
        hash = self._suite.hash_algorithm
        root = rekey_root(hash, self._secret, shared_secret)
        secrets = rekey_secrets(hash, root, after_offer, after_answer)
        self._secret = secrets.rekey
        self._secrets = secrets
        self._sent = self._received = False
        self.number += 1
        self.phase = Phase.SWITCHING

    def take_sending(self) -> tuple[bytes, bytes]:
        """Our direction's next secret, and the commitment for its chain."""
        return self._take(self._initiator, sent=True)

    def take_receiving(self, number: int) -> tuple[bytes, bytes]:
        """The other direction's next secret, and the commitment for its chain.

        Raises:
            RemoteProtocolError: `protocol-error`, a wrong number.
        """
        if self.phase is not Phase.SWITCHING or self._received or number != self.number:
            raise violation(f"a KeyUpdate for rekey {number}")
        self.update_due = False
        return self._take(not self._initiator, sent=False)

    def _remember(self, offers: list[float], now: float) -> None:
        offers.append(now)
        del offers[: -self._allowance]

    def _take(self, initiator: bool, *, sent: bool) -> tuple[bytes, bytes]:
        secrets = self._secrets
        if secrets is None:
            raise RemoteProtocolError(CloseCode.INTERNAL_ERROR, "a rekey without secrets")
        if sent:
            self._sent = True
        else:
            self._received = True
        if self._sent and self._received:
            self._secrets = None
            self.phase = Phase.IDLE
        elif initiator:
            # Plain updates may follow, for as long as the other side keeps its KeyUpdate back:
            # what was taken would then open an epoch that is over.
            self._secrets = replace(secrets, next_initiator=b"")
        else:
            self._secrets = replace(secrets, next_responder=b"")
        return (secrets.next_initiator if initiator else secrets.next_responder), secrets.commit
