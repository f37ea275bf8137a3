"""The links of a simulated federation: each connects two servers by successive sessions."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from tests.node.apps.simulate.federation.plan import NOTICED, REDIALLED
from tests.node.apps.simulate.federation.watch import SessionWatch
from tests.node.apps.simulate.federation.wires import Lane

if TYPE_CHECKING:
    from tests.node.apps.simulate.federation.world import FederationWorld

# Receives the result of a Dial: its code, and the path index of the server that answered.
Answered = Callable[[int, int | None], None]

# Average seconds until a cut link returns: sometimes longer than cards list it.
AWAY: Final = 25.0


class KeptSession:
    """A session of a link.

    `lanes[end]` is what that end sends. `waiting[end]` has its unanswered Dials, by their traces.
    """

    __slots__ = ("dialler", "is_up", "lanes", "waiting", "watch")

    def __init__(self, lanes: tuple[Lane, Lane], dialler: int, watch: SessionWatch) -> None:
        self.lanes = lanes
        self.dialler = dialler
        self.watch = watch
        self.is_up = [True, True]  # as each end sees it
        self.waiting: tuple[dict[bytes, Answered], dict[bytes, Answered]] = ({}, {})

    @property
    def alive(self) -> bool:
        """Whether data still gets through."""
        return self.lanes[0].alive


class LinkEnd(Protocol):
    """A server as its links see it; `number` is the number of the server at the other end."""

    @property
    def is_running(self) -> bool:
        """Whether the server is up."""

    def link_up(self, number: int) -> None:
        """Called when a session begins."""

    def link_down(self, number: int, session: KeptSession) -> None:
        """Called when a session has ended for this end."""


class KeptLink:
    """A link between two servers, either of which can dial; `ends` are in the order of
    `numbers`.
    """

    def __init__(
        self, world: "FederationWorld", numbers: tuple[int, int], ends: tuple[LinkEnd, LinkEnd]
    ) -> None:
        self._world = world
        self._draws = world.plan.draws("link", *numbers)
        self._ends = ends
        self._sessions = 0
        self.numbers = numbers
        self.name = f"{numbers[0]}-{numbers[1]}"
        self.session: KeptSession | None = None

    @property
    def is_open(self) -> bool:
        """Whether both ends have a session."""
        return self.session is not None and self.session.alive

    def open(self) -> None:
        """Begin a session, unless there is one or a server is down."""
        if self.is_open or not all(end.is_running for end in self._ends):
            return
        for end in (0, 1):
            self._noticed(end, self.session)
        world = self._world
        self._sessions += 1
        one, other = (
            Lane(world.agenda, self._draws, world.plan.latency, world.plan.loss) for _ in self._ends
        )
        watch = SessionWatch(f"link {self.name} #{self._sessions}", world.breaches)
        self.session = KeptSession((one, other), self._draws.randrange(2), watch)
        world.note("open", self.name, self._sessions)
        world.last_opened = world.agenda.now
        world.open_links += 1
        for end in (0, 1):
            self._ends[end].link_up(self.numbers[1 - end])

    def cut(self, away: float) -> None:
        """End the session, as if a cable were cut, and redial after some time."""
        session = self.session
        if session is None or not session.alive:
            return
        for end, lane in enumerate(session.lanes):
            lane.cut()
            self._world.agenda.after(self._draws.uniform(0, NOTICED), self._notice(end, session))
        self._world.open_links -= 1
        self._world.note("cut", self.name, self._sessions)
        self.redial(away)

    def redial(self, away: float = 0.0) -> None:
        """Schedule a redial."""
        self._world.agenda.after(away + self._draws.uniform(0.1, REDIALLED), self.open)

    def flap(self) -> None:
        """Cut the link at random times during the faults."""
        world = self._world
        if world.is_calm:
            return
        self.cut(self._draws.expovariate(1 / AWAY) if self._draws.once_in(2) else 0.0)
        world.agenda.after(self._draws.pause(world.plan.cuts / 3600), self.flap)

    def _notice(self, end: int, session: KeptSession) -> Callable[[], None]:
        return lambda: self._noticed(end, session)

    def _noticed(self, end: int, session: KeptSession | None) -> None:
        if session is not None and session.is_up[end]:
            session.is_up[end] = False
            self._ends[end].link_down(self.numbers[1 - end], session)
