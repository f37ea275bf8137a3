"""A simulated federation as a whole: the pure core of each server on one heap of events.

First all servers start, then links are cut and servers die for a while, then all is calm until
every card has arrived. What must hold is watched all the time.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

from parley._node.apps.simulate.plan import Draws
from parley._node.federation.limits import CARD_INTERVAL
from parley._node.protocol.event_types import LONGEST_PATH
from tests.node.apps.simulate.federation.links import KeptLink
from tests.node.apps.simulate.federation.oracle import Truth
from tests.node.apps.simulate.federation.plan import NOTICED, REDIALLED, STARTING, FederationPlan
from tests.node.apps.simulate.federation.servers import Neighbour, SimulatedServer
from tests.node.apps.simulate.federation.surroundings import Surroundings

# One Dial in so many has a path that somebody made up, and one in so many steps of it leads
# anywhere.
MADE_UP: Final = 4
ANYWHERE: Final = 8


class FederationWorld(Surroundings):
    """A federation by a plan. `answers` counts by code how the tries to reach a server ended;
    `under_way` is seconds in which a card reaches everybody, and `seconds` what all takes."""

    def __init__(self, plan: FederationPlan) -> None:
        super().__init__(plan)
        pairs = plan.pairs()
        near: dict[int, list[int]] = {number: [] for number in range(plan.servers)}
        for one, other in pairs:
            near[one].append(other)
            near[other].append(one)
        # No two are further apart than both are from the first.
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

    def _dial_made_up_path(self, server: SimulatedServer, draws: Draws) -> None:
        """Dial by a path that somebody made up to do harm: on from link to link, and sometimes
        anywhere, back to where it was as well."""
        path = [server.number, draws.choice(list(server.neighbours))]
        while len(path) < LONGEST_PATH:
            if draws.once_in(ANYWHERE):
                path.append(draws.randrange(len(self.servers)))
            else:
                path.append(draws.choice(list(self.servers[path[-1]].neighbours)))
        self.happened["dials by made-up paths"] += 1
        made_up = tuple(self.node_ids[number] for number in path)
        server.dial(made_up, self.dial_timeout, lambda *_: None)
