"""`TraceContext`: the place of a request in a trace, as the header `traceparent` says it.

The form is that of the W3C recommendation Trace Context, level 1: four fields in lower-case
hexadecimal, joined by hyphens. It comes from strangers, so that what is malformed is None.
"""

import re
from dataclasses import dataclass
from typing import Final, Self

from parley._crypto.randomness import random_bytes

SAMPLED: Final = 0x01
# version, trace-id, parent-id, trace-flags; and what a later version may have after them.
_FORM: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
# Of what later versions may add, all that is looked at.
_LONGEST: Final = 256


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A span of a trace: `trace_id` (32 hexadecimal digits), `span_id` (16 of them), and `flags`,
    whose lowest bit says that the trace is recorded."""

    trace_id: str
    span_id: str
    flags: int = SAMPLED

    @classmethod
    def new(cls) -> Self:
        """The first span of a new trace."""
        return cls(random_bytes(16).hex(), random_bytes(8).hex())

    @classmethod
    def parse(cls, text: object) -> Self | None:
        """Read a `traceparent`; None if it is not one (section 3.2 of the recommendation)."""
        if not isinstance(text, str) or len(text) > _LONGEST:
            return None
        match = _FORM.fullmatch(text)
        if match is None:
            return None
        version, trace_id, span_id, flags, more = match.groups()
        if version == "ff" or (version == "00" and more is not None):
            return None
        if not int(trace_id, 16) or not int(span_id, 16):
            return None
        return cls(trace_id, span_id, int(flags, 16) & SAMPLED)

    @property
    def sampled(self) -> bool:
        """Whether the trace is recorded."""
        return bool(self.flags & SAMPLED)

    def child(self) -> "TraceContext":
        """Another span of the same trace, whose parent this one is."""
        return TraceContext(self.trace_id, random_bytes(8).hex(), self.flags)

    def __str__(self) -> str:
        """Return the header's text, of version 00."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}"
