"""`Dials` decides on Dials from neighbours; `Attempts` makes this server's own Dials, each along
another path (docs/protocol.md section 19).

A Dial with a path is forwarded along that path only, without a routing table, so it cannot loop. A
tunnel counts for both its neighbours from `begin` to `end`.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from parley._crypto.identity import NodeId
from parley._lbm import keys
from parley._lbm.codec import encode
from parley._lbm.errors import LbmDecodeError
from parley._node.fair_slots import FairSlots
from parley._node.federation.limits import (
    ATTEMPTS,
    DIALS_OF_ACCOUNT,
    DIALS_OF_LINK,
    HOP_ALLOWANCE,
    LONGEST_DIAL,
    MOST_DIALLERS,
    TUNNEL_EVICTABLE,
    TUNNELS_OF_ACCOUNT,
    TUNNELS_OF_LINK,
)
from parley._node.federation.paths import Obstacle, Path, PathFinder, obstacles
from parley._node.protocol.codes import ResultCode
from parley._node.protocol.event_types import DIAL
from parley._node.protocol.rate_limit import TokenBucket


class Attempts:
    """Up to three attempts to reach `to`, a server or [home, node], each along another path.

    Each attempt gets a third of `timeout`. `dialler` is the dialling account, or None for this
    server. If no path is left, `code` and `hop` are those of the last failure; `code` is 28 if
    there was no path. The first attempt uses the best path even if all paths are to be avoided.
    """

    __slots__ = ("_dialler", "_finder", "_left", "_path", "_to", "code", "hop", "timeout")

    def __init__(
        self,
        finder: PathFinder,
        to: Sequence[NodeId],
        timeout: float,
        dialler: NodeId | None = None,
    ) -> None:
        self._finder = finder
        self._to = tuple(to)
        self._dialler = dialler
        self._left = ATTEMPTS
        self._path: Path = ()
        self.timeout = timeout / ATTEMPTS
        self.code: int = ResultCode.UNREACHABLE
        self.hop: int | None = 0

    def next(self, now: float) -> Path | None:
        """Return the next path, or None.

        It avoids obstacles, except that the first path may contain any: other servers must not be
        able to rule out all paths.
        """
        if not self._left:
            return None
        path = self._finder.path_around(self._to, now, self._dialler)
        if path is None and self._left == ATTEMPTS:
            path = self._finder.path(self._to)
        self._left -= 1
        self._path = path or ()
        return path

    def failed(self, code: int, hop: int | None, now: float) -> None:
        """Record that the server at index `hop` of the last path refused the Dial.

        A `hop` of None is this server: 28 its link is down, 17 the next server didn't answer in
        time, 19 its link is full. Code 0: the Dial was accepted but the handshake failed.
        """
        self.code, self.hop = code, hop
        named = obstacles(self._path, code, hop)
        blamed = [one for one in named if not self._is_unavoidable(one)]
        shared = not self._can_be_provoked(code, hop)
        for obstacle in blamed:
            if shared:
                self._finder.avoided.add(obstacle, now)
            else:
                route = (self._dialler, self._to)
                self._finder.avoided_by_route.add((route, obstacle), now)
        if not blamed:
            self._left = 0

    def _can_be_provoked(self, code: int, hop: int | None) -> bool:
        """Return whether the dialling account or the target account alone can cause this failure.

        The former can choose too short a deadline, and the latter can fail to respond.
        """
        if code == ResultCode.DEADLINE_EXCEEDED:
            return hop is not None or len(self._to) == 2
        return code == ResultCode.ACCEPTED and len(self._to) == 2

    def _is_unavoidable(self, obstacle: Obstacle) -> bool:
        """Return whether all paths contain the obstacle: the target, its home, or the hop between
        them.

        Other nodes use the home, and an account may log in again at any time.
        """
        if isinstance(obstacle, tuple):
            return len(self._to) == 2 and self._to[1] in obstacle
        return obstacle in self._to


@dataclass(frozen=True, slots=True)
class TunnelRecord:
    """A tunnel as recorded by the server at index `hop` of its path; 0 if an account dialled it
    there.

    Attributes: trace: 16 random bytes, the same at all hops. length: the number of IDs in the path;
    the last node records nothing. before, after: the neighbours whose tunnels were spliced. began,
    ended: seconds since 1970. forward, back: bytes of Data from `before` and from `after`.
    """

    trace: bytes
    hop: int
    length: int
    before: NodeId
    after: NodeId
    began: float
    ended: float
    forward: int
    back: int


class AccountLookup(Protocol):
    """Looks up the accounts of this server."""

    def has_account(self, node_id: NodeId) -> bool:
        """Return whether a node may have an account here and dial."""

    def is_reachable_account(self, node_id: NodeId) -> bool:
        """Return whether a node is logged in here and connected."""


class NoAccounts:
    """A server without accounts."""

    def has_account(self, node_id: NodeId) -> bool:
        """Return False."""
        return False

    def is_reachable_account(self, node_id: NodeId) -> bool:
        """Return False."""
        return False


@dataclass(frozen=True, slots=True)
class DeliverLocally:
    """Accept the tunnel here. `path` is empty if an account of this server dialled it."""

    trace: bytes
    path: Path


@dataclass(frozen=True, slots=True)
class Forward:
    """Open a tunnel to `after` with the same path and trace, and splice the two.

    This server is at index `hop` of the path. `deadline` is a time by the clock of `now`.
    """

    trace: bytes
    path: Path
    hop: int
    deadline: float

    @property
    def after(self) -> NodeId:
        """The next server or account."""
        return self.path[self.hop + 1]


@dataclass(frozen=True, slots=True)
class Originate:
    """Find a path for an account of this server that dialled `to`, a server or [home, node]."""

    trace: bytes
    to: Path
    deadline: float


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer with this code, and with this server's index in the path, if any."""

    code: ResultCode
    hop: int | None = None


