"""The options of `Bus.consume` and `Bus.handler`, checked when they are given."""

from dataclasses import dataclass
from typing import Any, Final, TypedDict

from parley._node.bus.config import BusConfig
from parley._node.bus.errors import InvalidEventError
from parley._node.bus.identifiers import DEAD, FIRST, Position, after, check_word, split_name
from parley._node.bus.model import Counters
from parley._node.bus.store import Store
from parley._node.data_types import DataType
from parley._node.errors import ConfigError
from parley._node.protocol.config_types import require_number
from parley._node.transport.loop import Loop

BATCH: Final = 100
MOST_BATCH: Final = 10_000
RECLAIM_AFTER: Final = 60.0
MAX_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """The checked options of a consumer.

    `group` is the name that the store uses, `after` the ID after which a new group begins, and
    `returns` the type of the data. `max_attempts` None means no limit.
    """

    stream: str
    group: str
    batch: int
    reclaim_after: float
    max_attempts: int | None
    after: str
    returns: DataType[Any] | None = None


@dataclass(frozen=True, slots=True)
class ConsumerContext:
    """One consumer of a group, with the objects that its parts share."""

    store: Store
    loop: Loop
    options: ConsumerOptions
    name: str
    counters: Counters

    @property
    def what(self) -> str:
        """The consumer's description in log lines."""
        return f"{self.options.stream} for {self.options.group}"


class ConsumeOptions(TypedDict, total=False):
    """The options that `Bus.consume` and `Bus.handler` share."""

    batch: int
    reclaim_after: float
    max_attempts: int | None
    start: Position


def check_options(
    config: BusConfig,
    name: str,
    group: str,
    *,
    batch: int = BATCH,
    reclaim_after: float = RECLAIM_AFTER,
    max_attempts: int | None = MAX_ATTEMPTS,
    start: Position = FIRST,
) -> ConsumerOptions:
    """Return checked options.

    Raises:
        InvalidEventError: the name, group or start is invalid.
        ConfigError: a number is out of range.
    """
    _, event = split_name(name)
    check_word("group", group)
    whole = config.group_name(group)
    check_word("group", whole)
    require_count("batch", batch)
    if batch > MOST_BATCH:
        raise ConfigError(f"invalid batch {batch}: it must be {MOST_BATCH:,} or less")
    require_number("reclaim_after", reclaim_after, above=True, finite=True, error=ConfigError)
    if max_attempts is not None:
        require_count("max_attempts", max_attempts)
    if event == DEAD:
        # Dead letters that fail stay on their stream.
        max_attempts = None
    return ConsumerOptions(name, whole, batch, float(reclaim_after), max_attempts, after(start))


def require_count(name: str, value: object) -> None:
    """Raise ConfigError unless a setting is a whole number, 1 or more."""
    if type(value) is not int or value < 1:
        raise ConfigError(f"invalid {name} {value!r}: it must be a whole number, 1 or more")


def require_delay(delay: float) -> float:
    """Return a delay in seconds; raise InvalidEventError if it is negative or not finite."""
    if not 0 <= delay < float("inf"):
        raise InvalidEventError(f"invalid delay {delay!r}: it must be 0 or more seconds")
    return float(delay)
