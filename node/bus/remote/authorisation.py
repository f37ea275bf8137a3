"""Authorises the requests of peers to an offered bus.

Permissions depend on authenticated node IDs, never on a peer's own claims. A request is refused if
no rule allows it, or if its rule fails.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, cast, get_args

from parley._crypto.identity import NodeId
from parley._node.bus.identifiers import DEAD
from parley._node.bus.remote.messages import (
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
from parley._node.errors import APPLICATION_ERRORS, ConfigError
from parley._node.handlers.permissions import Allow, Roles, Rule
from parley._node.logs import RateLimitedLogger
from parley._node.protocol.codes import ResultCode
from parley._node.remote import access_log as access
from parley._node.remote.live_connection import LiveConnection
from parley._node.remote.remote import Remote
from parley._node.transport.callables import is_callable_with, require_callable

logger = logging.getLogger("parley.bus")

Action: TypeAlias = Literal["publish", "consume", "inspect", "manage"]

# Log lines about refusals and about failing callbacks: the burst, and the rate per second.
LINES: Final = 100
LINES_PER_SECOND: Final = 1.0

_INSPECTING: Final = (ListStreams, ListGroups, ListConsumers, ListPending, ReadHistory)
_MANAGING: Final = (Rewind, Redeliver, TrimStream, Drop, RemoveConsumers, RemoveGroup)


@dataclass(frozen=True, slots=True)
class BusRequest:
    """A permission that a peer's request needs.

    Attributes:
        peer: the requesting peer; on an unencrypted connection its `node_id` is None.
        action: `publish`; `consume` (all operations of a group's consumer); `inspect` (list
            streams, groups, consumers, pending and stored events); `manage` (rewind, redeliver,
            trim, drop, remove, and publish to a dead-letter stream).
        name: the event or stream (`inspect` and `manage` also allow `API.*`); empty for the list of
            all streams.
        group: the group, if any, with the name that the store uses.
    """

    peer: Remote
    action: Action
    name: str
    group: str | None = None


AllowRequest: TypeAlias = Callable[[BusRequest], bool | Awaitable[bool]]
# The argument of `node.bus(allow=)`: node IDs and roles with all permissions; for each action, node
# IDs and roles or a function of peer and name; or a function of a request.
AllowBus: TypeAlias = Allow | Mapping[Action, Allow] | AllowRequest


class BusRule:
    """The `allow=` of a bus.

    Raises:
        ConfigError: it is not an `AllowBus`.
    """

    __slots__ = ("_function", "_rules")

    def __init__(self, allow: AllowBus) -> None:
        self._function: AllowRequest | None = None
        self._rules: dict[str, Rule] = {}
        actions = get_args(Action)
        if isinstance(allow, Mapping):
            for action, allowed in allow.items():
                if action not in actions:
                    raise ConfigError(
                        f"invalid action {action!r} in a bus's allow=: it must be one of "
                        f"{', '.join(actions)}"
                    )
                self._rules[action] = Rule(allowed)
        elif callable(allow) and not is_callable_with(allow, 2):
            self._function = require_callable(allow, "allow= of a bus", "request")
        else:
            self._rules = dict.fromkeys(actions, Rule(cast(Allow, allow)))

    def names(self, node_id: NodeId) -> bool:
        """Return whether it contains a node ID."""
        return any(rule.names(node_id) for rule in self._rules.values())

    async def permits(self, permission: BusRequest, roles: Roles) -> bool:
        """Return whether the request is allowed; raise the errors of an `allow` function."""
        if self._function is not None:
            answer = self._function(permission)
            if inspect.isawaitable(answer):
                answer = await answer
            return answer is True
        rule = self._rules.get(permission.action)
        return rule is not None and await rule.permits(permission.peer, permission.name, roles)


def permissions_of(peer: Remote, request: Request) -> list[BusRequest]:
    """Return all permissions that a request needs."""
    if isinstance(request, Publish):
        permissions: dict[str, BusRequest] = {}
        for event in request.events:
            name = event.name
            if name not in permissions:
                is_dead = name.endswith(f".{DEAD}")
                permissions[name] = BusRequest(peer, "manage" if is_dead else "publish", name)
        return list(permissions.values())
    action: Action = "consume"
    if isinstance(request, _INSPECTING):
        action = "inspect"
    elif isinstance(request, _MANAGING):
        action = "manage"
    stream: str = getattr(request, "name", "") or getattr(request, "stream", "")
    return [BusRequest(peer, action, stream, getattr(request, "group", None))]


class BusAuthoriser:
    """Applies the rule of a bus, with the node's `roles`.

    Peers behind a tunnel are limited to `exported` names (section 19).
    """

    __slots__ = ("_exported", "_failures", "_refusals", "_roles", "_rule")

    def __init__(self, rule: BusRule, exported: Callable[[str], bool], roles: Roles) -> None:
        self._rule = rule
        self._exported = exported
        self._roles = roles
        self._failures = RateLimitedLogger(LINES, LINES_PER_SECOND)
        self._refusals = RateLimitedLogger(LINES, LINES_PER_SECOND)

    async def permits(self, live: LiveConnection, request: Request) -> bool:
        """Return whether the peer of a connection may make a request."""
        peer, loop = live.remote, live.backend
        for permission in permissions_of(peer, request):
            offered = not live.path or self._exported(permission.name)
            try:
                answer = offered and await self._rule.permits(permission, self._roles)
            except APPLICATION_ERRORS:
                if self._failures.allows(loop.now()):
                    logger.exception(
                        "the bus's allow= function failed, so the request of %s is refused",
                        peer,
                        extra={"event": "rule.failed", "topic": permission.name},
                    )
                answer = False
            if not answer:
                self._log_refusal(permission, loop.now())
                return False
        return True

    def _log_refusal(self, permission: BusRequest, now: float) -> None:
        peer, action, name = permission.peer, permission.action, permission.name
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
