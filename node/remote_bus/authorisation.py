"""Who may do what to a bus that a node offers: one question for each request.

Without an answer that is True nothing is allowed; a callback that fails allows nothing. Rights
follow from node ids (`request.peer.node_id`), never from what a peer says of itself.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from node.bus.names import DEAD
from node.errors import APPLICATION_ERRORS
from node.logs import LogRation
from node.protocol.codes import ResultCode
from node.remote import access
from node.remote.live import LiveConnection
from node.remote.remote import Remote
from node.remote_bus.bus_requests import (
    Drop,
    ListConsumers,
    ListGroups,
    ListPending,
    ListStreams,
    Publish,
    ReadHistory,
    Redeliver,
    RemoveConsumers,
    RemoveGroup,
    Request,
    Rewind,
    TrimStream,
)

logger = logging.getLogger("parley.bus")

Action: TypeAlias = Literal["publish", "consume", "inspect", "manage"]

# Log lines on refusals, and on callbacks that fail: at once, and from then on per second.
LINES: Final = 100
LINES_PER_SECOND: Final = 1.0

_INSPECTING: Final = (ListStreams, ListGroups, ListConsumers, ListPending, ReadHistory)
_MANAGING: Final = (Rewind, Redeliver, TrimStream, Drop, RemoveConsumers, RemoveGroup)


@dataclass(frozen=True, slots=True)
class BusRequest:
    """What a peer wants of a bus.

    Attributes:
        peer: the peer that asks; on an unencrypted connection its `node_id` is None.
        action: `publish`; `consume` (all that a consumer of a group does); `inspect` (look at
            streams, groups, consumers, pending and stored events); `manage` (move a group, hand
            out again, trim, drop, remove, and publish to a dead-letter stream).
        name: of the event, so of the stream (or `API.*`, where a store has all events of an API
            in one, for `inspect` and `manage`); empty for the list of all streams.
        group: the group it is about, if any, as the store knows it.
    """

    peer: Remote
    action: Action
    name: str
    group: str | None = None


Allow: TypeAlias = Callable[[BusRequest], bool | Awaitable[bool]]


def questions_of(peer: Remote, request: Request) -> list[BusRequest]:
    """All that has to be allowed for a request."""
    if isinstance(request, Publish):
        questions: dict[str, BusRequest] = {}
        for event in request.events:
            name = event.name
            if name not in questions:
                is_dead = name.endswith(f".{DEAD}")
                questions[name] = BusRequest(peer, "manage" if is_dead else "publish", name)
        return list(questions.values())
    action: Action = "consume"
    if isinstance(request, _INSPECTING):
        action = "inspect"
    elif isinstance(request, _MANAGING):
        action = "manage"
    stream: str = getattr(request, "name", "") or getattr(request, "stream", "")
    return [BusRequest(peer, action, stream, getattr(request, "group", None))]


class BusGate:
    """Asks `allow`; without one nothing is allowed. Peers that came through a tunnel may ask for
    what is `exported` alone (section 19)."""

    __slots__ = ("_allow", "_exported", "_failures", "_refusals")

    def __init__(self, allow: Allow | None, exported: Callable[[str], bool]) -> None:
        self._allow = allow
        self._exported = exported
        self._failures = LogRation(LINES, LINES_PER_SECOND)
        self._refusals = LogRation(LINES, LINES_PER_SECOND)

    async def permits(self, live: LiveConnection, request: Request) -> bool:
        """Whether the peer of a connection may have its request, all of it."""
        peer, loop = live.remote, live.backend
        for question in questions_of(peer, request):
            offered = not live.path or self._exported(question.name)
            try:
                answer = offered and self._allow is not None and self._allow(question)
                if inspect.isawaitable(answer):
                    answer = await answer
            except APPLICATION_ERRORS:
                if self._failures.has_room(loop.now()):
                    logger.exception(
                        "allow= of the bus failed, so %s is not allowed",
                        peer,
                        extra={"event": "rule.failed", "topic": question.name},
                    )
                answer = False
            if answer is not True:
                self._log_refusal(question, loop.now())
                return False
        return True

    def _log_refusal(self, question: BusRequest, now: float) -> None:
        peer, action, name = question.peer, question.action, question.name
        self._refusals.log(
            access.logger,
            logging.INFO,
            now,
            "%s may not %s %r",
            peer,
            action,
            name,
            extra={
                "event": "request.refused",
                "kind": f"bus {action}",
                "topic": name,
                "code": ResultCode.NOT_AUTHORISED,
                **access.party(peer),
            },
        )
