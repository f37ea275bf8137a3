"""A simulated federation: the core of each server, on one heap of events.

First all servers start. Then there are faults for some time: links are cut and servers crash.
Finally all is calm until every card has arrived. Invariants are checked all the time.
"""

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from parley._lbm import keys
from parley._lbm.codec import decode
from parley._node.apps.simulate.plan import SeededRandom
from parley._node.federation.card_exchange import CardEvent
from parley._node.federation.cards import Card, read_card
from parley._node.federation.limits import ATTEMPTS, CARD_INTERVAL, HOP_ALLOWANCE
from parley._node.protocol.codes import CARDS
from parley._node.protocol.event_types import LONGEST_PATH
from tests.node.apps.simulate.federation.agenda import Agenda
from tests.node.apps.simulate.federation.links import Answered, KeptLink
from tests.node.apps.simulate.federation.plan import (
    NOTICED,
    REDIALLED,
    STARTING,
    FederationPlan,
    Misbehaviour,
)
from tests.node.apps.simulate.federation.reference_model import Truth
from tests.node.apps.simulate.federation.servers import Neighbour, SimulatedServer
from tests.node.apps.simulate.federation.spread import Spread
from tests.node.apps.simulate.federation.watch import Breaches, CardReader, DialWatch, SessionWatch

# One in so many Dials has an invented path, and one in so many of its steps is random.
MADE_UP: Final = 4
ANYWHERE: Final = 8


class FederationWorld:
    """A federation with the servers and links of a plan.

    `numbers` maps the IDs of servers to their numbers. `is_calm` is set after the last fault.
    `answers` counts the results of attempts to reach a server by code. `under_way` is the seconds
    in which a card reaches all servers, and `seconds` the length of the simulation.
    """

    def __init__(self, plan: FederationPlan) -> None:
        self.plan = plan
        self.agenda = Agenda()
        self.draws = plan.draws("world")
        # For the longest path, there and back, three times; each server subtracts a little.
        self.dial_timeout = ATTEMPTS * (2 * LONGEST_PATH * (plan.slowest + HOP_ALLOWANCE))
        self.identities = [plan.identity(number) for number in range(plan.servers)]
        self.node_ids = [identity.node_id for identity in self.identities]
        self.numbers = {node_id: number for number, node_id in enumerate(self.node_ids)}
        # The path with the lowest IDs is preferred, so this server relays much traffic.
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
        pairs = plan.pairs()
        near: dict[int, list[int]] = {number: [] for number in range(plan.servers)}
        for one, other in pairs:
            near[one].append(other)
            near[other].append(one)
        # The difference between two clocks is at most their difference from the first.
        links_between = 2 * Truth(near, {}).depth()
        self.under_way = CARD_INTERVAL + links_between * self.plan.slowest
        calm = NOTICED + REDIALLED + 2 * CARD_INTERVAL + self.under_way
        self.seconds = STARTING + plan.minutes * 60 + 2 * calm
        self.answers: Counter[int] = Counter()
        self.servers = [
            SimulatedServer(self, number, plan.carries(number, near[number])) for number in near
        ]
        self.links: list[KeptLink] = []
        for numbers in pairs:
            lower, higher = (self.servers[number] for number in numbers)
            link = KeptLink(self, numbers, (lower, higher))
            lower.neighbours[higher.number] = Neighbour(higher, link, 0)
            higher.neighbours[lower.number] = Neighbour(lower, link, 1)
            self.links.append(link)

    def run(self) -> None:
        """Run all events of the plan."""
        plan, agenda, draws = self.plan, self.agenda, self.draws
        for server in self.servers:
            agenda.at(draws.uniform(0, STARTING), server.start)
            if plan.crashes:
                agenda.at(STARTING + draws.pause(plan.crashes / 3600), server.stumble)
            if plan.dials:
                agenda.at(STARTING + draws.pause(plan.dials / 60), self._dialling(server))
        for link in self.links:
            if plan.cuts:
                agenda.at(STARTING + draws.pause(plan.cuts / 3600), link.flap)
        agenda.run(STARTING + plan.minutes * 60)
        self.is_calm = True
        for server in self.servers:
            server.start()
        for link in self.links:
            link.redial()
        agenda.run(self.seconds)

    def _dialling(self, server: SimulatedServer) -> Callable[[], None]:
        draws = self.plan.draws("dials", server.number)

        def dial() -> None:
            if server.is_running:
                if draws.once_in(MADE_UP):
                    self._dial_made_up_path(server, draws)
                else:
                    target = draws.choice(self.node_ids)
                    if target != server.node_id:
                        server.reach(target, self._ended)
            if not self.is_calm:
                self.agenda.after(draws.pause(self.plan.dials / 60), dial)

        return dial

    def _ended(self, code: int, _: int | None) -> None:
        self.answers[code] += 1

    def _dial_made_up_path(self, server: SimulatedServer, draws: SeededRandom) -> None:
        """Dial along a malicious path: mostly from link to link, sometimes to random servers or
        back.
        """
        path = [server.number, draws.choice(list(server.neighbours))]
        while len(path) < LONGEST_PATH:
            if draws.once_in(ANYWHERE):
                path.append(draws.randrange(len(self.servers)))
            else:
                path.append(draws.choice(list(self.servers[path[-1]].neighbours)))
        self.happened["dials by made-up paths"] += 1
        made_up = tuple(self.node_ids[number] for number in path)
        server.dial(made_up, self.dial_timeout, lambda *_: None)

    @property
    def is_whole(self) -> bool:
        """Whether all links are open."""
        return self.open_links == self._all_links

    @property
    def trace(self) -> str:
        """Return a SHA-256 of all events so far, in hex."""
        return self._trace.hexdigest()

    def note(self, what: str, who: object, count: int, payload: bytes = b"") -> None:
        """Add an event to the trace."""
        self.happened[what] += 1
        line = f"{self.agenda.now:.6f} {what} {who} {count}"
        self._trace.update(line.encode() + payload)

    def sent(self, watch: SessionWatch, end: int, event: CardEvent) -> list[tuple[bytes, int]]:
        """Record cards that were sent: their origins and numbers."""
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
        """Parse a card and verify its signature, once for all servers.

        Raises:
            LbmDecodeError: the card is malformed.
        """
        card = self._cards.get(encoded)
        if card is None:
            card = self._cards[encoded] = read_card(encoded)
        return card

    def errs(self, server: int, how: Misbehaviour) -> bool:
        """Return whether a server has this fault, according to the plan."""
        return self.plan.misbehaviour is how and server == self._erring

    def once(self, timeout: float, answered: Answered, code: int, hop: int | None) -> Answered:
        """Return a function that forwards the first answer, or `code` after `timeout` seconds."""
        left = [answered]

        def first(code: int, hop: int | None) -> None:
            if left:
                left.pop()(code, hop)

        self.agenda.after(timeout, lambda: first(code, hop))
        return first
