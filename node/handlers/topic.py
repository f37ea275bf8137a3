"""Topics that a node publishes."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final, Generic, TypedDict, TypeVar, Unpack, cast

from parley._crypto.identity import NodeId
from parley._crypto.randomness import random_bytes
from parley._lbm.codec import Encodable, encode_value
from parley._lbm.errors import LbmEncodeError
from parley._node.data_types import DataType, N
from parley._node.errors import (
    APPLICATION_ERRORS,
    CallRefused,
    ConfigError,
    MalformedDataError,
    ParleyError,
)
from parley._node.handlers.interceptors import Intercepted, PassedHeaders
from parley._node.handlers.permissions import Allow, Rule
from parley._node.handlers.registry import Handlers, parse_supercategories
from parley._node.logs import RateLimitedLogger
from parley._node.messaging.fanout import Fanout, Feed, Slow
from parley._node.messaging.notes import DROPPED_HEADER, encode_note, read_headers
from parley._node.messaging.topic_history import CompactedHistory, TopicPosition, create_history
from parley._node.messaging.topics import PUBLISH
from parley._node.protocol.codes import ResultCode, Supercategory
from parley._node.protocol.config_types import require_number
from parley._node.protocol.errors import PayloadTooLargeError
from parley._node.protocol.event_types import EPOCH_SIZE
from parley._node.remote.remote import Remote
from parley._node.remote.requests import Call, Request
from parley._node.transport.callables import require_callable
from parley._node.transport.conditions import Condition, yield_to_loop
from parley._node.transport.task_scope import TaskScope


class Subscriber:
    """One subscription to a topic of this node; `peer` is the subscribing peer or guest.

    Example:

        topic = node.topic("prices")
        for subscriber in topic.subscribers:
            print(subscriber.peer, subscriber.waiting_bytes)
    """

    __slots__ = ("_feed", "peer")

    def __init__(self, peer: Remote, feed: Feed) -> None:
        self.peer = peer
        self._feed = feed

    @property
    def dropped(self) -> int:
        """How many notes it lost because it was too slow."""
        return self._feed.dropped

    @property
    def waiting_bytes(self) -> int:
        """Bytes queued for it: for each note its encoded size plus 64."""
        return self._feed.cost

    @property
    def behind(self) -> int:
        """How many notes of the topic's history it still has to read."""
        return self._feed.behind

    def __repr__(self) -> str:
        return f"<Subscriber {self.peer} of {self._feed.topic!r}>"


# The name of a field of the note, or a function that returns the note's key.
KeepLastBy = str | Callable[[Any], Encodable]


class NoteKey:
    """The option `keep_last_by` of the topic `name`."""

    def __init__(self, name: str, given: KeepLastBy) -> None:
        if not isinstance(given, str):
            require_callable(given, f"keep_last_by= of topic {name!r}", "note", plain=True)
        self._name = name
        self._given = given

    def read(self, data: object, plain: Any) -> bytes:
        """Return the encoded key of the note `data`; `plain` is the note as an LBM value.

        Raises:
            MalformedDataError: it has no key, or the key cannot be encoded.
        """
        given = self._given
        if isinstance(given, str):
            if not isinstance(plain, Mapping) or given not in plain:
                raise MalformedDataError(
                    "$", f"no field {given!r}, which keep_last_by= of topic {self._name!r} names"
                )
            return encode_value(plain[given])
        try:
            return encode_value(given(data))
        except APPLICATION_ERRORS as error:
            raise MalformedDataError(
                "$", f"keep_last_by= of topic {self._name!r} failed: {error!r}"
            ) from error


logger = logging.getLogger("parley.peer")

F = TypeVar("F", bound=Feed)

# Sent to a node that subscribes to notes which it publishes itself.
FORWARD_LOOP: Final = "its own notes of this topic would go round for ever"
# The default limit of a subscriber's queue, in bytes of cost (a note's encoded size plus 64).
BUFFER = 1 << 20
LEAST_BUFFER = 1 << 10
# How many seconds `publish` waits at most for crowded subscribers.
PATIENCE = 1.0
# How many seconds `finish` waits for subscribers that make no progress.
FINISH_TIMEOUT = 30.0
# The size of a payload without its note.
_OVERHEAD = 16


