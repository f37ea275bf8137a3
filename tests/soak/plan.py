"""What a run is: how long, from which seed, on which loop, how much of each traffic.

A plan travels to the two processes as JSON, so both know the same of it.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from parley._crypto.identity import Identity
from parley._node.config import NodeConfig, Tuning
from parley._node.protocol.config import CoreConfig

BACKENDS: Final = ("asyncio", "uvloop", "trio")
# As often as the protocol lets a side update without an end, and twice as often as is checked,
# so that a busy machine keeps that as well.
UPDATE_SECONDS: Final = 2.0
# Seconds in which keys change at least once.
KEYS_CHANGE: Final = 4.0
UPDATE_EVENTS: Final = 50_000
REKEY_SECONDS: Final = 3.0
REKEY_ALLOWANCE: Final = 10
# Seconds after which an operation that still waits on a dead connection counts as hanging.
HANG: Final = 15.0
# Seconds for one call, request or subscription; later ones count as lost.
PATIENCE: Final = 60.0


@dataclass(frozen=True, slots=True)
class Plan:
    """A run of `seconds` at full load.

    On each of `links` connections each side has `client_calls` or `server_calls` calls in flight,
    `items` calls that are answered in items, `events` streams of typed events and `pipes` of bytes,
    in both directions. A session whose transport is cut may resume over another for `resume`
    seconds; with 0 it ends.
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
        """For a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> "Plan":
        """What `serialise` made."""
        return cls(**json.loads(text))

    def loop(self) -> dict[str, Any]:
        """Arguments of `anyio.run`."""
        if self.backend == "trio":
            return {"backend": "trio"}
        uvloop = {"use_uvloop": self.backend == "uvloop"}
        return {"backend": "asyncio", "backend_options": uvloop}

    def cut_pause(self) -> tuple[float, float]:
        """Between which seconds one cut follows another."""
        return (0.3, 1.2) if self.seconds < 20 else (0.5, 5.0)


class SoakConfig(NodeConfig):
    """The defaults, except for keys: they change by time, by number of events and by rekey, more
    often than an application's settings allow.
    """

    def core(self, identity: Identity) -> CoreConfig:
        """As of `NodeConfig`."""
        return replace(
            super().core(identity),
            update_after_seconds=UPDATE_SECONDS,
            update_after_events=UPDATE_EVENTS,
            rekey_interval=REKEY_SECONDS,
        )


def soak_config(plan: Plan) -> NodeConfig:
    """The settings of both nodes."""
    return SoakConfig(tuning=Tuning(rekey_allowance=REKEY_ALLOWANCE), resume=plan.resume)


Tally = Mapping[str, Any]
"""One line of a process, decoded from JSON."""
