"""What a server does with a Dial that came from a neighbour (section 19).

A Dial with a path goes on by its path alone: no table is looked at, so none can send it in a
circle. Whoever judges opens the tunnel; it counts from `begin` to `end`, at both its neighbours.
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
    """The tries to reach `to`: a server, or a home and a node that has its account there. `dialler`
    is the account that dials, None for this server itself.

    Each has `timeout` seconds, a third of those that there are in all. When there is no further
    path, `code` and `hop` are what the last one failed with: 28 if there was no path at all. Where
    nothing leads around what others found, the first try goes by the best path all the same.
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
        """The path to try next; None if there is nothing left to try. One that goes around what is
        avoided, but of the first any: others must not be able to say that all is to be avoided."""
        if not self._left:
            return None
        path = self._finder.path_around(self._to, now, self._dialler)
        if path is None and self._left == ATTEMPTS:
            path = self._finder.path(self._to)
        self._left -= 1
        self._path = path or ()
        return path

    def failed(self, code: int, hop: int | None, now: float) -> None:
        """Record that the Dial by that path was refused by the server at index `hop` of it.

        A `hop` of None stands for this server: 28 its own link is down, 17 the next server did not
        answer although it had the time, 19 its link is full. Code 0: the Dial was accepted, but no
        handshake with the target succeeded.
        """
        self.code, self.hop = code, hop
        named = obstacles(self._path, code, hop)
        blamed = [one for one in named if not self._has_to_be(one)]
        shared = not self._can_be_caused(code, hop)
        for obstacle in blamed:
            if shared:
                self._finder.avoided.add(obstacle, now)
            else:
                route = (self._dialler, self._to)
                self._finder.avoided_by_route.add((route, obstacle), now)
        if not blamed:
            self._left = 0

    def _can_be_caused(self, code: int, hop: int | None) -> bool:
        """Whether the dialling account or a target account can cause this failure alone: the first
        chooses the deadline, which can be too short for the path, the other can be silent."""
        if code == ResultCode.DEADLINE_EXCEEDED:
            return hop is not None or len(self._to) == 2
        return code == ResultCode.ACCEPTED and len(self._to) == 2

    def _has_to_be(self, obstacle: Obstacle) -> bool:
        """Whether all paths have it: the target, its home, or the step between the two. An account
        may log in again at any moment, and its home is there for others."""
        if isinstance(obstacle, tuple):
            return len(self._to) == 2 and self._to[1] in obstacle
        return obstacle in self._to


@dataclass(frozen=True, slots=True)
class TunnelRecord:
    """One tunnel, as the server at `hop` of its path saw it: 0 where an account dialled it to here,
    its home, which wrote the path.

    `trace` is its 16 random bytes, the same at all hops; `length` is how many ids the path has, of
    which the last records nothing; `before` and `after` are the neighbours that it joined; `began`
    and `ended` seconds since 1970; `forward` and `back` the bytes of Data that came from `before`
    and from `after`.
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
    """Who has an account here."""

    def has_account(self, node_id: NodeId) -> bool:
        """Whether a node may have an account here: it may dial."""

    def is_reachable_account(self, node_id: NodeId) -> bool:
        """Whether a node is logged in here, and its connection open."""


class NoAccounts:
    """A server without accounts."""

    def has_account(self, node_id: NodeId) -> bool:
        """Nobody has one."""
        return False

    def is_reachable_account(self, node_id: NodeId) -> bool:
        """Nobody is reachable."""
        return False


@dataclass(frozen=True, slots=True)
class DeliverLocally:
    """The tunnel ends here: its inner connection is for this node. `path` is empty if an account
    of ours dialled it."""

    trace: bytes
    path: Path


@dataclass(frozen=True, slots=True)
class Forward:
    """Open one tunnel to `after` with the same path and trace, and join them. We are at index
    `hop` of the path; `deadline` is a time of the clock of `now`."""

    trace: bytes
    path: Path
    hop: int
    deadline: float

    @property
    def after(self) -> NodeId:
        """The server or account that is next."""
        return self.path[self.hop + 1]


@dataclass(frozen=True, slots=True)
class Originate:
    """An account of ours dialled `to` (a server, or a home and a node): find the path."""

    trace: bytes
    to: Path
    deadline: float


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer with this code, and with the index of this server in the path if it has one."""

    code: ResultCode
    hop: int | None = None


