"""The targets by name; loading one imports the code under test with it.

The code under test must not be imported earlier, because the fuzzer instruments imports.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Final

TARGETS: Final = (
    *("decoder", "frames", "events", "handshake", "connection", "resume", "batch"),
    *("simproto", "named", "relay", "relay_client", "formats"),
    *("journal", "audit", "federation", "statement", "key_statements"),
)
# Those whose inputs are scripts: after how many bytes.
SCRIPTED: Final = {
    "events": 1,
    "handshake": 1,
    "connection": 1,
    "resume": 1,
    "batch": 1,
    "simproto": 2,
    "named": 2,
    "relay": 2,
    "relay_client": 2,
    "audit": 1,
}
# One with a bug on purpose, by which tests see that the runner finds and reports it.
PLANTED: Final = "planted"


@dataclass(frozen=True)
class Target:
    """`run` takes an input of at most `max_size` bytes, and raises where there is a bug."""

    name: str
    max_size: int
    run: Callable[[bytes], None]


def load(name: str) -> Target:
    """The target of that name."""
    module = import_module(f"tests.fuzz.{name}")
    return Target(name, module.MAX_SIZE, module.fuzz)
