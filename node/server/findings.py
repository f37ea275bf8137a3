"""Problems of a federation that one server sees in its links and in the cards of others."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from parley._crypto.identity import NodeId
from parley._node.federation.directory import Directory
from parley._node.server.links import ServerLink

Kind = Literal["link-down", "one-sided", "clock", "carries-for-nobody", "no-card", "unreachable"]


@dataclass(frozen=True, slots=True)
class FederationFinding:
    """A problem: its kind, the servers concerned, and a sentence."""

    kind: Kind
    servers: tuple[NodeId, ...]
    text: str


def findings(directory: Directory, links: Iterable[ServerLink]) -> list[FederationFinding]:
    """Return all problems, sorted by kind and id."""
    return [
        *_down(links),
        *_one_sided(directory),
        *_clocks(directory),
        *_idle(directory),
        *_lost(directory),
    ]


def _down(links: Iterable[ServerLink]) -> Iterator[FederationFinding]:
    for link in sorted(links, key=lambda link: link.node_id):
        if not link.is_up:
            why = f": {link.error}" if link.error is not None else ""
            text = f"the link with {link.node_id.short} is down{why}"
            yield FederationFinding("link-down", (link.node_id,), text)


def _one_sided(directory: Directory) -> Iterator[FederationFinding]:
    cards = directory.cards
    for one in sorted(cards):
        for other in cards[one].links:
            card = cards.get(other)
            if card is not None and one not in card.links:
                text = f"{one.short} lists a link with {other.short}, which does not list it"
                yield FederationFinding("one-sided", (one, other), text)
            elif card is None and other not in directory.members:
                text = f"{one.short} has a link with {other.short}, which is not a member here"
                yield FederationFinding("one-sided", (one, other), text)


def _clocks(directory: Directory) -> Iterator[FederationFinding]:
    for one, ahead in sorted(directory.cards.clocks.items()):
        seconds = f"{ahead / 1000:.0f} s"
        text = f"the clock of {one.short} or of this server is wrong: its card is {seconds} off"
        yield FederationFinding("clock", (one,), text)


def _idle(directory: Directory) -> Iterator[FederationFinding]:
    for one in sorted(directory.cards):
        links = directory.cards[one].links
        if len(links) > 1 and not any(links.values()):
            text = f"{one.short} has {len(links)} links, but relays for no server"
            yield FederationFinding("carries-for-nobody", (one,), text)


def _lost(directory: Directory) -> Iterator[FederationFinding]:
    for one in sorted(directory.members):
        if one not in directory.cards:
            yield FederationFinding("no-card", (one,), f"the card of {one.short} is missing")
        elif directory.path((one,)) is None:
            text = f"{one.short} is unreachable: its card is known, but no path leads to it"
            yield FederationFinding("unreachable", (one,), text)
