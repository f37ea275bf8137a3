"""The parameters of a run: duration, seed, event loop, and the amount of each kind of traffic.

Both processes get the plan as JSON.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from parley._crypto.identity import Identity
from parley._node.config import NodeConfig, Tuning
from parley._node.protocol.config import CoreConfig

BACKENDS: Final = ("asyncio", "uvloop", "trio")
# As often as the protocol permits unlimited updates, and twice as often as is checked, so that a
# busy machine meets the limit.
UPDATE_SECONDS: Final = 2.0
# Seconds within which keys must change at least once.
KEYS_CHANGE: Final = 4.0
UPDATE_EVENTS: Final = 50_000
REKEY_SECONDS: Final = 3.0
REKEY_ALLOWANCE: Final = 10
# Seconds after which a task that waits on an ended connection counts as hanging.
HANG: Final = 15.0
# Seconds for one call, request or subscription; later answers count as lost.
PATIENCE: Final = 60.0


@dataclass(frozen=True, slots=True)
class Plan:
    """A run of `seconds` at full load.

    On each of `links` connections, each side has `client_calls` or `server_calls` concurrent calls,
    `items` calls that are answered with items, `events` streams of typed events and `pipes` of
    bytes, in both directions. A session whose transport is cut can resume for `resume` seconds;
    with 0 it ends.
    """

    seconds: float
    seed: int
    backend: str
    links: int = 3
    client_calls: int = 64
    server_calls: int = 16
    items: int = 3
    events: int = 3
    pipes: int = 2
    resume: float = 30.0

    def serialise(self) -> str:
        """Return the plan as a command-line argument."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> "Plan":
        """Parse a serialised plan."""
        return cls(**json.loads(text))

    def loop(self) -> dict[str, Any]:
        """Return the arguments of `anyio.run`."""
        if self.backend == "trio":
            return {"backend": "trio"}
        uvloop = {"use_uvloop": self.backend == "uvloop"}
        return {"backend": "asyncio", "backend_options": uvloop}

    def cut_pause(self) -> tuple[float, float]:
        """Return the minimum and maximum seconds between two cuts."""
        return (0.3, 1.2) if self.seconds < 20 else (0.5, 5.0)


class SoakConfig(NodeConfig):
    """The default settings, with new keys by time, event count and rekey.

    An application's settings don't offer these limits.
    """

    def core(self, identity: Identity) -> CoreConfig:
        return replace(
            super().core(identity),
            update_after_seconds=UPDATE_SECONDS,
            update_after_events=UPDATE_EVENTS,
            rekey_interval=REKEY_SECONDS,
        )


def soak_config(plan: Plan) -> NodeConfig:
    """Return the settings of both nodes."""
    return SoakConfig(tuning=Tuning(rekey_allowance=REKEY_ALLOWANCE), resume=plan.resume)


Tally = Mapping[str, Any]
"""Return one line of a process, decoded from JSON."""
