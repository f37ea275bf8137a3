"""Paths of a federation (section 19): usable paths, the chosen one, and what a failure avoids.

Written from the document, and deliberately slow: it tries paths one after the other, the shortest
and smallest first. `Links` is the content of the cards: each server's links, and whether it carries
traffic that arrives from there.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

Links = dict[bytes, dict[bytes, bool]]
LONGEST: Final = 8


@dataclass
class Avoided:
    """What failures said: edges in the direction of a path, and servers between."""

    edges: set[tuple[bytes, bytes]] = field(default_factory=set)
    servers: set[bytes] = field(default_factory=set)


def is_usable(path: list[bytes], links: Links) -> bool:
    """Whether there is an edge at each step, and each server between carries."""
    edges = all(b in links.get(a, {}) and a in links.get(b, {}) for a, b in pairwise(path))
    carried = all(
        links.get(server, {}).get(before, False) for before, server in pairwise(path[:-1])
    )
    return edges and carried and len(set(path)) == len(path)


def choose(
    links: Links, start: bytes, target: bytes, avoided: Avoided, longest: int = LONGEST
) -> list[bytes] | None:
    """The path that all agree on, or None."""
    for length in range(2, longest + 1):
        found = _search(links, [start], target, avoided, length)
        if found is not None:
            return found
    return None


def _search(
    links: Links, path: list[bytes], target: bytes, avoided: Avoided, length: int
) -> list[bytes] | None:
    if len(path) == length:
        return path if path[-1] == target and is_usable(path, links) else None
    if len(path) > 1 and (path[-1] == target or path[-1] in avoided.servers):
        return None
    for neighbour in sorted(links.get(path[-1], {})):
        if neighbour in path or (path[-1], neighbour) in avoided.edges:
            continue
        found = _search(links, [*path, neighbour], target, avoided, length)
        if found is not None:
            return found
    return None


def avoid_after(
    servers: list[bytes], account: bool, code: int | None, hop: int | None
) -> Avoided | None:
    """Return what to avoid after a Dial by these servers, and on to an account of the last one if
    that is so, has failed. Return None if there is no further attempt.

    `code` None: no Answer in time; 0: the handshake with the target failed.
    """
    last = len(servers) - 1
    if code == 0:
        return Avoided(servers=set(servers[1:-1])) if last > 1 else None
    if code is None:
        code, hop = 17, 1
    if code not in (17, 19, 20, 28):
        return None
    # The first and the last index that may be said with a code; others blame the first step.
    least, most = (0, last - 1) if code == 28 else (1, last)
    if account:
        most += 1
    if hop is None or not least <= hop <= most:
        hop = least
    if code == 28:
        step = servers[hop : hop + 2]
        return Avoided({(step[0], step[1]), (step[1], step[0])}) if hop < last else None
    if code == 20:
        return Avoided({(servers[hop - 1], servers[hop])}) if hop <= last else None
    return Avoided(servers={servers[hop]}) if hop < last else None


def avoided_by_all(account: bool, code: int | None) -> bool:
    """Whether all Dials avoid it. What the two ends of a Dial can cause alone is avoided by the
    Dials of the same account to the same target: 17, as the deadline can be too short, and with an
    account at the end, which can be silent, also no Answer and no handshake."""
    return code != 17 and not (account and code in (None, 0))
