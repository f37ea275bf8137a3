"""The rights on the bus of a server, which a reload replaces."""

from collections.abc import Awaitable

from parley._crypto.identity import NodeId
from parley._node.bus.remote.authorisation import BusRequest
from parley._node.errors import ConfigError
from parley._node.handlers.permissions import Roles
from parley._node.settings.tables import BusSettings


class BusRights:
    """The rights of nodes and `roles` on the bus of a server."""

    def __init__(self, settings: BusSettings, roles: Roles) -> None:
        self._roles = roles
        self.change(settings)

    def change(self, settings: BusSettings) -> None:
        self._rights = settings.rights

    def names(self, node_id: NodeId) -> bool:
        """Return whether a right is that of a node ID."""
        return any(right.node_id == node_id for right in self._rights)

    def allow(self, request: BusRequest) -> bool | Awaitable[bool]:
        """Return whether a request of a peer is allowed. If it depends on a role, the application
        may be asked.
        """
        who, group, name = request.peer.node_id, request.group or "", request.name or ""
        ids = (None,) if who is None else self._roles.granting(who)
        roles = frozenset(
            right.role
            for right in self._rights
            if any(right.allows(one, request.action, name, group, (right.role,)) for one in ids)
        )
        if "" in roles:
            return True
        if not roles or who is None:
            return False
        return self._roles.include(roles, who, request.peer.backend.now())


def require_bus(settings: BusSettings) -> None:
    """Raise ConfigError if there are rights but no bus."""
    if settings.allow and settings.url is None:
        raise ConfigError(
            f"cannot allow {next(iter(settings.allow))} on the bus: no bus is configured; "
            "give --bus, or set bus.url"
        )