@dataclass(eq=False, slots=True)
class Tunnel:
    """A tunnel that counts for its neighbours, and for its origin: an account or server.

    `idle_since` returns the time of its last Data, or of its Dial if that is unanswered; None
    prevents eviction. `close` resets the tunnel.
    """

    origin: NodeId
    places: tuple["_Place", ...]
    idle_since: Callable[[], float | None] = lambda: None
    close: Callable[[], None] = lambda: None

    def allow_eviction(
        self, idle_since: Callable[[], float | None], close: Callable[[], None]
    ) -> None:
        """Allow the tunnel to be evicted; replaces earlier arguments."""
        self.idle_since, self.close = idle_since, close


# A neighbour, and whether the tunnels lead to it. For links, both directions count together.
_Place: TypeAlias = tuple[NodeId, bool]

Decision: TypeAlias = DeliverLocally | Forward | Originate | Refuse


def encode_dial(
    trace: bytes, timeout: float, *, path: Path | None = None, to: Path | None = None
) -> bytes:
    """Return the payload of a Dial with a `path` or a target `to`; `timeout` is seconds."""
    route = {keys.TO: list(to)} if to is not None else {keys.PATH: list(path or ())}
    return encode({**route, keys.TRACE: trace, keys.DEADLINE_MS: max(0, round(timeout * 1000))})


