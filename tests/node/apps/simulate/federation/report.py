"""What a simulated federation did, and what held."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from tests.node.apps.simulate.federation.watch import Breach

# What is claimed of a federation, by the names that a report has for it.
CLAIMS: Final = {
    "ends": "every server ends with the newest card of each",
    "truth": "the cards at the end say who is linked to whom, and who carries for whom",
    "cards": "each card passes each link session at most once in each direction",
    "dials": "no Dial visits a server twice, or is forwarded more than 7 times",
    "paths": "paths are as short as any, and every server on them carries",
    "reach": "at the end a Dial reaches every server that there is a path to",
}


@dataclass(slots=True)
class FederationReport:
    """Counts, unless a name says otherwise. `happened` is by kind, `refused` cards by the reason,
    `answers` tries to reach a server by how they ended. `checked` says how often each claim was
    tested, `broken` how often it did not hold; of the `breaches` some are kept. `spread` has the
    seconds from when a card was made until the last server had it, for each that was made while
    all links were open; `settled` is seconds from when the last link opened until the last card
    was taken, if nothing was cut. `sent` is bytes that all servers sent, `memory` bytes of the
    state of one; `trace` a SHA-256 of all that happened, in hex.
    """

    servers: int
    links: int
    simulated: float = 0.0
    events: int = 0
    happened: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    answers: Counter[int] = field(default_factory=Counter)
    most_forwards: int = 0
    sent: int = 0
    memory: int = 0
    spread: list[float] = field(default_factory=list)
    settled: float | None = None
    checked: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    breaches: list[Breach] = field(default_factory=list)
    trace: str = ""

    @property
    def held(self) -> bool:
        """Whether all claims did."""
        return not self.broken.total()

    def fields(self) -> dict[str, Any]:
        """As JSON has it."""
        spread = sorted(self.spread)
        return {
            "servers": self.servers,
            "links": self.links,
            "simulated_seconds": self.simulated,
            "events": self.events,
            "happened": dict(sorted(self.happened.items())),
            "refused": dict(sorted(self.refused.items())),
            "answers": {str(code): count for code, count in sorted(self.answers.items())},
            "most_forwards": self.most_forwards,
            "sent_bytes": self.sent,
            "memory_bytes": self.memory,
            "spread_median": spread[len(spread) // 2] if spread else None,
            "spread_most": spread[-1] if spread else None,
            "settled": self.settled,
            "checked": {claim: self.checked[claim] for claim in CLAIMS},
            "broken": {claim: self.broken[claim] for claim in CLAIMS},
            "trace": self.trace,
        }
