"""A simulated federation as a whole: the pure core of each server on one heap of events.

First all servers start, then links are cut and servers die for a while, then all is calm; what
must hold is watched all the time, and checked at the end.
"""

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from lbm import keys
from lbm.decoder import decode
from node.apps.simulate.draws import Draws
from node.apps.simulate.federation.agenda import Agenda
from node.apps.simulate.federation.links import Answered, KeptLink, KeptSession
from node.apps.simulate.federation.plan import CALM, STARTING, FederationPlan, Misbehaviour
from node.apps.simulate.federation.servers import DIAL_TIMEOUT, SimulatedServer
from node.apps.simulate.federation.spread import Spread
from node.apps.simulate.federation.tunnels import SimulatedTunnel
from node.apps.simulate.federation.watch import Breaches, CardReader, DialWatch
from node.federation.card import Card, read_card
from node.federation.exchange import CardEvent
from node.protocol.codes import CARDS
from node.protocol.federation_types import LONGEST_PATH

# One Dial in so many has a path that somebody made up.
MADE_UP: Final = 4
# Seconds of simulated time in one step, after which the progress is told.
_STEP: Final = 1.0


class FederationWorld:
    """A federation by a plan; `written` is called with each line of its trace."""

    def __init__(
        self, plan: FederationPlan, written: Callable[[str], object] | None = None
    ) -> None:
        self.plan = plan
        self.agenda = Agenda()
        self.draws = plan.draws("world")
        self.breaches = Breaches(lambda: self.agenda.now)
        self.dials = DialWatch(self.breaches)
        self.spread = Spread(plan.servers)
        self.happened: Counter[str] = Counter()
        self.answers: Counter[int] = Counter()
        self.last_opened = 0.0
        self.is_calm = False
        self._written = written
        self._trace = hashlib.sha256()
        self._reader = CardReader()
        self._cards: dict[bytes, Card] = {}
        pairs = plan.pairs()
        neighbours: dict[int, list[int]] = {number: [] for number in range(plan.servers)}
        for one, other in pairs:
            neighbours[one].append(other)
            neighbours[other].append(one)
        self.servers = [SimulatedServer(self, number, near) for number, near in neighbours.items()]
        self.node_ids = [server.node_id for server in self.servers]
        self.numbers = {node_id: number for number, node_id in enumerate(self.node_ids)}
        self.links: list[KeptLink] = []
        for one, other in pairs:
            link = KeptLink(self, (self.servers[one], self.servers[other]))
            self.servers[one].links[other] = self.servers[other].links[one] = link
            self.links.append(link)

    @property
    def trace(self) -> str:
        """A SHA-256 of all that happened so far, in hex."""
        return self._trace.hexdigest()

    def run(self, passed: Callable[[float], None]) -> None:
        """Let all of it happen; `passed` is told how many simulated seconds are over."""
        plan, agenda = self.plan, self.agenda
        for server in self.servers:
            agenda.at(self.draws.uniform(0, STARTING), server.start)
            if plan.crashes:
                agenda.at(STARTING + self.draws.pause(plan.crashes / 3600), server.stumble)
            if plan.dials:
                agenda.at(STARTING + self.draws.pause(plan.dials / 60), self._dialling(server))
        for link in self.links:
            if plan.cuts:
                agenda.at(STARTING + self.draws.pause(plan.cuts / 3600), link.flap)
        self._until(STARTING + plan.minutes * 60, passed)
        self.is_calm = True
        for server in self.servers:
            server.start()
        for link in self.links:
            link.redial()
        self._until(plan.seconds, passed)

    def _until(self, time: float, passed: Callable[[float], None]) -> None:
        while self.agenda.now < time:
            self.agenda.run(min(time, self.agenda.now + _STEP))
            passed(self.agenda.now)

    # What servers and links tell of themselves, and ask.

    def note(self, what: str, who: object, count: int, payload: bytes = b"") -> None:
        """Something happened: it is part of the trace."""
        self.happened[what] += 1
        line = f"{self.agenda.now:.6f} {what} {who} {count}"
        self._trace.update(line.encode() + payload)
        if self._written is not None:
            self._written(f"{line} {hashlib.sha256(payload).hexdigest()[:16]}" if payload else line)

    def sent(self, session: KeptSession, end: int, event: CardEvent) -> list[tuple[bytes, int]]:
        """An event of cards was sent: whose cards it has, and their numbers."""
        self.note("cards" if event.subcategory == CARDS else "have", session.watch.name, end, event.payload)
        if event.subcategory != CARDS:
            return []
        envelopes: Any = decode(event.payload)[keys.ENVELOPES]
        cards = [self._reader.read(envelope) for envelope in envelopes]
        self.happened["cards passed on"] += len(cards)
        for origin, number in cards:
            session.watch.sent(end, origin, number)
        return cards

    def read(self, encoded: bytes) -> Card:
        """Read a card, once for all servers: its signature too is verified once."""
        card = self._cards.get(encoded)
        if card is None:
            card = self._cards[encoded] = read_card(encoded)
        return card

    def errs(self, server: SimulatedServer, how: Misbehaviour) -> bool:
        """Whether a server does this wrong: the first one does, if the plan says so."""
        return server.number == 0 and self.plan.misbehaviour is how

    def once(self, timeout: float, answered: Answered, code: int, hop: int | None) -> Answered:
        """A function that passes the first answer on, and gives `code` after `timeout` seconds."""
        left = [answered]

        def first(code: int, hop: int | None) -> None:
            if left:
                left.pop()(code, hop)

        self.agenda.after(timeout, lambda: first(code, hop))
        return first

    # Dials.

    def _dialling(self, server: SimulatedServer) -> Callable[[], None]:
        draws = self.plan.draws("dials", server.number)

        def dial() -> None:
            if server.is_running:
                if draws.once_in(MADE_UP):
                    self._dial_made_up_path(server, draws)
                else:
                    target = draws.choice(self.node_ids)
                    if target != server.node_id:
                        server.reach(target, self._answered)
            if not self.is_calm:
                self.agenda.after(draws.pause(self.plan.dials / 60), dial)

        return dial

    def _answered(self, code: int, _: int | None) -> None:
        self.answers[code] += 1

    def _dial_made_up_path(self, server: SimulatedServer, draws: Draws) -> None:
        """Dial by a path that somebody made up to do harm: on from link to link, and sometimes
        anywhere, back to where it was as well."""
        path = [server.number, draws.choice(list(server.links))]
        while len(path) < LONGEST_PATH:
            near = list(self.servers[path[-1]].links)
            path.append(draws.randrange(len(self.servers)) if draws.once_in(8) else draws.choice(near))
        self.happened["dials by made-up paths"] += 1
        tunnel = SimulatedTunnel(self, server, tuple(self.node_ids[one] for one in path))
        tunnel.open(DIAL_TIMEOUT / 3, lambda *_: None)
