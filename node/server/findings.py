"""What is wrong in a federation, as one server sees it by its links and by the cards of others."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from crypto.identity import NodeId
from node.server.federation import Federation

Kind = Literal["link-down", "one-sided", "clock", "carries-for-nobody", "no-card", "unreachable"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: of which kind, which servers it is about, and a sentence."""

    kind: Kind
    servers: tuple[NodeId, ...]
    text: str


def findings(federation: Federation) -> list[Finding]:
    """All that is wrong, in the order of kinds and of ids."""
    return [
        *_down(federation),
        *_one_sided(federation),
        *_clocks(federation),
        *_idle(federation),
        *_lost(federation),
    ]


def _down(federation: Federation) -> Iterator[Finding]:
    for link in sorted(federation.links, key=lambda link: link.node_id):
        if not link.is_up:
            why = f": {link.error}" if link.error is not None else ""
            text = f"the link with {link.node_id.short} is down{why}"
            yield Finding("link-down", (link.node_id,), text)


def _one_sided(federation: Federation) -> Iterator[Finding]:
    cards = federation.directory.cards
    for one in sorted(cards):
        for other in cards[one].links:
            card = cards.get(other)
            if card is not None and one not in card.links:
                text = f"{one.short} lists a link with {other.short}, which does not list it"
                yield Finding("one-sided", (one, other), text)
            elif card is None and other not in federation.directory.members:
                text = f"{one.short} has a link with {other.short}, which is no member here"
                yield Finding("one-sided", (one, other), text)


def _clocks(federation: Federation) -> Iterator[Finding]:
    for one, ahead in sorted(federation.directory.cards.clocks.items()):
        text = f"the clock of {one.short}, or ours, is wrong: its card is {ahead / 1000:.0f} s off"
        yield Finding("clock", (one,), text)


def _idle(federation: Federation) -> Iterator[Finding]:
    for one in sorted(federation.directory.cards):
        links = federation.directory.cards[one].links
        if len(links) > 1 and not any(links.values()):
            text = f"{one.short} has {len(links)} links and carries for nobody"
            yield Finding("carries-for-nobody", (one,), text)


def _lost(federation: Federation) -> Iterator[Finding]:
    for one in sorted(federation.directory.members):
        if one not in federation.directory.cards:
            yield Finding("no-card", (one,), f"there is no card of {one.short}")
        elif federation.path(one) is None:
            text = f"there is no way to {one.short}, although its card is here"
            yield Finding("unreachable", (one,), text)
