"""The addresses of one node, and resolvers for addresses that are looked up when they are
dialled.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from parley._crypto.errors import IdentityError
from parley._crypto.identity import NodeId
from parley._node.discovery.discovery import SCHEME, resolve
from parley._node.errors import AddressError, ConfigError, UnreachableError
from parley._node.transport.address import Address

# The most addresses of one link; also the most addresses that are used of one resolver.
MOST_PLACES: Final = 16

# Finds the addresses of a node: it takes `scheme://NODEID` and returns `tcp://..` and `unix://..`
# addresses, the best first. It returns an empty list or raises UnreachableError if it finds no
# address. The addresses need not be trusted, because the handshake authenticates the node ID.
Resolver = Callable[[str], Awaitable[Sequence[str]]]

# Resolvers by scheme.
RESOLVERS: Final[dict[str, Resolver]] = {SCHEME: resolve}


class AddressList:
    """The addresses of one node; the address that answered last is tried first.

    `node_id` is the node ID in the addresses, otherwise the ID of the node that answered first.

    Raises:
        AddressError: an address is invalid.
        ConfigError: the addresses have different node IDs, or there are more than 16.
    """

    def __init__(self, address: str, also: Sequence[str] = ()) -> None:
        if isinstance(also, str) or not isinstance(also, Iterable):
            raise ConfigError(f"invalid also {also!r}: expected a list of addresses")
        texts = list(dict.fromkeys([address, *also]))
        if len(texts) > MOST_PLACES:
            raise ConfigError(
                f"cannot use {len(texts)} addresses for {address!r}: the limit is {MOST_PLACES}"
            )
        self._texts = texts
        ids = {found for found in map(_read, texts) if found is not None}
        if len(ids) > 1:
            found_ids = ", ".join(sorted(map(str, ids)))
            raise ConfigError(
                f"cannot combine the addresses of {address!r}: they have different node IDs "
                f"({found_ids}); use one link for each node"
            )
        self._given: NodeId | None = next(iter(ids), None)
        # All IDs in the addresses, including those of servers on the way.
        self.named = frozenset(ids.union(*map(_on_the_way, texts)))
        self.node_id = self._given
        self._last = ""

    def __str__(self) -> str:
        return self._texts[0].partition("#")[0]

    async def found(self, current: NodeId | None = None) -> list[str]:
        """Return the addresses to dial now, with the node ID if one of them includes it. Those of
        its successor `current` are looked up.

        Raises:
            UnreachableError: no address was found.
        """
        found: list[str] = []
        failed: UnreachableError | None = None
        for text in self._texts:
            scheme = text.partition("://")[0]
            if scheme not in RESOLVERS:
                found.append(self._pinned(text))
                continue
            try:
                proposed = await RESOLVERS[scheme](f"{scheme}://{current or self._given}")
            except UnreachableError as error:
                failed = error
                continue
            found += [self._pinned(one) for one in list(proposed)[:MOST_PLACES]]
        if not found:
            raise failed or UnreachableError(f"cannot connect to {self}: no address was found")
        found = list(dict.fromkeys(found))
        found.sort(key=lambda address: address.partition("#")[0] != self._last)
        return found

    def answered(self, address: str, node_id: NodeId | None) -> None:
        """Record that the node answered at an address, which is dialled first from now on."""
        self.node_id, self._last = self.node_id or node_id, address.partition("#")[0]

    def _pinned(self, text: str) -> str:
        address = Address.parse(text).without_node_id()
        return str(address if self._given is None else address.with_node_id(self._given))


def _on_the_way(text: str) -> frozenset[NodeId]:
    """Return the IDs of the servers in a via address."""
    if text.partition("://")[0] in RESOLVERS:
        return frozenset()
    return Address.parse(text).on_the_way


def _read(text: str) -> NodeId | None:
    scheme, mark, rest = text.partition("://")
    if not mark or scheme not in RESOLVERS:
        return Address.parse(text).node_id
    try:
        return NodeId.parse(rest)
    except IdentityError as error:
        raise AddressError(
            f"invalid address {text!r}: expected a node ID after '{scheme}://'"
        ) from error
