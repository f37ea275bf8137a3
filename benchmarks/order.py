"""What a child process is told to be, as its command line carries it.

Whatever a process has to know when it begins is in here; what follows are lines.
"""

import json
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.task import Task

Backend = Literal["uvloop", "asyncio", "trio"]
SideName = Literal[
    "ours", "journaled", "baseline", "events", "simproto", "named", "named-typed", "relay"
]


@dataclass(frozen=True, slots=True)
class Order:
    """Which side of which task; `info` is what the server said, for a client."""

    side: SideName
    backend: Backend
    task: Task
    info: dict[str, Any] | None = None

    def to_text(self) -> str:
        """For the command line."""
        return json.dumps([self.side, self.backend, self.task.to_json(), self.info])

    @classmethod
    def from_text(cls, text: str) -> "Order":
        """What `to_text` gave."""
        side, backend, task, info = json.loads(text)
        return cls(side, backend, Task.from_json(task), info)
