"""`Admission`: whether to accept a connection, by its address alone, before any cryptography; and
rate limits by address.

Both the cost of each address and the memory for all are bounded. Time is passed in as `now`.
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

# The burst of handshakes of an address, in seconds of its rate.
BURST_SECONDS: Final = 2.0
# Addresses whose rate is remembered; the least recent is forgotten. An attacker with more addresses
# is limited by `half_open` and `max_connections`.
REMEMBERED: Final = 16_384
# As `REMEMBERED`, of a PerAddressLimiter.
MOST_LIMITED_ADDRESSES: Final = 1_024
# The owner of an IPv6 address usually has its whole /64.
IPV6_PREFIX_BITS: Final = 64


class Admission:
    """The limits of connections to one node. `refused` counts refused connections by reason."""

    __slots__ = ("_config", "_counts", "_inside", "_left", "_rate", "refused")

    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        self._rate = _rate_of(config)
        self._inside: dict[Hashable, str | None] = {}
        self._counts: Counter[str] = Counter()
        # The most recent is the last.
        self._left: OrderedDict[str, TokenBucket] = OrderedDict()
        self.refused: Counter[str] = Counter()

    def change(self, config: NodeConfig) -> None:
        """Use new limits, keeping the current connections. The handshake rates start afresh."""
        self._config = config
        self._rate = _rate_of(config)
        self._left.clear()

    def refusal(self, name: str, now: float) -> str | None:
        """Return why a connection from `name` is refused, or None if it is accepted, which uses one
        handshake of the address. `now` is seconds of a monotonic clock."""
        reason = self._refusal(self._key(name), now)
        if reason is not None:
            self.refused[reason] += 1
        return reason

    def entered(self, connection: Hashable, name: str) -> None:
        """Count a connection from `name` until `left`."""
        key = self._inside[connection] = self._key(name)
        if key is not None:
            self._counts[key] += 1

    def left(self, connection: Hashable) -> None:
        """Stop counting a connection, if it is counted."""
        key = self._inside.pop(connection, None)
        if key is not None:
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]

    def moved(self, old: Hashable, new: Hashable) -> None:
        """Count the connection `new` in place of `old`."""
        if old in self._inside:
            self.left(new)
            self._inside[new] = self._inside.pop(old)

    def __len__(self) -> int:
        """The number of counted connections."""
        return len(self._inside)

    def _key(self, name: str) -> str | None:
        """Return the key of an address, or None if limits by address don't apply."""
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
        """Forget the addresses whose full rate is available again."""
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
    """Return the key of a remote address for limits, and whether it is local.

    An IPv6 address counts by its /64, a mapped IPv4 address as IPv4; a name that isn't an IP
    address (`unix`) is local.
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


class PerAddressLimiter:
    """Rate-limits each remote address separately. Addresses in the same IPv6 /64 share one
    limit."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._left: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._left)

    def take(self, name: str, now: float) -> bool:
        """Take one token for the address `name` (as `Peer.name`); return False if its limit is
        exceeded.
        """
        key, _ = address_key(name)
        allowance = self._left.pop(key, None) or TokenBucket(self._rate)
        self._left[key] = allowance  # the most recent is the last
        if len(self._left) > MOST_LIMITED_ADDRESSES:
            self._left.popitem(last=False)
        return allowance.take(now)

    def require(self, name: str, now: float) -> None:
        """Take one token for an address.

        Raises:
            CallRefused: its limit is exceeded (code 19).
        """
        if not self.take(name, now):
            raise CallRefused(
                ResultCode.OVERLOADED, "rate limit exceeded; try again in a few seconds"
            )
