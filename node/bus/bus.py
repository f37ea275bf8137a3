"""`Bus`: events published durably, and consumed by groups, whatever store keeps them.

Publishing returns when the event is stored; what a group was handed it is handed again until it
is acknowledged or set aside.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Self, TypeVar, overload

import anyio

from parley._node.backoff import Pauses
from parley._node.bus.config import BusConfig
from parley._node.bus.consumers.group_consumer import Consumption
from parley._node.bus.consumers.options import (
    BATCH,
    MAX_ATTEMPTS,
    RECLAIM_AFTER,
    check_options,
    require_count,
)
from parley._node.bus.consumers.registry import ConsumerRegistry
from parley._node.bus.consumers.worker_pool import Handler, HandlerSpec
from parley._node.bus.data import Data, Schemas, When, encode_body
from parley._node.bus.dead_letters import DeadLetter, DeadLetters
from parley._node.bus.errors import BusError, InvalidEventError
from parley._node.bus.event import BusEvent, History
from parley._node.bus.identifiers import (
    BEFORE_ALL,
    FIRST,
    Position,
    after,
    api_of,
    check_key,
    last_before,
    oldest_kept,
    parse_id,
    split_name,
)
from parley._node.bus.model import (
    ConsumerInfo,
    Counters,
    GroupInfo,
    NewEvent,
    PendingInfo,
    StreamInfo,
    Trim,
)
from parley._node.bus.retry import publish_again
from parley._node.bus.store import LazyStore, Store
from parley._node.data_types import Model, R, data_hint, data_type, handler_hints, plain_value
from parley._node.errors import ConfigError
from parley._node.protocol.config_types import require_number
from parley._node.transport.backend import Backend
from parley._node.transport.callables import require_callable
from parley._node.transport.conditions import is_async

H = TypeVar("H", bound=Handler)

# Seconds that handlers have to finish when a bus is left as a context manager.
DRAIN_TIMEOUT: Final = 5.0
RETRY_DELAY: Final = 1.0
MAX_RETRY_DELAY: Final = 300.0
# Seconds for which publishing with an idempotency key is tried again.
PUBLISH_TIMEOUT: Final = 30.0
LARGEST_VERSION: Final = 2**31 - 1
# Rows of a page of a listing, unless more are asked for.
PAGE: Final = 100


class Bus:
    """Events by name, `API.EVENT`, kept until they are processed.

    Made by `Node.bus`, `Peer.bus` and `Link.bus`, and by `open_bus` where there is no node; opened
    at first use. `loop` gives the loop that it lives in. `counters` count what was done here. Names
    of groups are as their consumers call them, without the service's. The stream of all events of
    an API, which Redis may have, is `API.*`.
    """

    def __init__(self, store: Store, config: BusConfig, *, loop: Callable[[], Backend]) -> None:
        self.store = store
        self.config = config
        self.counters = Counters()
        self.schemas = Schemas()
        self._lazy = LazyStore(store, loop)
        self._consumers = ConsumerRegistry(self._lazy, config, self.schemas, self.counters)

    def __repr__(self) -> str:
        return f"<Bus on {type(self.store).__name__}>"

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, for good."""
        return self._lazy.is_closed

    async def opened(self) -> Store:
        """The store, opened if it was not.

        Raises:
            BusClosedError: the bus is closed. BusError: it cannot be opened. ConfigError: a
                setting is wrong.
        """
        return await self._lazy.opened()

    # Publishing.

    async def publish(
        self,
        name: str,
        data: Data | Model,
        *,
        idempotency_key: str | None = None,
        version: int = 1,
        durable: bool = True,
        timeout: float = PUBLISH_TIMEOUT,
    ) -> str:
        """Store an event; returns its id, once it is on disk as far as the store can say so
        (docs/bus.md), or with `durable` False once it is safe from the end of the process that
        stores it. The data is a mapping, a dataclass or another model; models in it are stored as
        JSON objects.

        An event with an `idempotency_key` that was published on the same name within the window
        is not stored again; the id is that of the first. With a key, publishing is therefore
        tried again for `timeout` seconds while the store gives no answer. After a cancellation
        the event may have been stored.

        Raises:
            InvalidEventError: a name, data, key or version that no event may have; as
                SchemaViolationError, data that its schema does not allow. BusUnavailableError:
                no answer; it may have been stored. BusClosedError: the bus is closed; if it was
                closed meanwhile, it may have been stored. BusFullError, BusBusyError and other
                BusErrors: it was not stored.
        """
        event = self._new_event(name, data, idempotency_key, version)
        if idempotency_key is None:
            store = self.store if self._lazy.is_open else await self._lazy.opened()
            (published,) = await store.publish((event,), durable=durable)
        else:
            lazy = self._lazy
            published = await publish_again(
                lazy.opened, lazy.loop, event, durable=durable, timeout=timeout
            )
        if not published.duplicate:
            self.counters.published += 1
        return published.id

    async def publish_many(
        self, name: str, items: Iterable[Data | Model], *, version: int = 1, durable: bool = True
    ) -> list[str]:
        """Store events, all or none of them, in this order; returns their ids. Raises as
        `publish`."""
        events = [self._new_event(name, data, None, version) for data in items]
        if not events:
            return []
        store = await self.opened()
        published = await store.publish(events, durable=durable)
        self.counters.published += len(published)
        return [one.id for one in published]

    def schema(
        self, name: str, schema: Mapping[str, Any] | bool, *, validate: When = "both"
    ) -> None:
        """Give the events of a name, or of an API (`auth.*`), a JSON schema: data that it does not
        allow is not published (SchemaViolationError), and when it is consumed it is set aside
        instead of being handed out. `validate` may be only one of the two.

        Raises:
            ParleyError: the name has a schema already. InvalidEventError: it is not such a name.
                ConfigError: it is not a JSON schema, refers to something outside it, or
                `jsonschema` is not installed.
        """
        self.schemas.add(name, schema, validate)

    # Consuming.

    @overload
    def consume(
        self,
        name: str,
        group: str,
        *,
        returns: None = None,
        batch: int = ...,
        reclaim_after: float = ...,
        max_attempts: int | None = ...,
        start: Position = ...,
    ) -> Consumption: ...

    @overload
    def consume(
        self,
        name: str,
        group: str,
        *,
        returns: type[R],
        batch: int = ...,
        reclaim_after: float = ...,
        max_attempts: int | None = ...,
        start: Position = ...,
    ) -> Consumption[R]: ...

    def consume(
        self,
        name: str,
        group: str,
        *,
        returns: Any = None,
        batch: int = BATCH,
        reclaim_after: float = RECLAIM_AFTER,
        max_attempts: int | None = MAX_ATTEMPTS,
        start: Position = FIRST,
    ) -> Consumption[Any]:
        """The events of a name for a group: `async with bus.consume(...) as events`, then `async
        for event in events`.

        Asking for the next event acknowledges the one before, and so does leaving normally; an
        exception does not: the event comes again, or after `max_attempts` (None: without end)
        goes to the dead letters. At most `batch` events (1 to 10,000) are fetched at once. Events
        that another consumer holds for `reclaim_after` seconds without a sign of life are taken
        over. A new group begins at `start`: `first`, `new`, an id, or a time. With `returns` the
        data of each event is of that type, such as a dataclass; an event whose data does not fit
        goes to the dead letters.

        Raises:
            InvalidEventError: the name, group or start is wrong. ConfigError: a number is, or
                `returns` is not a type of data.
        """
        options = check_options(self.config, name, group, batch, reclaim_after, max_attempts, start)
        if returns is not None:
            options = replace(options, returns=data_type(returns))
        return self._consumers.consumption(options, group)

    def handler(
        self,
        name: str,
        group: str,
        *,
        concurrency: int = 1,
        max_attempts: int | None = MAX_ATTEMPTS,
        batch: int = BATCH,
        reclaim_after: float = RECLAIM_AFTER,
        retry_delay: float = RETRY_DELAY,
        max_retry_delay: float = MAX_RETRY_DELAY,
        start: Position = FIRST,
    ) -> Callable[[H], H]:
        """Register the handler of a group's events: `async def handler(event)`. It runs for as
        long as the node, up to `concurrency` of it at a time; with 1, events are processed in
        their order. With the hint `event: BusEvent[Order]` their data is an Order, as with
        `returns=` of `consume`.

        An event is acknowledged when it returns. If it raises, that is logged, and the event
        comes again after about `retry_delay` seconds, twice that after the next time, at most
        `max_retry_delay`; after `max_attempts` it goes to the dead letters. The rest as `consume`.

        Raises:
            ParleyError: the group has a handler for it. InvalidEventError: the name, group or
                start is wrong. ConfigError: an option is wrong, or the handler is not a coroutine
                function.
        """
        options = check_options(self.config, name, group, batch, reclaim_after, max_attempts, start)
        require_count("concurrency", concurrency)
        retries = Pauses(first=retry_delay, longest=max_retry_delay)

        def register(handler: H) -> H:
            require_callable(handler, f"the handler of {name}", "event")
            if not is_async(handler):
                raise ConfigError(f"the handler of {name} must be a coroutine function")
            what = f"the handler of {name}"
            hint = data_hint(handler_hints(handler, what, BusEvent), BusEvent)
            typed = hint not in (None, Any, dict[str, Any]) and not isinstance(hint, TypeVar)
            held = replace(options, returns=data_type(hint)) if typed else options
            self._consumers.add(HandlerSpec(handler, held, group, concurrency, retries))
            return handler

        return register

    # Looking.

    async def streams(self) -> list[StreamInfo]:
        """All streams, by name."""
        return await (await self._lazy.opened()).streams()

    async def groups(self, name: str | None = None) -> list[GroupInfo]:
        """The groups of a stream, or of all, under the names that the store has for them."""
        store = await self._lazy.opened()
        if name is not None:
            api_of(name)
            return await store.groups(name)
        found = [await store.groups(stream.name) for stream in await store.streams()]
        return [group for groups in found for group in groups]

    async def lag(self, name: str, group: str) -> int | None:
        """How many events the group was never handed; None if the store cannot say.

        Raises:
            BusError: there is no such group.
        """
        whole = self._group(name, group)
        for found in await self.groups(name):
            if found.name == whole:
                return found.lag
        raise BusError(f"{name} has no group {whole}")

    async def consumers(self, name: str, group: str) -> list[ConsumerInfo]:
        """The consumers of a group, by name."""
        return await (await self._lazy.opened()).consumers(name, self._group(name, group))

    async def pending(
        self, name: str, group: str, *, count: int = PAGE, after: str = BEFORE_ALL
    ) -> list[PendingInfo]:
        """Up to `count` events that were handed out and not acknowledged, after an id."""
        whole = self._group(name, group)
        return await (await self._lazy.opened()).pending(name, whole, count, str(parse_id(after)))

    @overload
    def history(
        self,
        name: str,
        *,
        returns: None = None,
        start: Position = ...,
        end: Position | None = ...,
        follow: bool = ...,
    ) -> History: ...

    @overload
    def history(
        self,
        name: str,
        *,
        returns: type[R],
        start: Position = ...,
        end: Position | None = ...,
        follow: bool = ...,
    ) -> History[R]: ...

    def history(
        self,
        name: str,
        *,
        returns: Any = None,
        start: Position = FIRST,
        end: Position | None = None,
        follow: bool = False,
    ) -> History[Any]:
        """The events of a stream as they are stored, whatever groups do: `async for event in
        bus.history(...)`, from `start` (inclusive) to `end` (an id: inclusive; a time: what was
        published before it); with `follow` also those to come, waiting for a store that went away.
        With `returns` the data of each event is of that type; `event.data` raises
        MalformedDataError for an event whose data does not fit.

        Raises:
            InvalidEventError: the name or a position is wrong. ConfigError: `returns` is not a
                type of data.
        """
        api_of(name)
        until = None if end is None else last_before(end)
        held = None if returns is None else data_type(returns)
        return History(self._lazy, name, after(start), until, follow=follow, returns=held)

    # Keeping order.

    async def replay(self, name: str, group: str, start: Position) -> None:
        """The group reads on from `start`, be that back or forth; a group that is not there is
        made. What is pending stays so.

        Raises:
            InvalidEventError: the name or a position is wrong.
        """
        whole = self._group(name, group)
        await (await self._lazy.opened()).rewind(name, whole, after(start))

    async def trim(
        self,
        name: str,
        *,
        max_length: int | None = None,
        max_age: float | None = None,
        before: Position | None = None,
        max_bytes: int | None = None,
    ) -> int:
        """Take away the oldest events, read or not: all but `max_length`, those older than
        `max_age` seconds, those before an id or time, all but `max_bytes`. How many.

        Raises:
            InvalidEventError: the name or a position is wrong. ConfigError: a number is wrong.
        """
        api_of(name)
        limits = {"max_length": max_length, "max_bytes": max_bytes, "max_age": max_age}
        for kind, value in limits.items():
            if value is not None:
                require_number(kind, value, finite=True, error=ConfigError)
        since = None if max_age is None else self.config.clock() - max_age
        bounds = Trim(max_length, oldest_kept(before, since), max_bytes)
        return await (await self._lazy.opened()).trim(name, bounds)

    async def remove_group(self, name: str, group: str) -> bool:
        """Forget a group with all that is pending in it; whether there was one."""
        return await (await self._lazy.opened()).remove_group(name, self._group(name, group))

    # Dead letters.

    async def dead_letters(
        self, name: str, *, count: int = PAGE, after: str = BEFORE_ALL
    ) -> list[DeadLetter]:
        """The first `count` events of a stream that were set aside, after the letter of an id;
        fewer if there are no more."""
        return await DeadLetters(self._lazy, name).page(count, after)

    async def replay_dead(
        self, name: str, ids: Sequence[str] | None = None, *, group: str | None = None
    ) -> list[str]:
        """Have events that were set aside processed again, attempts counted anew: all, or the
        letters of some ids, or those of a group. Each goes to the group it failed in; if the
        stream does not have it any more it is published again, for all groups. The
        letters are then forgotten; their ids are returned."""
        whole = None if group is None else self._group(name, group)
        return await DeadLetters(self._lazy, name).replay(ids, whole)

    async def drop_dead(self, name: str, ids: Sequence[str] | None = None) -> int:
        """Forget events that were set aside: all, or the letters of some ids. How many."""
        return await DeadLetters(self._lazy, name).drop(ids)

    # Its life.

    async def __aenter__(self) -> Self:
        """Open the store, and begin the handlers' work.

        Raises:
            BusError: it cannot be opened. ConfigError: a setting is wrong.
        """
        await self._lazy.opened()
        self.begin()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: object, exc_tb: object
    ) -> None:
        await self.aclose(DRAIN_TIMEOUT if exc_type is None else 0.0)

    def begin(self) -> None:
        """The loop runs: handlers begin. For the owner of the bus; a second time is fine."""
        if not self.is_closed:
            self._consumers.begin()

    async def drain(self, timeout: float) -> None:
        """Have the handlers finish what they do, in `timeout` seconds at most; events that they
        had not begun are for others. No handler runs after it."""
        await self._consumers.drain(timeout)

    async def aclose(self, timeout: float = 0.0, *, because: str = "") -> None:
        """Drain, record what is done, give back what was not begun, and close the store. Whoever
        waits for events meets BusClosedError, which says `because`. A second time is fine."""
        if because and not self.is_closed:
            self._lazy.closed_because = because
            self._consumers.warn(because)
        # Also when we are being cancelled: what is done is to be recorded.
        with anyio.CancelScope(shield=True):
            await self._consumers.drain(timeout)
            await self._consumers.close_loops(self._lazy.closed_error())
            await self._lazy.aclose()

    # Inside.

    def _new_event(self, name: str, given: Data | Model, key: str | None, version: int) -> NewEvent:
        split_name(name)
        if key is not None:
            check_key(key)
        if type(version) is not int or not 1 <= version <= LARGEST_VERSION:
            raise InvalidEventError(f"{version!r} is not a version: 1 to {LARGEST_VERSION:,}")
        data: Any = given
        try:
            body = encode_body(data, self.config.max_event_bytes)
        except InvalidEventError as error:
            data = plain_value(data, error)
            body = encode_body(data, self.config.max_event_bytes)
        if not self.schemas.is_empty:
            self.schemas.check_published(name, data)
        return NewEvent(name, data, body, key, version)

    def _group(self, name: str, group: str) -> str:
        api_of(name)  # raises InvalidEventError
        return self.config.group_name(group)
