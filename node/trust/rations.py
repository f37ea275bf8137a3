"""How often remote addresses may do something, each for itself; bounded in what it remembers."""

from collections import OrderedDict
from typing import Final

from parley._node.errors import CallRefused
from parley._node.protocol.codes import ResultCode
from parley._node.protocol.rate_limit import Rate, TokenBucket
from parley._node.trust.admission import address_key

# Addresses whose rate is remembered; beyond it the one that was quiet for longest is not.
REMEMBERED: Final = 1_024


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
        if len(self._left) > REMEMBERED:
            self._left.popitem(last=False)
        return allowance.take(now)

    def require(self, name: str, now: float) -> None:
        """As `take`; CallRefused with code 19 if there was none."""
        if not self.take(name, now):
            raise CallRefused(ResultCode.OVERLOADED, "asked too often: try again in some seconds")
