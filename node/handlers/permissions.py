"""Permissions to call, subscribe and publish: the rules in `allow=`, and the roles of node IDs."""

import inspect
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from parley._crypto.errors import IdentityError
from parley._crypto.identity import NodeId
from parley._node.errors import APPLICATION_ERRORS, ConfigError, FileError, os_reason
from parley._node.logs import RateLimitedLogger
from parley._node.protocol.codes import ResultCode
from parley._node.remote import access_log as access
from parley._node.remote.remote import Remote
from parley._node.transport.callables import require_callable

# The same limit as for a file of known peers.
MAX_FILE_SIZE: Final = 1_048_576


def read_roles(path: str | os.PathLike[str]) -> dict[NodeId, frozenset[str]]:
    """Read the roles in a file, with blocking I/O.

    Raises:
        FileError: it cannot be read, is too large, or a line is malformed; the message has the
            line.
    """
    file = Path(path)
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_FILE_SIZE + 1)
        if len(content) > MAX_FILE_SIZE:
            raise FileError(f"cannot read {file}: it has more than {MAX_FILE_SIZE:,} bytes")
        lines = content.decode("utf-8").splitlines()
    except OSError as error:
        raise FileError(f"cannot read {file}: {os_reason(error)}") from error
    except UnicodeDecodeError as error:
        raise FileError(f"cannot read {file}: it is not UTF-8") from error
    roles: dict[NodeId, frozenset[str]] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            node_id = NodeId.parse(words[0])
            given = frozenset(map(require_role, words[1:]))
        except (IdentityError, ConfigError) as error:
            raise FileError(f"{file}, line {number}: {error}") from error
        if not given:
            raise FileError(f"{file}, line {number}: no roles follow the node ID")
        roles[node_id] = roles.get(node_id, frozenset()) | given
    return roles


def require_role(role: object) -> str:
    """Return a role; raise ConfigError if it is empty or the text of a node ID."""
    if isinstance(role, str) and role:
        try:
            NodeId.parse(role)
        except IdentityError:
            return role
    raise ConfigError(f"invalid role {role!r}: expected a word that is not a node ID")


logger = logging.getLogger("parley.peer")

# The values of `allow=`: node IDs (also as text) and roles, or a function of the peer (a `Peer`, or
# a `Guest` of another dialect) and the name that it requests.
AllowFunction = Callable[[Any, str], bool | Awaitable[bool]]
# The argument of `Roles.ask`.
RolesFunction = Callable[[NodeId], Iterable[str] | Awaitable[Iterable[str]]]
Allow = NodeId | str | Iterable[NodeId | str] | AllowFunction


