"""Introspection: the answer to a call of `parley.topics` (docs/protocol.md section 9).

The answer only lists what the peer may use, according to the `allow=` rules. No handlers run, and
omitted entries are not logged. Answers are rate-limited, because one answer can evaluate every
rule.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from parley._lbm.codec import Value, encode_value
from parley._node.data_types import DataType
from parley._node.errors import CallRefused
from parley._node.handlers.permissions import Rule
from parley._node.handlers.registry import LONGEST_NAME, Entry, Handlers
from parley._node.handlers.signatures import described
from parley._node.handlers.topic import Topic
from parley._node.messaging.topics import PUBLISH
from parley._node.protocol.codes import ResultCode, Supercategory, supercategory
from parley._node.protocol.rate_limit import Rate
from parley._node.remote.remote import Remote
from parley._node.remote.requests import Call

TOPICS_CALL: Final = "parley.topics"
# Limits of one answer: entries, and bytes of their encoding.
MOST_OFFERS: Final = 256
LARGEST_ANSWER: Final = 64 * 1024
# Limits of one entry: characters of its docstring, and of each schema; longer schemas are omitted.
LONGEST_DOC: Final = 2_000
LONGEST_SCHEMA: Final = 8 * 1024
# The rate limits: concurrent answers, and answers per address. They allow the complete list of a
# large node.
AT_ONCE: Final = 4
OF_AN_ADDRESS: Final = Rate(64, 1.0)

Place = tuple[str, str, str]
Told = dict[str, Value]


@dataclass(frozen=True, slots=True)
class Listed:
    """Something registered.

    `place` is its sort key (kind, name, namespace), `takes` and `rules` determine who may use it,
    and `describe` returns its description.
    """

    place: Place
    takes: Callable[[Supercategory | None], bool]
    rules: tuple[Rule, ...]
    describe: Callable[[], Told]


class Introspection:
    """Describes the contents of `handlers` and `topics` to peers.

    `role` is this node's role in handshakes. An answer has at most `LARGEST_ANSWER` bytes, and at
    most half of `max_payload`. Before each answer, `ration` is called with the name of the peer and
    the time; it raises CallRefused if the rate limit is exceeded.
    """

    def __init__(
        self,
        handlers: Handlers,
        topics: Mapping[str, Topic[Any]],
        role: str,
        max_payload: int,
        ration: Callable[[str, float], None],
    ) -> None:
        self._ration = ration
        self._handlers = handlers
        self._topics = topics
        self._role = role
        self._largest = min(max_payload // 2, LARGEST_ANSWER)

    async def answer(self, call: Call) -> Told:
        """What this node offers to you, with its types: calls, events, streams and topics."""
        prefix, after, brief = _parse_request(call.data)
        peer = call.peer
        self._ration(peer.name, peer.backend.now())
        wanted = (
            one
            for one in self._everything()
            if one.place[1].startswith(prefix) and (after is None or one.place > after)
        )
        offers: list[Value] = []
        size = 0
        for offered in sorted(wanted, key=lambda one: one.place):
            if not await self._is_for(offered, peer):
                continue
            place = offered.place
            entry, cost = _entry(place, {} if brief else await self._describe(offered, peer))
            if cost > self._largest:
                entry, cost = _entry(place, {})
            if cost > self._largest:
                continue  # The name alone exceeds the limit.
            if len(offers) == MOST_OFFERS or size + cost > self._largest:
                return {"offers": offers, "more": True}
            offers.append(entry)
            size += cost
        return {"offers": offers, "more": False}

    async def _is_for(self, offered: Listed, peer: Remote) -> bool:
        """Whether a peer may use an entry."""
        name = offered.place[1]
        if not offered.takes(supercategory(peer.role, self._role) if peer.role else None):
            return False
        if peer.path and not self._handlers.exported(name):
            return False
        return await self._permitted(offered.rules, peer, name)

    async def _describe(self, offered: Listed, peer: Remote) -> Told:
        """Return the description of an entry; for a topic also whether the peer may publish."""
        kind, name, _ = offered.place
        told = offered.describe()
        writers = self._handlers.calls.find(PUBLISH + name) if kind == "topic" else None
        if writers is not None and await self._permitted(writers.rules, peer, PUBLISH + name):
            told["writable"] = True
        return told

    async def _permitted(self, rules: Iterable[Rule], peer: Remote, name: str) -> bool:
        for rule in rules:
            if not await rule.permits(peer, name, self._handlers.roles):
                return False
        return True

    def _everything(self) -> Iterator[Listed]:
        handlers = self._handlers
        for entry in handlers.calls.entries():
            if not entry.name.startswith(PUBLISH):
                yield _of_handler("call", entry)
        for namespace, registry in handlers.events.items():
            for entry in registry.entries():
                yield _of_handler("event", entry, namespace)
        for entry in handlers.streams.entries():
            yield _of_handler("stream", entry)
        for topic in self._topics.values():
            yield self._of_topic(topic)

    def _of_topic(self, topic: Topic[Any]) -> Listed:
        decides = self._handlers.subscribes.find(topic.name)

        def takes(pair: Supercategory | None) -> bool:
            return topic.takes(pair) and (decides is None or decides.takes(pair))

        def describe() -> Told:
            function = None if decides is None else described(decides.handler)[0]
            told = _describe_function(function, None, topic.note_type)
            if topic.position is not None:
                told["remembers"] = True
            return told

        return Listed(("topic", topic.name, ""), takes, topic.rules, describe)


def _of_handler(kind: str, entry: Entry[Any], namespace: str = "") -> Listed:
    def describe() -> Told:
        function, takes, gives = described(entry.handler)
        told = _describe_function(function, takes, gives)
        if inspect.isasyncgenfunction(function):
            told["items"] = True
        if entry.once:
            told["once"] = True
        return told

    return Listed((kind, entry.name, namespace), entry.takes, entry.rules, describe)


def _describe_function(
    function: Any, takes: DataType[Any] | None, gives: DataType[Any] | None
) -> Told:
    told: Told = {}
    while isinstance(function, partial):
        function = function.func
    # Since Python 3.13, None has a docstring.
    doc = "" if function is None else inspect.cleandoc(getattr(function, "__doc__", None) or "")
    if doc:
        told["doc"] = doc if len(doc) <= LONGEST_DOC else doc[: LONGEST_DOC - 2] + ".."
    for name, kind in (("takes", takes), ("gives", gives)):
        schema = "" if kind is None else kind.schema()
        if 0 < len(schema) <= LONGEST_SCHEMA:
            told[name] = schema
    return told


def _entry(place: Place, told: Told) -> tuple[Told, int]:
    """Return an entry of an answer and its encoded size."""
    kind, name, namespace = place
    where: Told = {"namespace": namespace} if namespace else {}
    entry: Told = {"kind": kind, "name": name, **where, **told}
    return entry, len(encode_value(entry))


def _parse_request(data: Value) -> tuple[str, Place | None, bool]:
    """Return the prefix, the place after which to continue, and whether only names are
    requested.
    """
    wanted = {} if data is None else data
    if not isinstance(wanted, dict):
        raise CallRefused(
            ResultCode.MALFORMED,
            f"{type(wanted).__name__} is not a map of prefix, after and brief, or null",
        )
    prefix, after, brief = wanted.get("prefix", ""), wanted.get("after"), wanted.get("brief", False)
    if not isinstance(prefix, str) or len(prefix) > LONGEST_NAME or not isinstance(brief, bool):
        raise CallRefused(
            ResultCode.MALFORMED,
            f"prefix is {ascii(prefix)[:40]} and brief {ascii(brief)[:40]}: prefix must be a text "
            f"of at most {LONGEST_NAME} characters, and brief true or false",
        )
    if after is None:
        return prefix, None, brief
    match after:
        case [str(kind), str(name), str(namespace)]:
            return prefix, (kind, name, namespace), brief
    raise CallRefused(
        ResultCode.MALFORMED,
        f"after is {ascii(after)[:80]}; it must be a list of kind, name and namespace",
    )
