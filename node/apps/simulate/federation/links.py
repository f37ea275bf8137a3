"""The links of a simulated federation: each is kept by two servers, one session after another."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from node.apps.simulate.federation.watch import SessionWatch
from node.apps.simulate.federation.wires import Lane

if TYPE_CHECKING:
    from node.apps.simulate.federation.servers import SimulatedServer
    from node.apps.simulate.federation.world import FederationWorld

# Seconds until an end sees that its session is lost, at most; and until a dialler tries again.
NOTICED: Final = 3.0
REDIALLED: Final = 5.0
# Seconds that a link stays away, on average: some longer than cards remember them.
AWAY: Final = 25.0

# What is told to whoever waits for an answer: a result code, and the index of who gave it.
Answered = Callable[[int, int | None], None]


class KeptSession:
    """A session of a link. `lanes[end]` is what that end sends; `waiting[end]` has the Dials that
    it sent and that are not answered, by their traces."""

    __slots__ = ("dialler", "is_up", "lanes", "waiting", "watch")

    def __init__(self, lanes: tuple[Lane, Lane], dialler: int, watch: SessionWatch) -> None:
        self.lanes = lanes
        self.dialler = dialler
        self.watch = watch
        self.is_up = [True, True]  # as each end sees it
        self.waiting: tuple[dict[bytes, Answered], dict[bytes, Answered]] = ({}, {})

    @property
    def alive(self) -> bool:
        """Whether anything still gets through."""
        return self.lanes[0].alive


class KeptLink:
    """A link of two servers, whichever of them dials."""

    def __init__(
        self, world: "FederationWorld", ends: tuple["SimulatedServer", "SimulatedServer"]
    ) -> None:
        self._world = world
        self._draws = world.plan.draws("link", ends[0].number, ends[1].number)
        self._sessions = 0
        self.ends = ends
        self.name = f"{ends[0].number}-{ends[1].number}"
        self.session: KeptSession | None = None
        self.sent = 0  # bytes, of sessions that are over

    @property
    def is_open(self) -> bool:
        """Whether a session of both ends is up."""
        return self.session is not None and self.session.alive

    def open(self) -> None:
        """Begin a session, unless there is one or one of the ends is down."""
        if self.is_open or not all(end.is_running for end in self.ends):
            return
        for end in (0, 1):
            self._noticed(end, self.session)
        plan, agenda = self._world.plan, self._world.agenda
        self._sessions += 1
        lanes = tuple(Lane(agenda, self._draws, plan.latency, plan.loss) for _ in self.ends)
        watch = SessionWatch(f"link {self.name} #{self._sessions}", self._world.breaches)
        self.session = KeptSession((lanes[0], lanes[1]), self._draws.randrange(2), watch)
        self._world.note("open", self.name, self._sessions)
        self._world.last_opened = agenda.now
        for end in (0, 1):
            self.ends[end].link_up(self, end)

    def cut(self, away: float) -> None:
        """End the session, as somebody who cuts a cable does; dial again after a while."""
        session = self.session
        if session is None or not session.alive:
            return
        for end, lane in enumerate(session.lanes):
            lane.cut()
            self.sent += lane.bytes
            self._world.agenda.after(self._draws.uniform(0, NOTICED), self._later(end, session))
        self._world.note("cut", self.name, self._sessions)
        self.redial(away)

    def redial(self, away: float = 0.0) -> None:
        """Dial before long."""
        self._world.agenda.after(away + self._draws.uniform(0.1, REDIALLED), self.open)

    def flap(self) -> None:
        """Cut it now and then, as long as there are faults."""
        plan = self._world.plan
        if not plan.cuts or self._world.is_calm:
            return
        self.cut(self._draws.expovariate(1 / AWAY) if self._draws.once_in(2) else 0.0)
        self._world.agenda.after(self._draws.pause(plan.cuts / 3600), self.flap)

    def _later(self, end: int, session: KeptSession) -> Callable[[], None]:
        return lambda: self._noticed(end, session)

    def _noticed(self, end: int, session: KeptSession | None) -> None:
        if session is not None and session.is_up[end]:
            session.is_up[end] = False
            self.ends[end].link_down(self, end, session)

    @property
    def bytes(self) -> int:
        """All that both ends sent so far, of cards and Dials."""
        session = self.session
        return self.sent + (sum(lane.bytes for lane in session.lanes) if self.is_open and session else 0)