class Roles:
    """The roles that the application gives to node IDs, for use in `allow=`.

    Roles are assigned, loaded from a file, or returned by a function (`ask`); a node has all of
    them. They are unrelated to the role that a peer claims in its handshake, which grants no
    permissions. A node also has the roles of the ended IDs that a person accepted it as the
    successor of (section 22).

    Attributes: loaded: the roles of each node ID that were loaded from a file.
    accepted_predecessors: the ended IDs that a person accepted each node ID as the successor of;
    the node sets it.

    Example:

        node.roles.assign(peer.node_id, "operator", "writer")
        assert node.roles.of(peer.node_id) == {"operator", "writer"}
        node.roles.revoke(peer.node_id)
    """

    __slots__ = ("_asked", "_failures", "_roles", "accepted_predecessors", "loaded")

    def __init__(self) -> None:
        self._roles: dict[NodeId, frozenset[str]] = {}
        self.loaded: dict[NodeId, frozenset[str]] = {}
        self.accepted_predecessors: Mapping[NodeId, tuple[NodeId, ...]] = {}
        self._asked: RolesFunction | None = None
        self._failures = RateLimitedLogger()

    def assign(self, node_id: NodeId, *roles: str) -> None:
        """Give a node one or more roles in addition to those that it has.

        Raises:
            ConfigError: a role is empty or the text of a node ID, or `node_id` is not a NodeId.
        """
        if not isinstance(node_id, NodeId):
            raise ConfigError(f"cannot assign roles to {node_id!r}: expected a NodeId")
        for role in roles:
            require_role(role)
        self._roles[node_id] = self._roles.get(node_id, frozenset()) | set(roles)

    def revoke(self, node_id: NodeId, *roles: str) -> None:
        """Remove assigned roles from a node, or all of them if none is named.

        The change applies from the node's next request.
        """
        left = self._roles.get(node_id, frozenset()) - set(roles) if roles else frozenset()
        if left:
            self._roles[node_id] = left
        else:
            self._roles.pop(node_id, None)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Load the roles in a file, replacing those loaded before.

        Call it again after the file has changed. Each line contains a node ID and its roles,
        separated by blanks; lines that begin with # are comments. Uses blocking I/O.

        Raises:
            FileError: it cannot be read, has more than 1 MiB, or a line is malformed; the loaded
                roles stay as they were.
        """
        self.loaded = read_roles(path)

    def ask(self, function: RolesFunction | None) -> None:
        """Set a function, sync or async, that returns the additional roles of a node ID; None
        removes it.

        It is called for each request that needs a role which was neither assigned nor loaded, and
        also with the accepted predecessors of the node. If it raises an exception, the node has no
        additional roles.
        """
        if function is not None:
            require_callable(function, "the function of roles", "node_id")
        self._asked = function

    def of(self, node_id: NodeId | None) -> frozenset[str]:
        """Return the assigned and loaded roles of a node; empty for a peer without a node ID."""
        if node_id is None:
            return frozenset()
        return frozenset().union(*map(self._of, self.granting(node_id)))

    def granting(self, node_id: NodeId) -> tuple[NodeId, ...]:
        """Return the IDs whose rights a node has: its own, and its accepted predecessors."""
        if not self.accepted_predecessors:
            return (node_id,)
        return (node_id, *self.accepted_predecessors.get(node_id, ()))

    def names(self, node_id: NodeId) -> bool:
        """Return whether roles are assigned to a node ID, or loaded for it."""
        return node_id in self._roles or node_id in self.loaded

    async def include(self, wanted: frozenset[str], node_id: NodeId, now: float) -> bool:
        """Whether a node has one of these roles, including those of the `ask` function."""
        if not wanted.isdisjoint(self.of(node_id)):
            return True
        if self._asked is None or not wanted:
            return False
        for one in self.granting(node_id):
            if await self._asked_include(self._asked, wanted, one, now):
                return True
        return False

    def _of(self, node_id: NodeId) -> frozenset[str]:
        roles = self._roles.get(node_id, frozenset())
        return roles | self.loaded[node_id] if node_id in self.loaded else roles

    async def _asked_include(
        self, asked: RolesFunction, wanted: frozenset[str], node_id: NodeId, now: float
    ) -> bool:
        try:
            told = asked(node_id)
            if inspect.isawaitable(told):
                told = await told
            return not wanted.isdisjoint([told] if isinstance(told, str) else told)
        except APPLICATION_ERRORS:
            text = "the roles function failed for %s, which has no additional roles now"
            self._failures.log(
                logger,
                logging.ERROR,
                now,
                text,
                node_id.short,
                exc_info=True,
                extra={"event": "roles.failed", "peer": node_id},
            )
            return False


class Rule:
    """One `allow=` option.

    Raises:
        ConfigError: it contains something other than node IDs and roles.
    """

    __slots__ = ("_failures", "_function", "_node_ids", "_refusals", "_roles")

    def __init__(self, allow: Allow) -> None:
        self._failures = RateLimitedLogger()
        self._refusals = RateLimitedLogger()
        self._function: AllowFunction | None = None
        node_ids: set[NodeId] = set()
        roles: set[str] = set()
        if isinstance(allow, Mapping):
            raise ConfigError(
                f"cannot use {allow!r} as allow=: only a bus has a rule for each action; "
                "name node IDs, roles or a function"
            )
        if callable(allow) or not isinstance(allow, NodeId | Iterable):
            what = "allow= or writers= (node IDs, roles or a function)"
            self._function = require_callable(allow, what, "peer", "name")
        else:
            # A single ID or role is not a collection of characters.
            members = [allow] if isinstance(allow, NodeId | str) else allow
            for member in members:
                node_id = _node_id(member)
                if node_id is not None:
                    node_ids.add(node_id)
                else:
                    roles.add(require_role(member))
        self._node_ids = frozenset(node_ids)
        self._roles = frozenset(roles)

    async def permits(self, peer: Remote, name: str, roles: Roles) -> bool:
        """Whether `peer` may use `name`; False if the function raises an exception."""
        if self._function is None:
            node_id = peer.node_id
            if node_id is None:
                return False
            if not self._node_ids.isdisjoint(roles.granting(node_id)):
                return True
            return await roles.include(self._roles, node_id, peer.backend.now())
        try:
            answer = self._function(peer, name)
            if inspect.isawaitable(answer):
                answer = await answer
        except APPLICATION_ERRORS:
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

    def names(self, node_id: NodeId) -> bool:
        """Return whether it contains a node ID."""
        return node_id in self._node_ids

    def log_refusal(self, peer: Remote, name: str) -> None:
        """Log that `peer` was not permitted to use `name`."""
        text, now = "%s is not allowed to use %r", peer.backend.now()
        extra = {
            "event": "request.refused",
            **access.party(peer),
            "topic": name,
            "code": ResultCode.NOT_AUTHORISED,
        }
        self._refusals.log(access.logger, logging.INFO, now, text, peer, name, extra=extra)


async def is_permitted(rules: Iterable[Rule], peer: Remote, name: str, roles: Roles) -> bool:
    """Whether all rules permit it; also if there are no rules."""
    for rule in rules:
        if not await rule.permits(peer, name, roles):
            rule.log_refusal(peer, name)
            return False
    return True


def _node_id(member: object) -> NodeId | None:
    if isinstance(member, NodeId):
        return member
    if not isinstance(member, str):
        raise ConfigError(f"invalid member {member!r} of allow=: expected a node ID or a role")
    try:
        return NodeId.parse(member)
    except IdentityError:
        return None
