"""The addresses of one node, and resolvers for addresses that are found when they are dialled."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from parley._crypto.errors import IdentityError
from parley._crypto.identity import NodeId
from parley._node.discovery.discovery import SCHEME, resolve
from parley._node.errors import AddressError, ConfigError, UnreachableError
from parley._node.transport.address import Address

# Addresses of one node that a link keeps, and as many that one resolver may propose.
MOST_PLACES: Final = 16

# Finds addresses of a node: `scheme://NODEID` in, `tcp://..` and `unix://..` out, the best first;
# an empty list, or UnreachableError, where nothing is found. What is found is only a proposal: the
# handshake has to prove the node id.
Resolver = Callable[[str], Awaitable[Sequence[str]]]

# By scheme.
RESOLVERS: Final[dict[str, Resolver]] = {SCHEME: resolve}


class AddressList:
    """Where one node may be reached; `node_id` is the one id that the addresses carry, or else
    that of the node which answered first. The address that answered last is tried first.

    Raises:
        AddressError: one is not an address.
        ConfigError: they carry different node ids, or are more than 16.
    """

    def __init__(self, address: str, also: Sequence[str] = ()) -> None:
        if isinstance(also, str) or not isinstance(also, Iterable):
            raise ConfigError(f"also is {also!r}; it must be a list of addresses")
        texts = list(dict.fromkeys([address, *also]))
        if len(texts) > MOST_PLACES:
            raise ConfigError(f"{len(texts)} addresses of one node: at most {MOST_PLACES}")
        self._texts = texts
        ids = {found for found in map(_read, texts) if found is not None}
        if len(ids) > 1:
            found_ids = ", ".join(sorted(map(str, ids)))
            raise ConfigError(
                f"the addresses carry different node ids: a link has one node, not {found_ids}"
            )
        self._given: NodeId | None = next(iter(ids), None)
        self.node_id = self._given
        self._last = ""

    def __str__(self) -> str:
        return self._texts[0].partition("#")[0]

    async def found(self) -> list[str]:
        """The addresses to dial now, with the node id if one of them carries it.

        Raises:
            UnreachableError: none was found.
        """
        found: list[str] = []
        failed: UnreachableError | None = None
        for text in self._texts:
            scheme = text.partition("://")[0]
            if scheme not in RESOLVERS:
                found.append(self._pinned(text))
                continue
            try:
                proposed = await RESOLVERS[scheme](text)
            except UnreachableError as error:
                failed = error
                continue
            found += [self._pinned(one) for one in list(proposed)[:MOST_PLACES]]
        if not found:
            raise failed or UnreachableError(f"{self}: no address was found")
        found = list(dict.fromkeys(found))
        found.sort(key=lambda address: address.partition("#")[0] != self._last)
        return found

    def answered(self, address: str, node_id: NodeId | None) -> None:
        """The node answered there: from now on it is this one, and is dialled there first."""
        self.node_id, self._last = self.node_id or node_id, address.partition("#")[0]

    def _pinned(self, text: str) -> str:
        address = Address.parse(text).without_node_id()
        return str(address if self._given is None else address.with_node_id(self._given))


def _read(text: str) -> NodeId | None:
    scheme, mark, rest = text.partition("://")
    if not mark or scheme not in RESOLVERS:
        return Address.parse(text).node_id
    try:
        return NodeId.parse(rest)
    except IdentityError as error:
        raise AddressError(f"after {scheme}:// stands a node id") from error