class SubscribeRequest(Request):
    """A request to subscribe to a topic, passed to the handler of `Topic.on_subscribe`.

    The handler returns data for the subscriber, or raises `SubscribeRefused(data)`.

    Example:

        from parley import SubscribeRefused

        prices = node.topic("prices")

        @prices.on_subscribe
        async def decide(request):
            if request.data != "member":
                raise SubscribeRefused("members only")
            return {"currency": "EUR"}
    """

    __slots__ = ()


# Makes a feed of a fanout; its second argument is called when the feed is closed.
MakeFeed = Callable[[Fanout, Callable[[Feed], None]], F]
# Called with the data and headers of each note when it is published; must not block.
Tap = Callable[[Encodable, Mapping[str, Encodable] | None], None]
# Returns the current state that the topic's notes change; LBM must be able to encode it.
StateFunction = Callable[[], Encodable]
SubscribeHandler = Callable[[SubscribeRequest], Any | Awaitable[Any]]


class TopicOptions(TypedDict, total=False):
    """Options of a topic. A note's cost is its encoded size plus 64 bytes.

    Attributes: allow: the peers that may subscribe, as for handlers; by default all. writers: the
    peers that may publish notes (`Peer.publish`), as for `allow`; by default none. Data that does
    not match the topic's type is refused with code 23. Publishing supports `once`. supercategories:
    the pairs of roles between which it may be used (section 2); by default all. slow: what a
    subscriber loses when more than `buffer` bytes are queued for it: its subscription
    ("unsubscribe", the default) or its oldest notes ("drop-oldest"). buffer: bytes of cost, at
    least 1,024, default 1 MiB. Above half of it, `publish` waits for the subscriber. patience: how
    many seconds `publish` waits at most; default 1. keep: how many notes the topic keeps in its
    history. A new subscriber receives these first, or those `after` its position. A subscriber that
    is too slow continues with the history and counts the other notes as missing
    (`Subscription.gaps`). `slow` then applies only to guests. keep_bytes: bytes of cost in the
    history, at least 1,024; with `keep`, default 16 MiB. keep_last_by: the name of a field, or a
    function that returns the key of a note. The topic keeps the newest note of each key, and `keep`
    counts keys. Replaced notes don't count as gaps. Beyond `keep` or `keep_bytes`, the key with the
    oldest note is dropped. The cost of each note includes its key and 192 bytes. state: a plain
    function that returns the current state, which the notes change. A subscriber receives it with
    its acceptance (`Subscription.data`), instead of the result of `on_subscribe` and of the
    history, followed by each later note. If it continues `after` a position and the history is
    complete, it receives None and the notes that it missed.
    """

    allow: Allow | None
    writers: Allow | None
    supercategories: Collection[Supercategory] | None
    slow: Slow
    buffer: int
    patience: float
    keep: int | None
    keep_bytes: int | None
    keep_last_by: KeepLastBy | None
    state: StateFunction | None


