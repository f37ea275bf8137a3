"""Parsed bodies of a journal, described with the terms of the document's tables.

The reference implementation and the vectors use the same description; absent fields are left out.
"""

from dataclasses import fields, is_dataclass
from typing import Any, Final

from parley._node.journal import keys
from parley._node.journal.record_types import (
    Checkpoint,
    DirectionCheckpoint,
    Generation,
    JoinedTunnel,
    KeyUpdate,
    Secret,
    SegmentEnd,
    SegmentHead,
    SessionEnd,
    SessionFacts,
    SessionParted,
    SessionResumed,
    SessionStart,
)
from tests.reference.vectors_journal import plain

# The parsers of bodies that have a map.
BODIES: Final[dict[str, Any]] = {
    "segment": SegmentHead,
    "checkpoint": Checkpoint,
    "session start": SessionStart,
    "secret": Secret,
    "key update": KeyUpdate,
    "session end": SessionEnd,
    "segment end": SegmentEnd,
    "parted": SessionParted,
    "resumed": SessionResumed,
    "tunnel": JoinedTunnel,
}
_CONSTANTS: Final = {"format": keys.FORMAT_NAME, "version": keys.FORMAT_VERSION}
# Our names, where they differ from the document.
_NAMES: Final = {"seal_delay_ms": "seal_delay", "generations": "secrets"}


def described(value: Any) -> Any:
    """Return the description of a parsed body, as in a vector."""
    match value:
        case DirectionCheckpoint():
            counters = plain([list(counter) for counter in value.counters.items()])
            return _of_fields(value) | {"counters": counters}
        case Generation():
            return {
                "generation": value.number,
                "after_offer": described(value.after_offer),
                "after_answer": described(value.after_answer),
                "rekey_commit": described(value.commit),
                "boxes": described(value.boxes),
            }
        case Checkpoint():
            both = [described(value.received), described(value.sent)]
            rest = {k: v for k, v in _of_fields(value).items() if k not in ("received", "sent")}
            return rest | {"directions": both}
        case KeyUpdate(generation=Generation()):
            rekey = {k: v for k, v in described(value.generation).items() if k != "boxes"}
            return _of_fields(value) | rekey
        case SegmentHead():
            return _of_fields(value) | _CONSTANTS
        case tuple() | list():
            return [described(item) for item in value]
        case _ if is_dataclass(value):
            return _of_fields(value)
        case _:
            return plain(bytes(value) if isinstance(value, bytes) else value)


def _of_fields(value: Any) -> dict[str, Any]:
    """Return the fields by the document's names, without absent and empty ones."""
    found: dict[str, Any] = {}
    for name in (field.name for field in fields(value)):
        item = getattr(value, name)
        if isinstance(item, SessionFacts):
            found |= _of_fields(item)
        elif item is not None and (name, item) not in (("text", ""), ("cut", 0)):
            found[_NAMES.get(name, name)] = described(item)
    return found
