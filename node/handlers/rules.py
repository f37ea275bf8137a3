"""Who may use a handler: `allow=` of calls, topics and streams, and the roles behind it.

Rights follow from node ids that were proved, never from what a peer says of itself; whatever is not
clearly allowed is refused.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from crypto.errors import IdentityError
from crypto.identity import NodeId
from node.errors import ConfigError
from node.logs import LogRation
from node.protocol.codes import ResultCode
from node.remote import access
from node.remote.remote import Remote

logger = logging.getLogger("parley.peer")

# What `allow=` takes: node ids (also as text) and roles, or a function that is told the
# peer (a `Peer`, or a `Guest` of another dialect) and the name of what it wants.
AllowFunction = Callable[[Any, str], bool | Awaitable[bool]]
Allow = NodeId | str | Iterable[NodeId | str] | AllowFunction


class Roles:
    """The roles that the application gave to node ids: its own words for its own rights.

    (The role that a peer claims in the handshake is another thing, and gives no rights.)
    """

    __slots__ = ("_roles",)

    def __init__(self) -> None:
        self._roles: dict[NodeId, frozenset[str]] = {}

    def assign(self, node_id: NodeId, *roles: str) -> None:
        """Give a node one or more roles, on top of those that it has.

        Raises:
            ConfigError: a role is empty, or is the text of a node id; or `node_id` is no
                NodeId, which would never be found.
        """
        if not isinstance(node_id, NodeId):
            raise ConfigError(f"roles are assigned to a NodeId, not to {node_id!r}")
        for role in roles:
            _require_role(role)
        self._roles[node_id] = self.of(node_id) | set(roles)

    def revoke(self, node_id: NodeId, *roles: str) -> None:
        """Take roles from a node, all of them if none is named; from its next request on."""
        left = self.of(node_id) - set(roles) if roles else frozenset()
        if left:
            self._roles[node_id] = left
        else:
            self._roles.pop(node_id, None)

    def of(self, node_id: NodeId | None) -> frozenset[str]:
        """The roles of a node; none for a peer that proved no id."""
        return self._roles.get(node_id, frozenset()) if node_id is not None else frozenset()


class Rule:
    """One `allow=`, read once.

    Raises:
        ConfigError: it holds something else than node ids and roles.
    """

    __slots__ = ("_failures", "_function", "_node_ids", "_refusals", "_roles")

    def __init__(self, allow: Allow) -> None:
        self._failures = LogRation()
        self._refusals = LogRation()
        self._function: AllowFunction | None = None
        node_ids: set[NodeId] = set()
        roles: set[str] = set()
        if callable(allow):
            self._function = allow
        else:
            # One id or role alone: its characters are not what is meant.
            members = [allow] if isinstance(allow, NodeId | str) else allow
            if not isinstance(members, Iterable):
                raise ConfigError(f"allow= takes node ids, roles or a function, not {allow!r}")
            for member in members:
                node_id = _node_id(member)
                if node_id is not None:
                    node_ids.add(node_id)
                else:
                    roles.add(_require_role(member))
        self._node_ids = frozenset(node_ids)
        self._roles = frozenset(roles)

    async def permits(self, peer: Remote, name: str, roles: Roles) -> bool:
        """Whether `peer` may use `name`; a function that fails permits nothing."""
        if self._function is None:
            node_id = peer.node_id
            if node_id is None:
                return False
            return node_id in self._node_ids or not self._roles.isdisjoint(roles.of(node_id))
        try:
            answer = self._function(peer, name)
            if inspect.isawaitable(answer):
                answer = await answer
        except Exception:
            text, now = "allow= of %r failed, so %s is not allowed", peer.backend.now()
            self._failures.log(
                logger,
                logging.ERROR,
                now,
                text,
                name,
                peer,
                exc_info=True,
                extra={"event": "rule.failed", "topic": name},
            )
            return False
        return answer is True

    def log_refusal(self, peer: Remote, name: str) -> None:
        """Say that it did not permit `peer` to use `name`."""
        text, now = "%s is not allowed to use %r", peer.backend.now()
        extra = {
            "event": "request.refused",
            **access.party(peer),
            "topic": name,
            "code": ResultCode.NOT_AUTHORISED,
        }
        self._refusals.log(access.logger, logging.INFO, now, text, peer, name, extra=extra)


async def permitted(rules: Iterable[Rule], peer: Remote, name: str, roles: Roles) -> bool:
    """Whether every rule permits it; there may be none."""
    for rule in rules:
        if not await rule.permits(peer, name, roles):
            rule.log_refusal(peer, name)
            return False
    return True


def _node_id(member: object) -> NodeId | None:
    if isinstance(member, NodeId):
        return member
    if not isinstance(member, str):
        raise ConfigError(f"allow= takes node ids and roles, not {member!r}")
    try:
        return NodeId.parse(member)
    except IdentityError:
        return None


def _require_role(role: object) -> str:
    if not isinstance(role, str) or not role or _node_id(role) is not None:
        raise ConfigError(f"a role is a word, and not a node id: {role!r}")
    return role