class Topic(Generic[N]):
    """A topic that this node publishes. Made by `Node.topic`; with `note_type`, notes have that
    type.

    Example:

        prices = node.topic("prices", keep=100)
        await prices.publish({"ACME": 42})
        assert prices.kept == 1

    Raises:
        ConfigError: an option is out of its range.
    """

    def __init__(
        self,
        name: str,
        handlers: Handlers,
        scope: TaskScope,
        max_payload: int,
        note_type: DataType[N] | None = None,
        **options: Unpack[TopicOptions],
    ) -> None:
        for option in options.keys() - TopicOptions.__annotations__.keys():
            raise TypeError(f"topic {name!r} got an unexpected option {option!r}")
        allow, keep_last_by = options.get("allow"), options.get("keep_last_by")
        slow, buffer = options.get("slow", "unsubscribe"), options.get("buffer", BUFFER)
        patience = options.get("patience", PATIENCE)
        if slow not in ("unsubscribe", "drop-oldest"):
            raise ConfigError(f"invalid slow {slow!r}: expected 'unsubscribe' or 'drop-oldest'")
        require_number("buffer", buffer, LEAST_BUFFER, whole=True, error=ConfigError)
        require_number("patience", patience, error=ConfigError)
        self.name = name
        self._handlers = handlers
        self._chain = handlers.interceptors.note_out
        self._scope = scope
        self._largest = max_payload - _OVERHEAD
        self._own_rule = None if allow is None else Rule(allow)
        self._supercategories = parse_supercategories(options.get("supercategories"))
        self._patience = patience
        self._key = None if keep_last_by is None else NoteKey(name, keep_last_by)
        kind = CompactedHistory if self._key else None
        keep, keep_bytes = options.get("keep"), options.get("keep_bytes")
        self._kept = create_history(random_bytes(EPOCH_SIZE), keep, keep_bytes, kind)
        self._changes = Condition(lambda: scope.backend.waiter())
        self._fanout = Fanout(name, buffer, slow, self._kept, self._changes.notify)
        self._note_type = note_type
        self._state = options.get("state")
        self._state_failures = RateLimitedLogger()
        self._flush_due = False
        self._feeds: set[Feed] = set()  # Including the feeds that are finishing.
        self._taps: dict[Tap, None] = {}
        self._sources: list[NodeId | None] = []

    def __repr__(self) -> str:
        return f"<Topic {self.name!r}, {len(self._fanout.feeds)} subscribers>"

    @property
    def kept(self) -> int:
        """How many notes are in the history, at most `keep`; with `keep_last_by`, how many keys."""
        return 0 if self._kept is None else len(self._kept)

    @property
    def kept_bytes(self) -> int:
        """The cost of the history, at most `keep_bytes`: for each note its encoded size plus 64
        bytes.

        With `keep_last_by`, each note also costs its key's encoded size and 192 bytes.
        """
        return 0 if self._kept is None else self._kept.cost

    @property
    def position(self) -> TopicPosition | None:
        """The position of the last published note; None if the topic keeps no history."""
        return None if self._kept is None else TopicPosition(self._kept.epoch, self._kept.last)

    # Publishing.

    async def publish(
        self,
        data: N,
        headers: Mapping[str, Encodable] | None = None,
        *,
        source: Tap | None = None,
    ) -> int | None:
        """Send a note to all subscribers and return its number, or None without a history.

        Notes are delivered in the order of publishing. They also go to all taps except `source`.

        Usually returns immediately. If many notes were published in this iteration of the event
        loop, or a subscriber's queue is more than half full, it lets other tasks run first, for at
        most `patience` seconds. If it is cancelled meanwhile, the note has still been published.

        Example:

            prices = node.topic("prices")
            await prices.publish({"ACME": 42})

        Raises:
            LbmEncodeError: `data` or `headers` cannot be encoded.
            TypeError: `data` does not match the topic's type.
            MalformedDataError: `keep_last_by` finds no key in `data`.
            PayloadTooLargeError: the note is longer than this node's limit for payloads.
            ParleyError: the node isn't running.
        """
        if self._chain and type(headers) is not PassedHeaders:
            return await self._intercepted(data, headers, source)
        plain: Any = data if self._note_type is None else self._note_type.write(data)
        note = encode_note(plain)
        fixed = read_headers(headers) if headers else None
        size = len(note) + (fixed.size if fixed else 0)
        if size > self._largest:
            raise PayloadTooLargeError(f"a note of {size} bytes; at most {self._largest}")
        key = b"" if self._key is None else self._key.read(data, plain)
        if not self._flush_due:
            self._scope.backend.call_soon(self._flush_turn)
            self._flush_due = True
        fanout = self._fanout
        fanout.add(note, fixed, key=key)
        number = None if self._kept is None else self._kept.last
        if self._taps:
            self._tell_taps(plain, headers, source)
        if fanout.turn_size > fanout.turn_limit or fanout.crowded:
            await self._room()
        return number

    def flush(self) -> None:
        """Send pending notes now instead of in the next iteration of the event loop."""
        self._fanout.flush()

    # Subscriptions.

    def on_subscribe(self, handler: SubscribeHandler) -> SubscribeHandler:
        """Register the handler that accepts or refuses subscriptions; a decorator.

        It returns data for the subscriber, or raises `SubscribeRefused(data)`.

        Raises:
            ParleyError: there is a handler already.
        """
        require_callable(handler, f"the handler of subscriptions to {self.name!r}", "request")
        self._handlers.subscribes.add(self.name, handler)
        return handler

    @property
    def subscribers(self) -> list[Subscriber]:
        """The current subscriptions."""
        return [Subscriber(cast(Remote, feed.owner), feed) for feed in self._fanout.feeds]

    @property
    def dropped(self) -> int:
        """Total number of notes dropped because subscribers were too slow."""
        return self._fanout.dropped

    @property
    def counts(self) -> tuple[int, int, int, int, int]:
        """Counts: subscribers; notes published, delivered and lost; bytes of cost queued.

        Delivered notes are counted for each subscriber.
        """
        fanout = self._fanout
        waiting = sum(feed.cost for feed in fanout.feeds)
        return len(fanout.feeds), fanout.published, fanout.delivered, fanout.dropped, waiting

    def close(self) -> None:
        """End all subscriptions after their queued notes were sent."""
        self._fanout.flush()
        for feed in list(self._fanout.feeds):
            feed.finish()

    async def finish(self, timeout: float = FINISH_TIMEOUT) -> None:
        """Close the topic and wait until each subscriber has received all of its notes, or has
        left.

        If no subscriber makes progress for `timeout` seconds, the remaining subscriptions are
        dropped.
        """
        self.close()
        feeds = set(self._feeds)  # Later subscribers are not waited for.
        while left := feeds & self._feeds:
            before = {feed: feed.left for feed in left}
            await self._within(timeout, lambda: feeds.isdisjoint(self._feeds))
            left = feeds & self._feeds
            if all(before[feed] == feed.left for feed in left):
                for feed in left:
                    feed.drop_slow_subscriber()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition, which is checked whenever a subscriber joins or leaves."""
        await self._changes.until(condition)

    def tap(self, tap: Tap) -> Callable[[], None]:
        """Call `tap` with the data and headers of each note published here; return a function to
        stop.

        Use it for bridges to other systems. The tap must not block, raise exceptions, or keep its
        arguments.
        """
        require_callable(tap, f"a tap of topic {self.name!r}", "data", "headers", plain=True)
        self._taps[tap] = None

        def untap() -> None:
            self._taps.pop(tap, None)

        return untap

    # Used to accept subscriptions, in each dialect.

    def takes(self, supercategory: Supercategory | None) -> bool:
        """Whether peers of these roles may subscribe; None means unknown roles."""
        return self._supercategories is None or supercategory in self._supercategories

    @property
    def note_type(self) -> DataType[N] | None:
        """The type of its notes; None if unspecified."""
        return self._note_type

    @property
    def rules(self) -> tuple[Rule, ...]:
        """All rules that apply to its subscribers."""
        entry = self._handlers.subscribes.find(self.name)
        rules = () if entry is None else entry.rules
        return rules if self._own_rule is None else (self._own_rule, *rules)

    async def open(self, request: SubscribeRequest, after: TopicPosition | None) -> "Topic[N]":
        """Prepare the topic for an accepted subscriber that has the notes up to `after`.

        Returns the topic to join immediately. The base class needs no preparation.

        Raises:
            CallRefused: the subscriber cannot join.
        """
        return self

    def begin(
        self, data: Encodable, after: TopicPosition | None
    ) -> tuple[Encodable, TopicPosition | None]:
        """Return the data and the position with which an accepted subscriber begins.

        `data` and `after` are those of its acceptance and request. They are replaced by the state
        and its position if the topic has a state, unless the history has all notes after `after`.

        Raises:
            CallRefused: the state function failed.
        """
        if self._state is None:
            return data, after
        if after is not None and self._kept is not None and self._kept.begin(after).recovered:
            return None, after
        try:
            return self._state(), self.position
        except APPLICATION_ERRORS as error:
            now, text = self._scope.backend.now(), "the state function of topic %r failed"
            self._state_failures.log(
                logger,
                logging.ERROR,
                now,
                text,
                self.name,
                exc_info=True,
                extra={"event": "topic.state-failed", "topic": self.name},
            )
            raise CallRefused(ResultCode.HANDLER_FAILED) from error

    def join(self, make: MakeFeed[F], on_closed: Callable[[F], None]) -> F:
        """Add a subscriber; `make` makes its feed from the fanout and a function to call when it
        closes.

        `on_closed` is called when the feed is closed.
        """

        def closed(_: Feed) -> None:
            on_closed(feed)
            self._changes.notify()

        def over() -> None:
            self._feeds.discard(feed)
            self._changes.notify()

        feed = make(self._fanout, closed)
        feed.on_over = over
        self._feeds.add(feed)
        self._fanout.join(feed)
        self._changes.notify()
        return feed

    def names(self, node_id: NodeId) -> bool:
        """Return whether its rule contains a node ID."""
        return self._own_rule is not None and self._own_rule.names(node_id)

    # Used to forward another node's topic.

    def comes_from(self, node_id: NodeId | None) -> bool:
        """Whether notes of that node are forwarded here, so that it must not receive them back."""
        return node_id is not None and node_id in self._sources

    def add_source(self, node_id: NodeId | None) -> Callable[[], None]:
        """Record that notes of that node are forwarded here; return a function to undo it.

        None stands for a node on an unencrypted connection, which cannot be distinguished.

        Raises:
            ParleyError: that node is subscribed to this topic.
        """
        here = (subscriber.peer.node_id for subscriber in self.subscribers)
        if node_id is not None and node_id in here:
            raise ParleyError(f"that node is subscribed here: {FORWARD_LOOP}")
        self._sources.append(node_id)
        return lambda: self._sources.remove(node_id)

    async def _intercepted(
        self, data: N, headers: Mapping[str, Encodable] | None, source: Tap | None
    ) -> int | None:
        async def proceed(one: Intercepted) -> int | None:
            return await self.publish(one.data, PassedHeaders(one.headers), source=source)

        one = Intercepted(self._chain, None, self.name, data, headers)
        number: int | None = await self._chain.run(one, proceed)
        return number

    def _tell_taps(
        self, data: Encodable, headers: Mapping[str, Encodable] | None, source: Tap | None
    ) -> None:
        for tap in list(self._taps):
            if tap is source:
                continue
            try:
                tap(data, headers)
            except APPLICATION_ERRORS:
                logger.exception(
                    "a tap of topic %r failed",
                    self.name,
                    extra={"event": "topic.tap-failed", "topic": self.name},
                )

    def _flush_turn(self) -> None:
        self._flush_due = False
        self._fanout.flush()

    async def _room(self) -> None:
        """Let other tasks run, then wait for crowded subscribers."""
        fanout = self._fanout
        fanout.flush()
        await yield_to_loop(self._scope.backend)
        if not fanout.crowded or not self._patience:
            fanout.skip_crowded()
            return
        await self._within(self._patience, lambda: not fanout.crowded)
        fanout.skip_crowded()

    async def _within(self, seconds: float, condition: Callable[[], bool]) -> None:
        """Wait for a condition, at most so many seconds."""
        loop = self._scope.backend
        deadline = loop.now() + seconds
        timer = loop.call_at(deadline, self._changes.notify)
        try:
            await self._changes.until(lambda: condition() or loop.now() >= deadline)
        finally:
            timer.cancel()


def add_writers(
    topic: Topic[Any], kind: DataType[Any] | None, writers: Allow, handlers: Handlers
) -> None:
    """Register the call with which the peers in `writers` publish notes; data of another type is
    refused.

    One note is published at a time and writers take turns, so each waits for slow subscribers as
    `publish` does.

    Raises:
        ConfigError: `writers` contains something other than node IDs and roles.
    """

    async def write(call: Call[Any]) -> int | None:
        if DROPPED_HEADER in call.headers:
            # Subscribers would count losses that did not occur.
            raise CallRefused(ResultCode.MALFORMED, f"{DROPPED_HEADER} is the publisher's header")
        try:
            note = call.data if kind is None else kind.read(call.data)
            return await topic.publish(note, call.headers or None)
        except (MalformedDataError, LbmEncodeError) as error:
            raise CallRefused(ResultCode.MALFORMED, str(error)) from error
        except PayloadTooLargeError as too_large:
            raise CallRefused(ResultCode.PAYLOAD_TOO_LARGE, str(too_large)) from too_large

    handlers.calls.add(PUBLISH + topic.name, write, allow=writers, concurrency=1, once=True)
