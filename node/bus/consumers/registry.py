"""All consumers of one bus: the loops of the application, and the worker pools of handlers.

Each consumer of a group gets the lowest unused number in its name, so that names stay the same
after a restart.
"""

import logging
import os
import socket
from collections import defaultdict
from typing import Any, Final

import anyio

from parley._crypto.randomness import random_bytes
from parley._node.bus.config import BusConfig
from parley._node.bus.consumers.acks import AckRecorder
from parley._node.bus.consumers.fetcher import Fetcher
from parley._node.bus.consumers.group_consumer import Consumption, GroupConsumer
from parley._node.bus.consumers.options import ConsumerContext, ConsumerOptions
from parley._node.bus.consumers.worker_pool import HandlerSpec, WorkerPool
from parley._node.bus.data import Schemas
from parley._node.bus.errors import BusClosedError
from parley._node.bus.model import Counters
from parley._node.bus.store import LazyStore
from parley._node.errors import ConfigError, ParleyError
from parley._node.logs import one_line

logger = logging.getLogger("parley.bus")

# Leaves space for the suffix `-NUMBER` and the prefix of a node ID.
LONGEST_CONSUMER: Final = 190
# The most characters of the host name in a consumer's name.
_HOST_LENGTH: Final = 64


class ConsumerNames:
    """Allocates the names of one bus's consumers; the first of each group is called `name`.

    Raises:
        ConfigError: the name is too long.
    """

    __slots__ = ("_name", "_taken")

    def __init__(self, name: str) -> None:
        if len(name) > LONGEST_CONSUMER:
            raise ConfigError(
                f"invalid consumer {name[:40]!r}...: it has {len(name)} characters, and may have "
                f"{LONGEST_CONSUMER}"
            )
        self._name = name
        self._taken: defaultdict[tuple[str, str], set[int]] = defaultdict(set)

    def take(self, options: ConsumerOptions) -> str:
        taken = self._taken[options.stream, options.group]
        number = next(number for number in range(1, len(taken) + 2) if number not in taken)
        taken.add(number)
        return self._name if number == 1 else f"{self._name}-{number}"

    def release(self, options: ConsumerOptions, consumer: str) -> None:
        key = (options.stream, options.group)
        rest = consumer[len(self._name) + 1 :]
        self._taken[key].discard(int(rest) if rest else 1)
        if not self._taken[key]:
            del self._taken[key]


class ConsumerRegistry:
    """The consumers of the bus in `store`."""

    def __init__(
        self, store: LazyStore, config: BusConfig, schemas: Schemas, counters: Counters
    ) -> None:
        self._store = store
        self._config = config
        self._schemas = schemas
        self._counters = counters
        self._names = ConsumerNames(config.consumer or process_name())
        self._specs: dict[tuple[str, str], HandlerSpec] = {}
        self._pools: list[WorkerPool] = []
        self._started: set[tuple[str, str]] = set()
        self._running = False
        self._consumptions: set[Consumption[Any]] = set()

    def consumption(self, options: ConsumerOptions, group: str) -> Consumption[Any]:
        async def begin(consumption: Consumption[Any]) -> GroupConsumer:
            consumer = await self._join(options, group)
            self._consumptions.add(consumption)
            return consumer

        def ended(consumption: Consumption[Any], consumer: GroupConsumer) -> None:
            self._consumptions.discard(consumption)
            self._leave(consumer)

        return Consumption(begin, ended)

    def add(self, spec: HandlerSpec) -> None:
        """Add a handler, which starts now or at `begin`.

        Raises:
            ParleyError: the group already has a handler.
            BusClosedError: the bus is closed.
        """
        name, group = key = spec.options.stream, spec.group
        if key in self._specs:
            raise ParleyError(f"cannot add a handler for {name!r}: group {group!r} already has one")
        self._store.require_not_closed()
        self._specs[key] = spec
        if self._running:
            self._start_pools()

    def begin(self) -> None:
        """Start the handlers when the loop runs. Can be called again."""
        self._running = True
        self._start_pools()

    async def drain(self, timeout: float) -> None:
        """Stop the handlers. Running handlers have `timeout` seconds to finish."""
        self._running = False
        pools, self._pools = self._pools, []
        async with anyio.create_task_group() as tasks:
            for pool in pools:
                tasks.start_soon(pool.close, timeout)

    def warn(self, because: str) -> None:
        """Log for each handler that it stops, and why."""
        for name, group in self._started:
            logger.warning(
                "stopping the handler of %s for group %s: %s",
                name,
                group,
                one_line(because),
                extra={"event": "bus.handler-ended", "stream": name, "group": group},
            )

    async def close_loops(self, error: BusClosedError) -> None:
        """Close all loops. Loops that wait for an event raise `error`."""
        for consumption in list(self._consumptions):
            await consumption.close(error)

    async def _join(self, options: ConsumerOptions, group: str) -> GroupConsumer:
        store, loop = await self._store.opened(), self._store.loop
        context = ConsumerContext(store, loop, options, self._names.take(options), self._counters)
        fetcher = Fetcher(context, self._config)
        try:
            await fetcher.join()
            self._store.require_not_closed()
        except BaseException:
            self._names.release(options, context.name)
            raise
        acks = AckRecorder(context, group, fetcher.claim_at)
        return GroupConsumer(context, fetcher, acks, self._schemas)

    def _leave(self, consumer: GroupConsumer) -> None:
        self._names.release(consumer.options, consumer.context.name)

    def _start_pools(self) -> None:
        for key, spec in self._specs.items():
            if key not in self._started:
                self._started.add(key)
                self._pools.append(WorkerPool(spec, self._store.loop, self._join, self._leave))


def process_name() -> str:
    """Return a name for this process: its host, its process id, and four random digits."""
    host = "".join(letter for letter in socket.gethostname() if "!" <= letter <= "~")
    return f"{host[:_HOST_LENGTH] or 'host'}-{os.getpid()}-{random_bytes(2).hex()}"