class Dials:
    """The Dials received by the server `node_id`.

    `members` are the servers that may be linked, `links` (which changes) those that are linked.
    Tunnels from servers in `carry` are relayed to other servers, and those to nodes that have
    ended by `has_ended` are refused (section 22).
    """

    def __init__(
        self,
        node_id: NodeId,
        members: Collection[NodeId],
        links: Collection[NodeId],
        carry: Collection[NodeId],
        accounts: AccountLookup,
        has_ended: Callable[[NodeId], bool] = lambda node_id: False,
    ) -> None:
        self._node_id = node_id
        self._members = members
        self._links = links
        self._carry = carry
        self._accounts = accounts
        self._has_ended = has_ended
        self._rates: dict[NodeId, TokenBucket] = {}
        self._tunnels: dict[_Place, FairSlots[Tunnel]] = {}

    def change(self, members: Collection[NodeId], carry: Collection[NodeId]) -> None:
        """Replace `members` and `carry`; open tunnels stay."""
        self._members, self._carry = members, carry

    def judge(self, neighbour: NodeId, payload: bytes, now: float) -> Decision:
        """Decide on a Dial from the authenticated node `neighbour`."""
        try:
            cells = DIAL.read(payload)
        except LbmDecodeError:
            if not self._may_dial(neighbour):
                return Refuse(ResultCode.NOT_AUTHORISED)
            self.allows(neighbour, now)  # count it towards the rate limit
            return Refuse(ResultCode.MALFORMED)
        to = tuple(map(NodeId, cells.get(keys.TO, ())))
        path = tuple(map(NodeId, cells.get(keys.PATH, ())))
        until = now + min(cells[keys.DEADLINE_MS] / 1000, LONGEST_DIAL)
        return self.decide(neighbour, cells[keys.TRACE], until, now, path=path, to=to)

    def decide(
        self,
        neighbour: NodeId,
        trace: bytes,
        until: float,
        now: float,
        *,
        path: Path = (),
        to: Path = (),
    ) -> Decision:
        """Decide on a parsed Dial with either `path` or `to`, valid until `until`."""
        if not self._may_dial(neighbour):
            return Refuse(ResultCode.NOT_AUTHORISED)
        is_link, allowed = neighbour in self._links, self.allows(neighbour, now)
        ids = to or path
        if len(set(ids)) != len(ids):
            return Refuse(ResultCode.MALFORMED)
        deadline = until - HOP_ALLOWANCE
        if to:
            if is_link:
                return Refuse(ResultCode.NOT_AUTHORISED)
            decision = self._originate(neighbour, Originate(trace, to, deadline))
        else:
            if self._node_id not in path[1:]:
                return Refuse(ResultCode.MALFORMED)
            hop = path.index(self._node_id)
            if not is_link or path[hop - 1] != neighbour:
                return Refuse(ResultCode.NOT_AUTHORISED, hop)
            decision = self._forward(neighbour, Forward(trace, path, hop, deadline))
        if isinstance(decision, Refuse):
            return decision
        hop = 0 if to else hop
        if not allowed:
            return Refuse(ResultCode.OVERLOADED, hop)
        if deadline <= now and not isinstance(decision, DeliverLocally):
            return Refuse(ResultCode.DEADLINE_EXCEEDED, hop)
        if not self.reserve_capacity(neighbour, path, now, before=neighbour):
            return Refuse(ResultCode.OVERLOADED, hop)
        if isinstance(decision, Forward) and not self.reserve_capacity(
            decision.after, path, now, before=neighbour, to=True
        ):
            return Refuse(ResultCode.OVERLOADED, hop)
        return decision

    def _may_dial(self, neighbour: NodeId) -> bool:
        return neighbour in self._links or self._accounts.has_account(neighbour)

    def _originate(self, account: NodeId, asked: Originate) -> Decision:
        """Decide on a Dial of an account; its path begins with this server."""
        if asked.to == (self._node_id,):
            return DeliverLocally(asked.trace, ())
        if self._has_ended(asked.to[-1]):
            return Refuse(ResultCode.TOPIC_NOT_FOUND, 0)
        if asked.to[0] == self._node_id:
            path = (self._node_id, asked.to[1])
            return self._forward(account, Forward(asked.trace, path, 0, asked.deadline))
        return asked

    def _forward(self, neighbour: NodeId, forward: Forward) -> Decision:
        last = len(forward.path) - 1
        if forward.hop == last:
            return DeliverLocally(forward.trace, forward.path)
        if self._has_ended(forward.path[-1]):
            return Refuse(ResultCode.TOPIC_NOT_FOUND, forward.hop)
        after = forward.after
        is_last = forward.hop + 1 == last
        # A linked server has no account.
        if is_last and after not in self._links and self._accounts.is_reachable_account(after):
            return forward
        if after in self._members or not is_last:
            if forward.hop and neighbour not in self._carry:
                return Refuse(ResultCode.NOT_AUTHORISED, forward.hop)
            return forward if after in self._links else Refuse(ResultCode.UNREACHABLE, forward.hop)
        parted = self._accounts.has_account(after)
        return Refuse(ResultCode.UNREACHABLE if parted else ResultCode.TOPIC_NOT_FOUND, forward.hop)

    def allows(self, neighbour: NodeId, now: float) -> bool:
        """Count a Dial, or another request that makes this server dial; return False above the rate
        limit.

        The limit is 50/s for a linked server and 10/s for an account.
        """
        rate = self._rates.get(neighbour)
        if rate is None:
            if len(self._rates) >= MOST_DIALLERS:
                self._forget_idle(now)
                if len(self._rates) >= MOST_DIALLERS:
                    return False
            is_link = neighbour in self._links
            rate = TokenBucket(DIALS_OF_LINK if is_link else DIALS_OF_ACCOUNT)
            self._rates[neighbour] = rate
        return rate.take(now)

    def _forget_idle(self, now: float) -> None:
        for neighbour, rate in list(self._rates.items()):
            if rate.is_full(now):
                del self._rates[neighbour]

    def has_capacity(self, neighbour: NodeId, *, to: bool = False) -> bool:
        """Return whether a neighbour is below its limit of tunnels.

        The limits are 256 for a linked server, 16 dialled by an account, and 16 that lead `to` an
        account. The last is separate so that incoming tunnels don't prevent it from dialling.
        """
        slots = self._tunnels.get(self._place(neighbour, to))
        limit = TUNNELS_OF_LINK if neighbour in self._links else TUNNELS_OF_ACCOUNT
        return slots is None or len(slots) < limit

    def reserve_capacity(
        self,
        neighbour: NodeId,
        path: Path,
        now: float,
        *,
        before: NodeId | None = None,
        to: bool = False,
    ) -> bool:
        """Return whether a neighbour can get another tunnel, dialled by `before` along `path`.

        If several origins share the limit, an idle tunnel, or a tunnel of the origin with the most,
        is evicted if necessary.
        """
        if self.has_capacity(neighbour, to=to):
            return True
        if neighbour not in self._links and not to:
            return False  # the limit is not shared
        evicted = self._tunnels[self._place(neighbour, to)].evict_for(
            self._origin(before, path), now
        )
        if evicted is None:
            return False
        self.end(evicted)
        evicted.close()
        return True

    def begin(self, before: NodeId | None, after: NodeId | None, path: Path = ()) -> Tunnel:
        """Count an opened or accepted tunnel for its neighbours, until `end`.

        None stands for this server, at an end of the path.
        """
        places = []
        if before is not None:
            places.append(self._place(before, to=False))
        if after is not None:
            places.append(self._place(after, to=True))
        tunnel = Tunnel(self._origin(before, path), tuple(places))
        for place in places:
            if place not in self._tunnels:
                self._tunnels[place] = FairSlots(_idle_since, TUNNEL_EVICTABLE)
            self._tunnels[place].add(tunnel, tunnel.origin)
        return tunnel

    def end(self, tunnel: Tunnel) -> None:
        """Stop counting a tunnel, if it is counted."""
        for place in tunnel.places:
            slots = self._tunnels.get(place)
            if slots is not None:
                slots.remove(tunnel)
                if not len(slots):
                    del self._tunnels[place]

    def _place(self, neighbour: NodeId, to: bool) -> _Place:
        return neighbour, to and neighbour not in self._links

    def _origin(self, before: NodeId | None, path: Path) -> NodeId:
        """Return the origin for which a tunnel counts: an account of this server, or the first
        server of its path.
        """
        if before is not None and before not in self._links:
            return before
        return path[0] if path else self._node_id


def _idle_since(tunnel: Tunnel) -> float | None:
    return tunnel.idle_since()
