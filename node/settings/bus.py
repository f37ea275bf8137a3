"""Which bus a node offers to others, and who may do what there: the table `[bus]`.

Whatever no entry allows is refused. `node.bus.address` decides which addresses a bus may have.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Annotated, Final, NamedTuple

from parley._crypto.errors import IdentityError
from parley._crypto.identity import NodeId
from parley._node.errors import ConfigError
from parley._node.protocol.config_types import check_types, setting

ACTIONS: Final = ("publish", "consume", "inspect", "manage")
ANYBODY: Final = "*"
_ANY: Final = "*"

_ENTRY: Final = re.compile(
    r"(?P<who>[^=:]+)=(?P<actions>[a-z+]+):(?P<events>[\w.*-]+)(?::(?P<groups>[!-~]+))?", re.ASCII
)
_ROLE: Final = "@"
_FORM: Final = "NODEID=publish+consume:EVENTS[:GROUPS], @ROLE for a role, * for anybody or anything"


class BusRight(NamedTuple):
    """What one entry allows: `node_id` None is anybody, or with a `role` those who have it;
    `events` and `groups` are patterns, in which `*` stands for any characters, none too."""

    node_id: NodeId | None
    actions: frozenset[str]
    events: str
    groups: str
    role: str = ""

    def allows(
        self,
        node_id: NodeId | None,
        action: str,
        name: str,
        group: str,
        roles: Collection[str] = frozenset(),
    ) -> bool:
        """Whether it lets a node with these roles do that; an empty `name` or `group` is all of
        them."""
        return (
            (self.node_id is None or node_id == self.node_id)
            and (not self.role or self.role in roles)
            and action in self.actions
            and _fits(self.events, name)
            # Events are published for all groups.
            and (action == "publish" or _fits(self.groups, group))
        )


def parse_right(text: str) -> BusRight:
    """Read `NODEID=publish+consume:EVENTS[:GROUPS]`.

    Raises:
        ConfigError: the text is not such an entry.
    """
    match = _ENTRY.fullmatch(text)
    if match is None:
        raise ConfigError(f"{text!r} is not {_FORM}")
    actions = frozenset(match["actions"].split("+"))
    if not actions <= set(ACTIONS):
        raise ConfigError(f"{match['actions']!r} in {text!r} is not of {', '.join(ACTIONS)}")
    who, events, groups = match["who"], match["events"], match["groups"] or _ANY
    if len(who) > 1 and who.startswith(_ROLE):
        return BusRight(None, actions, events, groups, who.removeprefix(_ROLE))
    return BusRight(_who(who, text), actions, events, groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class BusSettings:
    """Which bus a node offers to other nodes.

    Raises:
        ConfigError: a malformed entry.
    """

    url: Annotated[
        str | None,
        setting(
            "Address of the bus that is offered, such as sqlite:////var/lib/parley/bus.db; "
            "relative paths start from the file's directory."
        ),
    ] = field(default=None, repr=False)  # it may hold a password
    allow: Annotated[
        tuple[str, ...],
        setting(
            "Who can do what: NODEID=ACTIONS:EVENTS[:GROUPS]. ACTIONS are publish, consume, "
            "inspect and manage, joined by +; EVENTS and GROUPS are patterns with *; @ROLE names "
            "the nodes with a role, and * any node. Everything else is refused.",
            reload=True,
        ),
    ] = ()

    def __post_init__(self) -> None:
        check_types(self, ConfigError)
        for each in self.allow:
            parse_right(each)

    @property
    def rights(self) -> Collection[BusRight]:
        """The entries of `allow`."""
        return tuple(map(parse_right, self.allow))


def _who(text: str, entry: str) -> NodeId | None:
    if text == ANYBODY:
        return None
    try:
        return NodeId.parse(text)
    except IdentityError as error:
        raise ConfigError(
            f"{text!r} in {entry!r} is neither a node id, nor @ROLE, nor *"
        ) from error


def _fits(pattern: str, name: str) -> bool:
    """Whether a name fits; what stands for all of them only fits where all of them do."""
    if pattern == _ANY:
        return True
    *parts, last = pattern.split(_ANY)
    if not parts or not name:
        return bool(name) and name == last
    if not name.startswith(parts[0]):
        return False
    place = len(parts[0])
    for part in parts[1:]:  # the first place that fits leaves most for the others
        found = name.find(part, place)
        if found < 0:
            return False
        place = found + len(part)
    return name.endswith(last) and len(name) - len(last) >= place