@dataclass(eq=False, slots=True)
class Tunnel:
    """A tunnel that counts at its neighbours, for the account or server where it begins.

    `idle_since` returns when its last Data passed, or when its Dial was sent if that isn't answered
    yet; `close` resets it. The code that opens the tunnel sets both. With None it isn't closed for
    others.
    """

    origin: NodeId
    places: tuple["_Place", ...]
    idle_since: Callable[[], float | None] = lambda: None
    close: Callable[[], None] = lambda: None


# A neighbour, and whether these are the tunnels that lead to it; those of a link count together.
_Place: TypeAlias = tuple[NodeId, bool]

Decision: TypeAlias = DeliverLocally | Forward | Originate | Refuse


def encode_dial(
    trace: bytes, timeout: float, *, path: Path | None = None, to: Path | None = None
) -> bytes:
    """The payload of a Dial that says a path, or to whom; `timeout` in seconds."""
    way = {keys.TO: list(to)} if to is not None else {keys.PATH: list(path or ())}
    return encode({**way, keys.TRACE: trace, keys.DEADLINE_MS: max(0, round(timeout * 1000))})


class Dials:
    """The Dials that come to the server `node_id`.

    `members` are the servers that may be linked, `links` those that are (it changes), `carry`
    those whose tunnels go on to other servers.
    """

    def __init__(
        self,
        node_id: NodeId,
        members: Collection[NodeId],
        links: Collection[NodeId],
        carry: Collection[NodeId],
        accounts: AccountLookup,
    ) -> None:
        self._node_id = node_id
        self._members = members
        self._links = links
        self._carry = carry
        self._accounts = accounts
        self._allowances: dict[NodeId, TokenBucket] = {}
        self._tunnels: dict[_Place, FairSlots[Tunnel]] = {}

    def change(self, members: Collection[NodeId], carry: Collection[NodeId]) -> None:
        """Have these members, and carry for these, from now on; tunnels that are open stay."""
        self._members, self._carry = members, carry

    def judge(self, neighbour: NodeId, payload: bytes, now: float) -> Decision:
        """What to do with a Dial from `neighbour`, the node proven on this connection."""
        try:
            cells = DIAL.read(payload)
        except LbmDecodeError:
            if not self._may_dial(neighbour):
                return Refuse(ResultCode.NOT_AUTHORISED)
            self.allows(neighbour, now)  # it counts as well
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
        """As `judge`, of a Dial that was read: either `path` or `to`, and the time that it has."""
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
            decision = self._pass_on(neighbour, Forward(trace, path, hop, deadline))
        if isinstance(decision, Refuse):
            return decision
        hop = 0 if to else hop
        if not allowed:
            return Refuse(ResultCode.OVERLOADED, hop)
        if deadline <= now and not isinstance(decision, DeliverLocally):
            return Refuse(ResultCode.DEADLINE_EXCEEDED, hop)
        if not self.make_room(neighbour, path, now, before=neighbour):
            return Refuse(ResultCode.OVERLOADED, hop)
        if isinstance(decision, Forward) and not self.make_room(
            decision.after, path, now, before=neighbour, to=True
        ):
            return Refuse(ResultCode.OVERLOADED, hop)
        return decision

    def _may_dial(self, neighbour: NodeId) -> bool:
        return neighbour in self._links or self._accounts.has_account(neighbour)

    def _originate(self, account: NodeId, asked: Originate) -> Decision:
        """An account of ours says whom it wants to reach; the path begins with us."""
        if asked.to == (self._node_id,):
            return DeliverLocally(asked.trace, ())
        if asked.to[0] == self._node_id:
            path = (self._node_id, asked.to[1])
            return self._pass_on(account, Forward(asked.trace, path, 0, asked.deadline))
        return asked

    def _pass_on(self, neighbour: NodeId, way: Forward) -> Decision:
        last = len(way.path) - 1
        if way.hop == last:
            return DeliverLocally(way.trace, way.path)
        after = way.after
        is_last = way.hop + 1 == last
        # A linked server has no account.
        if is_last and after not in self._links and self._accounts.is_reachable_account(after):
            return way
        if after in self._members or not is_last:
            if way.hop and neighbour not in self._carry:
                return Refuse(ResultCode.NOT_AUTHORISED, way.hop)
            return way if after in self._links else Refuse(ResultCode.UNREACHABLE, way.hop)
        parted = self._accounts.has_account(after)
        return Refuse(ResultCode.UNREACHABLE if parted else ResultCode.TOPIC_NOT_FOUND, way.hop)

    def allows(self, neighbour: NodeId, now: float) -> bool:
        """Whether one more Dial is within the rate of a linked server (50/s) or an account (10/s);
        it counts, as does whatever else has this server dial for an account."""
        allowance = self._allowances.get(neighbour)
        if allowance is None:
            if len(self._allowances) >= MOST_DIALLERS:
                self._forget_rested(now)
                if len(self._allowances) >= MOST_DIALLERS:
                    return False
            is_link = neighbour in self._links
            allowance = TokenBucket(DIALS_OF_LINK if is_link else DIALS_OF_ACCOUNT)
            self._allowances[neighbour] = allowance
        return allowance.take(now)

    def _forget_rested(self, now: float) -> None:
        for neighbour, allowance in list(self._allowances.items()):
            if allowance.is_full(now):
                del self._allowances[neighbour]

    def has_room(self, neighbour: NodeId, *, to: bool = False) -> bool:
        """Whether one more tunnel may begin at a linked server (256), or be dialled by an account
        (16), or lead `to` one (16): so that whoever dials it does not keep it from dialling."""
        slots = self._tunnels.get(self._place(neighbour, to))
        limit = TUNNELS_OF_LINK if neighbour in self._links else TUNNELS_OF_ACCOUNT
        return slots is None or len(slots) < limit

    def make_room(
        self,
        neighbour: NodeId,
        path: Path,
        now: float,
        *,
        before: NodeId | None = None,
        to: bool = False,
    ) -> bool:
        """As `has_room`, for a tunnel that `before` dialled along `path`. Where several origins
        share the limit, a tunnel of the origin with the most makes way, or one that is idle."""
        if self.has_room(neighbour, to=to):
            return True
        if neighbour not in self._links and not to:
            return False  # its own limit: it closes one itself
        evicted = self._tunnels[self._place(neighbour, to)].evict_for(
            self._origin(before, path), now
        )
        if evicted is None:
            return False
        self.end(evicted)
        evicted.close()
        return True

    def begin(self, before: NodeId | None, after: NodeId | None, path: Path = ()) -> Tunnel:
        """Count a tunnel that is opened, or whose Dial is accepted, at the neighbours that it has,
        until `end`. None stands for this server itself, at an end of its path."""
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
        """That tunnel is over, or was not opened after all; does nothing the second time."""
        for place in tunnel.places:
            slots = self._tunnels.get(place)
            if slots is not None:
                slots.remove(tunnel)
                if not len(slots):
                    del self._tunnels[place]

    def _place(self, neighbour: NodeId, to: bool) -> _Place:
        return neighbour, to and neighbour not in self._links

    def _origin(self, before: NodeId | None, path: Path) -> NodeId:
        """Return whose share a tunnel takes: that of our account, or of the path's first server."""
        if before is not None and before not in self._links:
            return before
        return path[0] if path else self._node_id


def _idle_since(tunnel: Tunnel) -> float | None:
    return tunnel.idle_since()
