"""Whether a new connection is taken at all: decided from its address alone, before any
cryptography.

What a remote address costs is bounded, and so is what is remembered of all of them. It has no
clock: the time comes in as `now`.
"""

from collections import Counter, OrderedDict
from collections.abc import Hashable
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from parley._node.config import NodeConfig
from parley._node.errors import CallRefused
from parley._node.protocol.codes import ResultCode
from parley._node.protocol.rate_limit import Rate, TokenBucket

# Handshakes that an address which was quiet may begin at once, in seconds of its rate.
BURST_SECONDS: Final = 2.0
# Addresses whose rate is remembered; beyond it the one that was quiet for longest is not.
# Whoever has more of them than that still meets `half_open` and `max_connections`.
REMEMBERED: Final = 16_384
# Who has an IPv6 address has its whole /64.
IPV6_PREFIX_BITS: Final = 64


class Admission:
    """The doorkeeper of one node. Names are those of `transport.endpoints.remote_name`.

    `refused` counts the connections that were turned away, by reason.
    """

    __slots__ = ("_config", "_counts", "_inside", "_left", "_rate", "refused")

    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        self._rate = _rate_of(config)
        self._inside: dict[Hashable, str | None] = {}
        self._counts: Counter[str] = Counter()
        # Who came last stands last.
        self._left: OrderedDict[str, TokenBucket] = OrderedDict()
        self.refused: Counter[str] = Counter()

    def change(self, config: NodeConfig) -> None:
        """Have these limits from now on; whoever is inside stays. Each address has a whole
        allowance of handshakes again."""
        self._config = config
        self._rate = _rate_of(config)
        self._left.clear()

    def refusal(self, name: str, now: float) -> str | None:
        """Why a connection from `name` is turned away; None if it is taken.

        Being taken uses up one handshake of the address. `now` is seconds of a clock that
        never goes back.
        """
        reason = self._refusal(self._key(name), now)
        if reason is not None:
            self.refused[reason] += 1
        return reason

    def entered(self, who: Hashable, name: str) -> None:
        """The connection `who` from `name` was taken; it counts until `left`."""
        key = self._inside[who] = self._key(name)
        if key is not None:
            self._counts[key] += 1

    def left(self, who: Hashable) -> None:
        """The connection is gone; a second time, or one that never entered, is fine."""
        key = self._inside.pop(who, None)
        if key is not None:
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]

    def moved(self, who: Hashable, to: Hashable) -> None:
        """The connection `who` is that of `to` from now on."""
        if who in self._inside:
            self.left(to)
            self._inside[to] = self._inside.pop(who)

    def __len__(self) -> int:
        """How many connections are inside."""
        return len(self._inside)

    def _key(self, name: str) -> str | None:
        """What stands for an address; None if no limit of addresses holds for it."""
        key, local = address_key(name)
        return None if local and not self._config.limit_loopback else key

    def _refusal(self, key: str | None, now: float) -> str | None:
        if len(self._inside) >= self._config.max_connections:
            return "too many connections"
        if key is None:
            return None
        if self._counts[key] >= self._config.connections_per_address:
            return "too many connections of one address"
        if not self._take_handshake(key, now):
            return "too many handshakes of one address"
        return None

    def _take_handshake(self, key: str, now: float) -> bool:
        self._forget_the_quiet(now)
        allowance = self._left.pop(key, None) or TokenBucket(self._rate)
        self._left[key] = allowance
        return allowance.take(now)

    def _forget_the_quiet(self, now: float) -> None:
        """Drop those that have been quiet for so long that all of their allowance is back."""
        left = self._left
        while left:
            allowance = next(iter(left.values()))
            if len(left) < REMEMBERED and not allowance.is_full(now):
                return
            left.popitem(last=False)


def _rate_of(config: NodeConfig) -> Rate:
    per_second = config.handshakes_per_second
    return Rate(max(1.0, BURST_SECONDS * per_second), 1 / per_second)


@lru_cache(maxsize=1024)
def address_key(name: str) -> tuple[str, bool]:
    """What limits count as one remote address, and whether it is this machine's own.

    IPv6 counts by its /64, an IPv4 address that was mapped into IPv6 as that; a name that
    is no IP address (`unix`) is of this machine.
    """
    try:
        address: IPv4Address | IPv6Address = ip_address(name.partition("%")[0])
    except ValueError:
        return name, True
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is None:
            prefix = int(address) >> IPV6_PREFIX_BITS << IPV6_PREFIX_BITS
            return f"{IPv6Address(prefix)}/{IPV6_PREFIX_BITS}", address.is_loopback
        address = address.ipv4_mapped
    return str(address), address.is_loopback


# Addresses whose rate is remembered; beyond it the one that was quiet for longest is not.
MOST_LIMITED_ADDRESSES: Final = 1_024


class Rations:
    """An allowance of `rate` for each remote address; an IPv6 /64 counts as one."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._left: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._left)

    def take(self, name: str, now: float) -> bool:
        """Use one of the address `name` (as `Peer.name`); returns whether there was one."""
        key, _ = address_key(name)
        allowance = self._left.pop(key, None) or TokenBucket(self._rate)
        self._left[key] = allowance  # who came last stands last
        if len(self._left) > MOST_LIMITED_ADDRESSES:
            self._left.popitem(last=False)
        return allowance.take(now)

    def require(self, name: str, now: float) -> None:
        """As `take`; CallRefused with code 19 if there was none."""
        if not self.take(name, now):
            raise CallRefused(ResultCode.OVERLOADED, "asked too often: try again in some seconds")
