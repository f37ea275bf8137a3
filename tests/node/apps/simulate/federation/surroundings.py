"""What servers and links of a simulated federation share: plan, time, and who watches."""

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import Any

from parley._lbm import keys
from parley._lbm.codec import decode
from parley._node.federation.cards import Card, read_card
from parley._node.federation.exchange import CardEvent
from parley._node.federation.limits import ATTEMPTS, HOP_ALLOWANCE
from parley._node.protocol.codes import CARDS
from parley._node.protocol.event_types import LONGEST_PATH
from tests.node.apps.simulate.federation.agenda import Agenda
from tests.node.apps.simulate.federation.plan import FederationPlan, Misbehaviour
from tests.node.apps.simulate.federation.spread import Spread
from tests.node.apps.simulate.federation.watch import Breaches, CardReader, DialWatch, SessionWatch

# What is told to whoever waits for the answer of a Dial: its code, and the index of its author.
Answered = Callable[[int, int | None], None]


class Surroundings:
    """`numbers` has the servers by their ids; `is_calm` says that no fault is to come."""

    def __init__(self, plan: FederationPlan) -> None:
        self.plan = plan
        self.agenda = Agenda()
        self.draws = plan.draws("world")
        # For the longest way, there and back, three times; each server takes a little off.
        self.dial_timeout = ATTEMPTS * (2 * LONGEST_PATH * (plan.slowest + HOP_ALLOWANCE))
        self.identities = [plan.identity(number) for number in range(plan.servers)]
        self.node_ids = [identity.node_id for identity in self.identities]
        self.numbers = {node_id: number for number, node_id in enumerate(self.node_ids)}
        # Of paths of one length the least ids are taken: much goes through this one.
        self._erring = self.numbers[min(self.node_ids)]
        self.breaches = Breaches(lambda: self.agenda.now)
        self.dials = DialWatch(self.breaches)
        self.spread = Spread(plan.servers)
        self.happened: Counter[str] = Counter()
        self.is_calm = False
        self._all_links = len(plan.pairs())
        self.open_links = 0
        self.last_opened = 0.0
        self._trace = hashlib.sha256()
        self._reader = CardReader()
        self._cards: dict[bytes, Card] = {}

    @property
    def is_whole(self) -> bool:
        """Whether all links are open."""
        return self.open_links == self._all_links

    @property
    def trace(self) -> str:
        """A SHA-256 of all that happened so far, in hex."""
        return self._trace.hexdigest()

    def note(self, what: str, who: object, count: int, payload: bytes = b"") -> None:
        """Something happened: it is part of the trace."""
        self.happened[what] += 1
        line = f"{self.agenda.now:.6f} {what} {who} {count}"
        self._trace.update(line.encode() + payload)

    def sent(self, watch: SessionWatch, end: int, event: CardEvent) -> list[tuple[bytes, int]]:
        """An event of cards was sent: whose cards it has, and their numbers."""
        is_cards = event.subcategory == CARDS
        self.note("cards" if is_cards else "have", watch.name, end, event.payload)
        if not is_cards:
            return []
        envelopes: Any = decode(event.payload)[keys.ENVELOPES]
        cards = [self._reader.read(envelope) for envelope in envelopes]
        self.happened["cards passed on"] += len(cards)
        for origin, number in cards:
            watch.sent(end, origin, number)
        return cards

    def read(self, encoded: bytes) -> Card:
        """Read a card, once for all servers: its signature too is verified once.

        Raises LbmDecodeError.
        """
        card = self._cards.get(encoded)
        if card is None:
            card = self._cards[encoded] = read_card(encoded)
        return card

    def errs(self, server: int, how: Misbehaviour) -> bool:
        """Whether a server does this wrong: one does, if the plan says so."""
        return self.plan.misbehaviour is how and server == self._erring

    def once(self, timeout: float, answered: Answered, code: int, hop: int | None) -> Answered:
        """A function that passes the first answer on, and gives `code` after `timeout` seconds."""
        left = [answered]

        def first(code: int, hop: int | None) -> None:
            if left:
                left.pop()(code, hop)

        self.agenda.after(timeout, lambda: first(code, hop))
        return first
