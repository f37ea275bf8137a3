"""Randomness that a seed fixes: each actor draws from a source of its own.

What one actor draws changes nothing for another, so that a seed gives the same traffic in whatever
order the event loop runs them. Keys are not drawn here: they are random.
"""

from random import Random  # noqa: TID251  # a simulation, unlike the core, is to be repeatable
from typing import Any

# Sizes of payloads where the plan fixes none: most are small, a few are long.
_USUAL = 5.0  # the natural logarithm of 150 bytes
_SPREAD = 1.0
_LONGEST = 24 * 1024


class Draws(Random):
    """A source of chance for one actor, which `names` names."""

    def __new__(cls, *_: Any) -> "Draws":
        # Random's own takes no more than a seed.
        return super().__new__(cls)

    def __init__(self, seed: int, *names: str | int) -> None:
        super().__init__("/".join(map(str, (seed, *names))))

    def pause(self, rate: float) -> float:
        """Seconds until the next of what happens `rate` times a second on average."""
        return self.expovariate(rate)

    def payload(self, size: int | None) -> bytes:
        """Bytes to say: `size`, or as many as people's programs usually do."""
        if size is None:
            size = min(_LONGEST, 1 + int(self.lognormvariate(_USUAL, _SPREAD)))
        return self.randbytes(size)

    def once_in(self, count: float) -> bool:
        """True once in `count` times."""
        return self.random() * count < 1
