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
    """The subscription of a peer or guest (`peer`), as its publisher sees it."""

    __slots__ = ("_feed", "peer")

    def __init__(self, peer: Remote, feed: Feed) -> None:
        self.peer = peer
        self._feed = feed

    @property
    def dropped(self) -> int:
        """How many notes it lost because it did not keep up."""
        return self._feed.dropped

    @property
    def waiting_bytes(self) -> int:
        """What waits for it: each note's encoding and 64 bytes."""
        return self._feed.cost

    @property
    def behind(self) -> int:
        """How many notes it is yet to read out of what the topic remembers."""
        return self._feed.behind

    def __repr__(self) -> str:
        return f"<Subscriber {self.peer} of {self._feed.topic!r}>"


# The name of the note's field that holds its key, or a function that returns the key.
KeepLastBy = str | Callable[[Any], Encodable]


class NoteKey:
    """The option `keep_last_by` of the topic `name`."""

    def __init__(self, name: str, given: KeepLastBy) -> None:
        if not isinstance(given, str):
            require_callable(given, f"keep_last_by= of topic {name!r}", "note", plain=True)
        self._name = name
        self._given = given

    def read(self, data: object, plain: Any) -> bytes:
        """Return the encoded key of the note `data`, which is `plain` as an LBM value.

        Raises:
            MalformedDataError: it has no key, or the key has no encoding.
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

# Why a node is refused what it has itself.
FORWARD_LOOP: Final = "its own notes of this topic would go round for ever"
# Bytes of cost that may wait for one subscriber: a note's encoding and 64 bytes.
BUFFER = 1 << 20
LEAST_BUFFER = 1 << 10
# Seconds that publish waits at most for subscribers at the high-water mark.
PATIENCE = 1.0
# Seconds without any progress that `finish` waits for subscribers.
FINISH_TIMEOUT = 30.0
# What a payload has besides one note.
_OVERHEAD = 16


class SubscribeRequest(Request):
    """A peer (`peer`) wants to subscribe. The handler returns the data that the peer gets with
    its acceptance, or raises `SubscribeRefused(data)`."""

    __slots__ = ()


# Makes a feed of a fanout; the second argument is to be told when it is closed.
MakeFeed = Callable[[Fanout, Callable[[Feed], None]], F]
# Is told the data and headers of each note, while it is published; it must not wait.
Tap = Callable[[Encodable, Mapping[str, Encodable] | None], None]
# What a topic's notes are changes of, as it is now: data that LBM has an encoding for.
StateFunction = Callable[[], Encodable]
SubscribeHandler = Callable[[SubscribeRequest], Any | Awaitable[Any]]


class TopicOptions(TypedDict, total=False):
    """Options of a topic. A note's cost is its encoding and 64 bytes.

    Attributes:
        allow: the peers that may subscribe, as for handlers; by default all.
        writers: the peers that may publish its notes (`Peer.publish`), as `allow`; by default none.
            Data that is not of the topic's type is answered with code 23. Publishing works like a
            handler with `once`.
        supercategories: the pairs of roles between which it may be used (section 2); by default
            all.
        slow: what a subscriber loses when more than `buffer` bytes wait for it: its subscription
            ("unsubscribe", the default) or its oldest notes ("drop-oldest").
        buffer: bytes of cost, at least 1,024, default 1 MiB. At half of it `publish` waits for the
            subscriber.
        patience: seconds that `publish` waits at most; default 1.
        keep: notes that the topic remembers. A subscriber gets these first, or those `after` its
            position. One that is too slow continues with what is remembered; the rest is counted
            (`Subscription.gaps`). `slow` then applies to guests alone.
        keep_bytes: bytes of cost that it remembers, at least 1,024; with `keep`, default 16 MiB.
        keep_last_by: a field's name, or a function that returns the key of a note. The topic
            remembers the newest note of each key, and `keep` counts keys. Replaced notes don't
            count as gaps. Beyond `keep` or `keep_bytes` the key with the oldest note is dropped.
            Each note also costs its key and 192 bytes.
        state: a plain function that returns the state which notes change. A subscriber gets it with
            its acceptance (`Subscription.data`), in place of the result of `on_subscribe` and of
            remembered notes, and then each later note. One that continues `after` a position gets
            None, and the notes that it missed, if all of them are remembered.
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
    """A topic that this node publishes, by its `name`. Made by `Node.topic`. With `note_type` its
    notes are of that type.

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
            raise ConfigError(f"slow is {slow!r}; it must be unsubscribe or drop-oldest")
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
        self._feeds: set[Feed] = set()  # also those that are finishing
        self._taps: dict[Tap, None] = {}
        self._sources: list[NodeId | None] = []

    def __repr__(self) -> str:
        return f"<Topic {self.name!r}, {len(self._fanout.feeds)} subscribers>"

    @property
    def kept(self) -> int:
        """How many notes it remembers now, at most `keep`; with `keep_last_by`, how many keys."""
        return 0 if self._kept is None else len(self._kept)

    @property
    def kept_bytes(self) -> int:
        """What these notes count, at most `keep_bytes`: each its encoding and 64 bytes; with
        `keep_last_by`, also its key's encoding and 192 bytes."""
        return 0 if self._kept is None else self._kept.cost

    @property
    def position(self) -> TopicPosition | None:
        """That of the last note that was published; None if it does not remember."""
        return None if self._kept is None else TopicPosition(self._kept.epoch, self._kept.last)

    # Publishing.

    async def publish(
        self,
        data: N,
        headers: Mapping[str, Encodable] | None = None,
        *,
        source: Tap | None = None,
    ) -> int | None:
        """Send a note to all subscribers, in the order of publishing; and to all taps, but
        for `source`, from which it comes. Returns its number, if the topic remembers.

        Returns at once, unless much was published in this turn of the loop or a
        subscriber is at its high-water mark (half of `buffer`): then others run first,
        for at most `patience` seconds. Cancelled meanwhile, it has been published.

        Raises:
            LbmEncodeError: `data` or `headers` have no encoding.
            TypeError: `data` is not of the topic's type.
            MalformedDataError: `keep_last_by` finds no key in `data`.
            PayloadTooLargeError: it is longer than this node's payloads may be.
            ParleyError: the node is not running.
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
        """Hand on what was published now, not with the loop's next turn."""
        self._fanout.flush()

    # Subscribers.

    def on_subscribe(self, handler: SubscribeHandler) -> SubscribeHandler:
        """Register what decides on each subscription: a decorator.

        It returns the data for the subscriber, or raises `SubscribeRefused(data)`.

        Raises:
            ParleyError: there is one already.
        """
        require_callable(handler, f"the handler of subscriptions to {self.name!r}", "request")
        self._handlers.subscribes.add(self.name, handler)
        return handler

    @property
    def subscribers(self) -> list[Subscriber]:
        """The subscriptions that there are now."""
        return [Subscriber(cast(Remote, feed.owner), feed) for feed in self._fanout.feeds]

    @property
    def dropped(self) -> int:
        """How many notes subscribers lost because they did not keep up, in all."""
        return self._fanout.dropped

    @property
    def counts(self) -> tuple[int, int, int, int, int]:
        """Subscribers, notes published, delivered (once for each subscriber) and lost, and what
        waits for all subscribers, in bytes of cost."""
        fanout = self._fanout
        waiting = sum(feed.cost for feed in fanout.feeds)
        return len(fanout.feeds), fanout.published, fanout.delivered, fanout.dropped, waiting

    def close(self) -> None:
        """End all subscriptions: each gets what waits for it, then the end."""
        self._fanout.flush()
        for feed in list(self._fanout.feeds):
            feed.finish()

    async def finish(self, timeout: float = FINISH_TIMEOUT) -> None:
        """Close, and wait until each subscriber has all of its notes, or is gone.

        Those of which none takes anything for `timeout` seconds lose their subscription.
        """
        self.close()
        feeds = set(self._feeds)  # whoever subscribes from now on is not waited for
        while left := feeds & self._feeds:
            before = {feed: feed.left for feed in left}
            await self._within(timeout, lambda: feeds.isdisjoint(self._feeds))
            left = feeds & self._feeds
            if all(before[feed] == feed.left for feed in left):
                for feed in left:
                    feed.drop_slow_subscriber()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition on the subscribers; it is looked at whenever one came or went."""
        await self._changes.until(condition)

    def tap(self, tap: Tap) -> Callable[[], None]:
        """Have `tap` told each note as it is published here, such as a bridge is; what is
        returned ends that. It must neither wait nor raise, nor keep what it is given."""
        require_callable(tap, f"a tap of topic {self.name!r}", "data", "headers", plain=True)
        self._taps[tap] = None

        def untap() -> None:
            self._taps.pop(tap, None)

        return untap

    # For those that take subscriptions, in each dialect.

    def takes(self, supercategory: Supercategory | None) -> bool:
        """Whether peers of these roles may subscribe; None: unknown roles."""
        return self._supercategories is None or supercategory in self._supercategories

    @property
    def note_type(self) -> DataType[N] | None:
        """What its notes are; None if nothing was said of that."""
        return self._note_type

    @property
    def rules(self) -> tuple[Rule, ...]:
        """All that hold for its subscribers."""
        entry = self._handlers.subscribes.find(self.name)
        rules = () if entry is None else entry.rules
        return rules if self._own_rule is None else (self._own_rule, *rules)

    async def open(self, request: SubscribeRequest, after: TopicPosition | None) -> "Topic[N]":
        """Whatever has to be done before a subscriber that was accepted, and has the notes up to
        `after`, can join; returns the topic to be joined, at once.

        Raises:
            CallRefused: it cannot join.
        """
        return self

    def begin(
        self, data: Encodable, after: TopicPosition | None
    ) -> tuple[Encodable, TopicPosition | None]:
        """With what a subscriber that has the notes up to `after`, and was accepted with `data`,
        begins if it joins in this step: what it is told, and after which note it goes on. A topic
        with a state tells that; nothing, if all notes that are missing follow.

        Raises:
            CallRefused: the state's function failed.
        """
        if self._state is None:
            return data, after
        if after is not None and self._kept is not None and self._kept.begin(after).recovered:
            return None, after
        try:
            return self._state(), self.position
        except APPLICATION_ERRORS as error:
            now, text = self._scope.backend.now(), "the state of topic %r cannot be told"
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
        """A subscriber more: `make` makes its feed of the fanout and of what is to be called
        when the feed is closed, which is `on_closed` and more."""

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

    # For a program that forwards another node's topic here.

    def comes_from(self, node_id: NodeId | None) -> bool:
        """Whether notes of that node are forwarded here: it must not have them back."""
        return node_id is not None and node_id in self._sources

    def add_source(self, node_id: NodeId | None) -> Callable[[], None]:
        """Notes of that node are forwarded here, until what is returned is called. None,
        of a connection in the clear, is not told apart.

        Raises:
            ParleyError: that node is subscribed here.
        """
        here = (subscriber.peer.node_id for subscriber in self.subscribers)
        if node_id is not None and node_id in here:
            raise ParleyError(f"that node is subscribed here: {FORWARD_LOOP}")
        self._sources.append(node_id)
        return lambda: self._sources.remove(node_id)

    # Inside.

    async def _intercepted(
        self, data: N, headers: Mapping[str, Encodable] | None, source: Tap | None
    ) -> int | None:
        """Publish a note through the interceptors."""

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
        """Let the loop turn; then wait while subscribers are at their mark."""
        fanout = self._fanout
        fanout.flush()
        await yield_to_loop(self._scope.backend)
        if not fanout.crowded or not self._patience:
            fanout.skip_crowded()
            return
        await self._within(self._patience, lambda: not fanout.crowded)
        fanout.skip_crowded()

    async def _within(self, seconds: float, condition: Callable[[], bool]) -> None:
        """Wait for a condition, for so long at most."""
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
    """Publish what those send whom `writers` permits; data that is not of `kind` is refused.

    One note is published at a time and writers take turns, so that each waits for slow subscribers
    as a program does which awaits `publish`.

    Raises:
        ConfigError: `writers` holds something other than node ids and roles.
    """

    async def write(call: Call[Any]) -> int | None:
        if DROPPED_HEADER in call.headers:
            # It would tell subscribers of losses that there were not.
            raise CallRefused(ResultCode.MALFORMED, f"{DROPPED_HEADER} is the publisher's header")
        try:
            note = call.data if kind is None else kind.read(call.data)
            return await topic.publish(note, call.headers or None)
        except (MalformedDataError, LbmEncodeError) as error:
            raise CallRefused(ResultCode.MALFORMED, str(error)) from error
        except PayloadTooLargeError as error:
            raise CallRefused(ResultCode.PAYLOAD_TOO_LARGE, str(error)) from error

    handlers.calls.add(PUBLISH + topic.name, write, allow=writers, concurrency=1, once=True)
