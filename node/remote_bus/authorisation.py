"""Who may do what to a bus that a node offers: one question for each request.

One rule: without an answer that is True nothing is allowed; a callback that fails allows nothing.
Rights follow from node ids (`request.peer.node_id`), never from what a peer says of itself. Knows
no store.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from node.bus.names import DEAD
from node.logs import LogRation
from node.remote_bus.requests import (
    Consumers,
    Drop,
    Groups,
    History,
    Pending,
    Publish,
    Redeliver,
    RemoveConsumers,
    RemoveGroup,
    Request,
    Rewind,
    Streams,
    TrimStream,
)

if TYPE_CHECKING:
    from node.peer.peer import Peer
    from node.transport.loop import Loop

logger = logging.getLogger("parley.bus")

Action: TypeAlias = Literal["publish", "consume", "inspect", "manage"]

# Lines on refusals and on callbacks that fail: at once, and from then on for each second.
LINES: Final = 100
LINES_PER_SECOND: Final = 1.0

_INSPECTING: Final = (Streams, Groups, Consumers, Pending, History)
_MANAGING: Final = (Rewind, Redeliver, TrimStream, Drop, RemoveConsumers, RemoveGroup)


@dataclass(frozen=True, slots=True)
class BusRequest:
    """What a peer wants of a bus.

    Attributes:
        peer: who; on an unencrypted connection its `node_id` is None.
        action: `publish`; `consume` (all that a consumer of a group does); `inspect` (look at
            streams, groups, consumers, pending and stored events); `manage` (move a group, hand
            out again, trim, drop, remove, and publish to a dead-letter stream).
        name: of the event, so of the stream (or `API.*`, where a store has all events of an API
            in one, for `inspect` and `manage`); empty for the list of all streams.
        group: as the store knows it, where it is about one.
    """

    peer: "Peer"
    action: Action
    name: str
    group: str | None = None


Allow: TypeAlias = Callable[[BusRequest], bool | Awaitable[bool]]


def wanted(peer: "Peer", request: Request) -> Iterator[BusRequest]:
    """All that has to be allowed for a request."""
    if isinstance(request, Publish):
        for name in dict.fromkeys(event.name for event in request.events):
            is_dead = name.endswith(f".{DEAD}")
            yield BusRequest(peer, "manage" if is_dead else "publish", name)
        return
    action: Action = "consume"
    if isinstance(request, _INSPECTING):
        action = "inspect"
    elif isinstance(request, _MANAGING):
        action = "manage"
    stream: str = getattr(request, "name", "") or getattr(request, "stream", "")
    yield BusRequest(peer, action, stream, getattr(request, "group", None))


class Gate:
    """Asks `allow`; without one nothing is allowed."""

    __slots__ = ("_allow", "_failures", "_refusals")

    def __init__(self, allow: Allow | None) -> None:
        self._allow = allow
        self._failures = LogRation(LINES, LINES_PER_SECOND)
        self._refusals = LogRation(LINES, LINES_PER_SECOND)

    async def permits(self, peer: "Peer", request: Request, loop: "Loop") -> bool:
        """Whether the peer may have its request, all of it."""
        for question in wanted(peer, request):
            if not await self._answer(question, loop):
                if self._refusals.has_room(loop.now()):
                    logger.info(
                        "%s may not %s %r%s", peer, question.action, question.name, self._silent()
                    )
                return False
        return True

    async def _answer(self, question: BusRequest, loop: "Loop") -> bool:
        if self._allow is None:
            return False
        try:
            answer = self._allow(question)
            if inspect.isawaitable(answer):
                answer = await answer
        except Exception:
            if self._failures.has_room(loop.now()):
                logger.exception("allow= of the bus failed, so %s is not allowed", question.peer)
            return False
        return answer is True

    def _silent(self) -> str:
        silent = self._refusals.told()
        return f" ({silent} more were refused in silence)" if silent else ""
