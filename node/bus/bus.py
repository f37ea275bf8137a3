"""`Bus`: durable events that consumer groups process, on any store.

Publishing returns when the event is stored. An event is redelivered to a group until the group
acknowledges it or it becomes a dead letter.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Self, TypeVar, Unpack, overload

import anyio

from parley._node.backoff import Backoff
from parley._node.bus.config import BusConfig
from parley._node.bus.consumers.group_consumer import Consumption
from parley._node.bus.consumers.options import (
    ConsumeOptions,
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
from parley._node.bus.store import LazyStore, Store
from parley._node.bus.store_retry import publish_again
from parley._node.data_types import Model, R, data_hint, data_type, handler_hints, plain_value
from parley._node.errors import ConfigError
from parley._node.protocol.config_types import require_number
from parley._node.transport.backend import Backend
from parley._node.transport.callables import require_callable
from parley._node.transport.conditions import is_async

H = TypeVar("H", bound=Handler)

# The time that handlers have to finish when the bus's `async with` block ends, in seconds.
DRAIN_TIMEOUT: Final = 5.0
RETRY_DELAY: Final = 1.0
MAX_RETRY_DELAY: Final = 300.0
# How long a publish with an idempotency key is retried, in seconds.
PUBLISH_TIMEOUT: Final = 30.0
LARGEST_VERSION: Final = 2**31 - 1
PAGE: Final = 100


class Bus:
    """Durable events, stored until they are processed.

    An event has a name of the form `API.EVENT`, such as `shop.order_placed`. All events with one
    name form a stream.

    Create a bus with `Node.bus`, `Peer.bus`, `Link.bus` or, without a node, `open_bus`. It is
    opened at its first use. `loop` returns the event loop that it runs in, and `counters` counts
    the events of this process.

    Pass the names of groups as consumers use them, without the prefix that the store adds if
    `BusConfig.service` is set. On Redis, `API.*` can name the stream of all events of an API.

    Example:

        bus = node.bus("sqlite:///bus.db")
        await bus.publish("shop.order_placed", {"id": 7})
        async with bus.consume("shop.order_placed", group="billing") as events:
            async for event in events:
                print(event.data)  # {'id': 7}
                break  # acknowledges the event
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
        """Whether the bus was closed. A closed bus cannot be reopened."""
        return self._lazy.is_closed

    async def opened(self) -> Store:
        """Return the store, and open it if necessary.

        Raises:
            BusClosedError: the bus is closed.
            BusError: the store cannot be opened.
            ConfigError: a setting is invalid.
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
        """Store an event and return its ID.

        The data is a mapping, a dataclass or another model; nested models are stored as JSON
        objects. When this method returns, the event is on disk if the store can guarantee that
        (docs/bus.md). With `durable` False, the event only survives the end of the process that
        stores it.

        An event whose `idempotency_key` was published under the same name within the window is not
        stored again, and the ID of the first event is returned. With a key, publishing is retried
        for `timeout` seconds while the store is unavailable. After a cancellation, the event may
        have been stored.

        Raises:
            InvalidEventError: the name, data, key or version is invalid.
            SchemaViolationError: the data violates its schema.
            BusUnavailableError: the store did not answer; the event may have been stored.
            BusClosedError: the bus is closed; if it closed during the call, the event may have been
                stored.
            BusError: the event was not stored (BusFullError, BusBusyError and others).
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
        """Store events in this order, all or none; return their IDs.

        Raises the errors of `publish`.
        """
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
        """Set the JSON schema for the events of a name, or of an API (`auth.*`).

        Publishing data that violates the schema raises SchemaViolationError. A received event that
        violates it becomes a dead letter. `validate` limits the check to publishing or consuming.

        Raises:
            ParleyError: the name already has a schema.
            InvalidEventError: the name is invalid.
            ConfigError: the schema is invalid or refers to an external one, or `jsonschema` is not
                installed.
        """
        self.schemas.add(name, schema, validate)

    # Consuming.

    @overload
    def consume(
        self, name: str, group: str, *, returns: None = None, **options: Unpack[ConsumeOptions]
    ) -> Consumption: ...

    @overload
    def consume(
        self, name: str, group: str, *, returns: type[R], **options: Unpack[ConsumeOptions]
    ) -> Consumption[R]: ...

    def consume(
        self, name: str, group: str, *, returns: Any = None, **options: Unpack[ConsumeOptions]
    ) -> Consumption[Any]:
        """Consume the events of a name for a group.

        Use it as `async with bus.consume(...) as events`, then `async for event in events`. The
        next iteration, or leaving the block normally, acknowledges the previous event. After an
        exception, the event is redelivered.

        With `returns`, the data of each event has that type, such as a dataclass. An event whose
        data does not fit becomes a dead letter. The options are:

        - `batch`: how many events are fetched at a time, 1 to 10,000 (default 100);
        - `reclaim_after`: seconds without a heartbeat after which another consumer's events are
            taken over (default 60);
        - `max_attempts`: deliveries until an event becomes a dead letter (default 5; None: no
            limit);
        - `start`: where a new group begins: `first`, `new`, an ID, or a time (default `first`).

        Raises:
            InvalidEventError: the name, group or start is invalid.
            ConfigError: a number is out of range, or `returns` is not a type of data.
        """
        checked = check_options(self.config, name, group, **options)
        if returns is not None:
            checked = replace(checked, returns=data_type(returns))
        return self._consumers.consumption(checked, group)

    def handler(
        self,
        name: str,
        group: str,
        *,
        concurrency: int = 1,
        retry_delay: float = RETRY_DELAY,
        max_retry_delay: float = MAX_RETRY_DELAY,
        **options: Unpack[ConsumeOptions],
    ) -> Callable[[H], H]:
        """Register the async function that handles a group's events.

        Use it as a decorator: `@bus.handler(...)` above `async def handler(event)`. The handler
        runs while the node runs, with up to `concurrency` calls at a time; with 1, events are
        processed in order. With the annotation `event: BusEvent[Order]` the data is an Order, as
        with `returns` of `consume`.

        An event is acknowledged when the handler returns. If it raises, the error is logged and the
        event is retried after about `retry_delay` seconds, a delay that doubles up to
        `max_retry_delay`. After `max_attempts` the event becomes a dead letter. The other options
        are those of `consume`.

        Raises:
            ParleyError: the group already has a handler for these events.
            InvalidEventError: the name, group or start is invalid.
            ConfigError: an option is invalid, or the handler is not a coroutine function.
        """
        checked = check_options(self.config, name, group, **options)
        require_count("concurrency", concurrency)
        retries = Backoff(first=retry_delay, longest=max_retry_delay)

        def register(handler: H) -> H:
            require_callable(handler, f"the handler of {name}", "event")
            if not is_async(handler):
                raise ConfigError(
                    f"cannot register {handler!r} for {name!r}: it isn't a coroutine function"
                )
            what = f"the handler of {name}"
            hint = data_hint(handler_hints(handler, what, BusEvent), BusEvent)
            typed = hint not in (None, Any, dict[str, Any]) and not isinstance(hint, TypeVar)
            held = replace(checked, returns=data_type(hint)) if typed else checked
            self._consumers.add(HandlerSpec(handler, held, group, concurrency, retries))
            return handler

        return register

    # Inspection.

    async def streams(self) -> list[StreamInfo]:
        """Return all streams, by name."""
        return await (await self._lazy.opened()).streams()

    async def groups(self, name: str | None = None) -> list[GroupInfo]:
        """Return the groups of a stream, or of all streams.

        Their names include the prefix of `BusConfig.service`, as in the store.
        """
        store = await self._lazy.opened()
        if name is not None:
            api_of(name)
            return await store.groups(name)
        found = [await store.groups(stream.name) for stream in await store.streams()]
        return [group for groups in found for group in groups]

    async def lag(self, name: str, group: str) -> int | None:
        """Return the number of events that the group has not received yet; None if unknown.

        Raises:
            BusError: the group does not exist.
        """
        whole = self._group(name, group)
        for found in await self.groups(name):
            if found.name == whole:
                return found.lag
        raise BusError(f"cannot read the lag of group {whole!r}: {name} has no such group")

    async def consumers(self, name: str, group: str) -> list[ConsumerInfo]:
        """Return the consumers of a group, by name."""
        return await (await self._lazy.opened()).consumers(name, self._group(name, group))

    async def pending(
        self, name: str, group: str, *, count: int = PAGE, after: str = BEFORE_ALL
    ) -> list[PendingInfo]:
        """Return up to `count` unacknowledged events that follow the ID `after`."""
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
        """Iterate over the stored events of a stream: `async for event in bus.history(...)`.

        The iteration runs from `start` (inclusive) to `end`: an ID (inclusive) or a time
        (exclusive). It is independent of groups. With `follow`, it continues with new events and
        waits while the store is unavailable.

        With `returns`, the data of each event has that type; `event.data` raises MalformedDataError
        if it does not fit.

        Raises:
            InvalidEventError: the name or a position is invalid.
            ConfigError: `returns` is not a type of data.
        """
        api_of(name)
        until = None if end is None else last_before(end)
        held = None if returns is None else data_type(returns)
        return History(self._lazy, name, after(start), until, follow=follow, returns=held)

    # Maintenance.

    async def replay(self, name: str, group: str, start: Position) -> None:
        """Move the position of a group to `start`, backward or forward. Creates a missing group.

        Pending events stay pending.

        Raises:
            InvalidEventError: the name or a position is invalid.
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
        """Delete the oldest events, whether read or not, and return how many were deleted.

        At most `max_length` events and `max_bytes` bytes remain, none older than `max_age` seconds
        and none before `before`, an ID or a time.

        Raises:
            InvalidEventError: the name or a position is invalid.
            ConfigError: a number is out of range.
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
        """Remove a group and its pending events; return whether it existed."""
        return await (await self._lazy.opened()).remove_group(name, self._group(name, group))

    # Dead letters.

    async def dead_letters(
        self, name: str, *, count: int = PAGE, after: str = BEFORE_ALL
    ) -> list[DeadLetter]:
        """Return the first `count` dead letters of a stream that follow the ID `after`."""
        return await DeadLetters(self._lazy, name).page(count, after)

    async def replay_dead(
        self, name: str, ids: Sequence[str] | None = None, *, group: str | None = None
    ) -> list[str]:
        """Process dead letters again: all, those with these IDs, or those of a group.

        Each event returns to the group in which it failed, with its attempts reset. If the stream
        no longer has the event, it is published again for all groups. Removes the replayed letters
        and returns their IDs.
        """
        whole = None if group is None else self._group(name, group)
        return await DeadLetters(self._lazy, name).replay(ids, whole)

    async def drop_dead(self, name: str, ids: Sequence[str] | None = None) -> int:
        """Delete all dead letters, or those with these IDs; return how many were deleted."""
        return await DeadLetters(self._lazy, name).drop(ids)

    # Lifecycle.

    async def __aenter__(self) -> Self:
        """Open the store and start the handlers.

        Raises:
            BusError: the store cannot be opened.
            ConfigError: a setting is invalid.
        """
        await self._lazy.opened()
        self.begin()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: object, exc_tb: object
    ) -> None:
        await self.aclose(DRAIN_TIMEOUT if exc_type is None else 0.0)

    def begin(self) -> None:
        """Start the handlers when the loop runs.

        Called by the owner of the bus. Can be called again.
        """
        if not self.is_closed:
            self._consumers.begin()

    async def drain(self, timeout: float) -> None:
        """Stop the handlers. Running ones have `timeout` seconds; unstarted events are released."""
        await self._consumers.drain(timeout)

    async def aclose(self, timeout: float = 0.0, *, because: str = "") -> None:
        """Drain, record acknowledgements, release unstarted events, and close the store.

        Waiting consumers raise BusClosedError with the text `because`. Can be called again.
        """
        if because and not self.is_closed:
            self._lazy.closed_because = because
            self._consumers.warn(because)
        # Record acknowledgements even when cancelled.
        with anyio.CancelScope(shield=True):
            await self._consumers.drain(timeout)
            await self._consumers.close_loops(self._lazy.closed_error())
            await self._lazy.aclose()

    # Internal.

    def _new_event(self, name: str, given: Data | Model, key: str | None, version: int) -> NewEvent:
        split_name(name)
        if key is not None:
            check_key(key)
        if type(version) is not int or not 1 <= version <= LARGEST_VERSION:
            raise InvalidEventError(f"invalid version {version!r}: use 1 to {LARGEST_VERSION:,}")
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
