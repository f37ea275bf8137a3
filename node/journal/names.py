"""The names of a journal's files: node, run, number and state.

Sorted by name, the segments of a node are in order (docs/journal.md).
"""

import re
from datetime import UTC, datetime, timedelta
from pathlib import PurePath
from typing import Final, NamedTuple

from parley._crypto.identity import NodeId

CLOSED: Final = ".pjl"
LIVE: Final = ".pjl.open"
TORN: Final = ".pjl.torn"
LOCK: Final = ".lock"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_START_FORMAT: Final = "%Y%m%dT%H%M%S%fZ"
_NAME: Final = re.compile(
    r"(?P<node>[a-z2-7]{52})-(?P<start>\d{8}T\d{12}Z)-(?P<number>\d{8})(?P<state>\.pjl(\.open|\.torn)?)",
    re.ASCII,
)


class SegmentName(NamedTuple):
    """The parts of a file's name; `start` is in microseconds."""

    node: str
    start: str
    number: int
    state: str = CLOSED

    def __str__(self) -> str:
        return f"{self.node}-{self.start}-{self.number:08d}{self.state}"

    @property
    def stem(self) -> str:
        """The name without the state."""
        return f"{self.node}-{self.start}-{self.number:08d}"


def run_start(time: int) -> str:
    """`<start>` of a run that began at `time`, in ns since the epoch."""
    return f"{_EPOCH + timedelta(microseconds=time // 1000):%Y%m%dT%H%M%S%fZ}"


def parse_name(path: str | PurePath) -> SegmentName | None:
    """The parts of a segment's name; None if `path` is not a segment."""
    found = _NAME.fullmatch(PurePath(path).name)
    if found is None or not _is_time(found["start"]):
        return None
    return SegmentName(found["node"], found["start"], int(found["number"]), found["state"])


def _is_time(start: str) -> bool:
    try:
        datetime.strptime(start, _START_FORMAT)
    except ValueError:
        return False
    return True


def lock_name(node_id: NodeId) -> str:
    """The file by which the journal of a node is locked."""
    return node_id.text + LOCK
