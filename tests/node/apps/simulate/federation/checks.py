"""The invariants of a simulated federation after a calm period: cards, paths and Dials."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from tests.node.apps.simulate.federation.reference_model import Truth
from tests.node.apps.simulate.federation.servers import SimulatedServer
from tests.node.apps.simulate.federation.world import FederationWorld

# The number of pairs of servers whose paths are checked: all pairs of up to 16 servers.
MOST_PAIRS: Final = 256
# Seconds between two Dials of the final check.
_APART: Final = 0.05

# The lengths of the shortest paths between all servers.
Lengths: TypeAlias = Mapping[int, Mapping[int, int]]


def check(world: FederationWorld) -> Counter[str]:
    """Compare the knowledge of all servers with the truth; each difference is a breach.

    Returns how often each claim was tested. It dials, so simulated time passes.
    """
    truth = _truth(world)
    checked: Counter[str] = Counter()
    checked["cards"] = world.happened["cards passed on"]
    _check_cards(world, truth, checked)
    pairs = _pairs(world)
    lengths = {origin: truth.distances(origin) for origin, _ in pairs}
    _check_paths(world, truth, lengths, pairs, checked)
    _check_reach(world, lengths, pairs, checked)
    checked["dials"] = len(world.dials)
    return checked


def _truth(world: FederationWorld) -> Truth:
    linked: dict[int, list[int]] = {server.number: [] for server in world.servers}
    for link in world.links:
        if link.is_open:
            one, other = link.numbers
            linked[one].append(other)
            linked[other].append(one)
    return Truth(linked, {server.number: server.carries for server in world.servers})


def _check_cards(world: FederationWorld, truth: Truth, checked: Counter[str]) -> None:
    breaches, before = world.breaches, world.agenda.now - world.under_way
    newest = {one.number: world.spread.newest(one.number, before) for one in world.servers}
    for part in truth.parts():
        for server in map(world.servers.__getitem__, sorted(part)):
            for origin in map(world.servers.__getitem__, sorted(part)):
                checked["ends"] += 1
                card = server.core.cards.get(origin.node_id)
                if card is None or card.number not in newest[origin.number]:
                    breaches.add(
                        "ends",
                        f"server {server.number} has {card or 'no card'} of {origin.number}, "
                        f"the newest is {newest[origin.number]}",
                    )
            _check_own(world, truth, server, checked)


def _check_own(
    world: FederationWorld, truth: Truth, server: SimulatedServer, checked: Counter[str]
) -> None:
    """Check the links in a server's own card."""
    checked["truth"] += 1
    card = server.core.cards.get(server.node_id)
    said = {} if card is None else {world.numbers[one]: on for one, on in card.links.items()}
    true = {near: near in truth.carries[server.number] for near in truth.linked[server.number]}
    if said != true:
        world.breaches.add("truth", f"server {server.number} says {said}, and it is {true}")


def _pairs(world: FederationWorld) -> list[tuple[int, int]]:
    numbers = range(len(world.servers))
    every = len(numbers) * (len(numbers) - 1)
    if every <= MOST_PAIRS:
        return [(one, other) for one in numbers for other in numbers if one != other]
    draws = world.plan.draws("pairs")
    found = (draws.sample(numbers, 2) for _ in range(MOST_PAIRS))
    return sorted({(one, other) for one, other in found})


def _check_paths(
    world: FederationWorld,
    truth: Truth,
    lengths: Lengths,
    pairs: Iterable[tuple[int, int]],
    checked: Counter[str],
) -> None:
    for origin, target in pairs:
        checked["paths"] += 1
        found = world.servers[origin].core.path((world.node_ids[target],))
        length = lengths[origin].get(target)
        if found is None:
            if length is not None:
                world.breaches.add(
                    "paths", f"{origin} to {target}: none, and there is one of {length}"
                )
            continue
        path = [world.numbers[one] for one in found]
        fault = truth.fault(path, origin, target)
        if fault is not None:
            world.breaches.add("paths", f"{origin} to {target} by {path}: {fault}")
        elif len(path) != length:
            world.breaches.add("paths", f"{origin} to {target} by {path}: {length} would do")


def _check_reach(
    world: FederationWorld,
    lengths: Lengths,
    pairs: Iterable[tuple[int, int]],
    checked: Counter[str],
) -> None:
    """Dial once for each pair that has a path."""
    unanswered: set[tuple[int, int]] = set()

    def dial(pair: tuple[int, int]) -> None:
        world.servers[pair[0]].reach(world.node_ids[pair[1]], lambda code, _: done(pair, code))

    def done(pair: tuple[int, int], code: int) -> None:
        unanswered.discard(pair)
        if code:
            world.breaches.add("reach", f"{pair[0]} to {pair[1]}: code {code}")

    start = world.agenda.now
    for number, pair in enumerate(pairs):
        if pair[1] in lengths[pair[0]]:
            unanswered.add(pair)
            world.agenda.at(start + number * _APART, _later(dial, pair))
    checked["reach"] = len(unanswered)
    world.agenda.run(start + len(unanswered) * _APART + world.dial_timeout)
    for origin, target in sorted(unanswered):
        world.breaches.add("reach", f"{origin} to {target}: no answer")


def _later(dial: Callable[[tuple[int, int]], None], pair: tuple[int, int]) -> Callable[[], None]:
    return lambda: dial(pair)
