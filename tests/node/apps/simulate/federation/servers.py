"""A simulated server: the core of a real server, with its own clock, that can crash."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from parley._crypto.identity import NodeId
from parley._node.federation.card_exchange import CardEvent
from parley._node.federation.cards import Card
from parley._node.federation.dials import DeliverLocally, Forward, Refuse, encode_dial
from parley._node.federation.directory import Directory
from parley._node.federation.paths import Path
from parley._node.protocol.codes import CARDS, ResultCode
from parley._node.protocol.errors import RemoteProtocolError
from tests.node.apps.simulate.federation.links import Answered, KeptLink, KeptSession
from tests.node.apps.simulate.federation.plan import Misbehaviour
from tests.node.apps.simulate.federation.tunnels import USED, SimulatedTunnel

if TYPE_CHECKING:
    from tests.node.apps.simulate.federation.world import FederationWorld

# 2026-01-01 00:00 UTC, in ms.
EPOCH_MS: Final = 1_767_225_600_000
# Average seconds until a crashed server restarts.
DOWN: Final = 20.0
# Bytes of a Dial's answer and of the opening of a stream.
_SHORT: Final = 40


class Neighbour(NamedTuple):
    """A linked server; `end` is its end of the link."""

    server: "SimulatedServer"
    link: KeptLink
    end: int


class SimulatedServer:
    """A server. `neighbours` has its linked servers by number, and `carries` those for which it
    relays tunnels.
    """

    def __init__(self, world: "FederationWorld", number: int, carries: frozenset[int]) -> None:
        self._world = world
        self._draws = world.plan.draws("server", number)
        self.number = number
        self.node_id = world.node_ids[number]
        self.carries = carries
        self.neighbours: dict[int, Neighbour] = {}
        self.directory: Directory | None = None
        self._boots = 0
        self._clock = 0.0  # seconds by which its clock is ahead
        self._wake_at = float("inf")
        self._heard: list[Card] = []
        self._kept: dict[
            int, bytes
        ] = {}  # the first cards sent to each neighbour, if it resends them

    @property
    def is_running(self) -> bool:
        """Whether it is up."""
        return self.directory is not None

    @property
    def core(self) -> Directory:
        """The core of a running server."""
        assert self.directory is not None
        return self.directory

    # Lifecycle.

    def start(self) -> None:
        """Start with only its key, and dial its links."""
        if self.directory is not None:
            return
        world = self._world
        self._boots += 1
        self._clock = self._draws.uniform(0, world.plan.clocks)
        self._wake_at = float("inf")
        self._heard.clear()
        self.directory = Directory(
            world.identities[self.number],
            world.node_ids,
            carry=[world.node_ids[one] for one in sorted(self.carries)],
            read=self._read,
        )
        world.note("start", self.number, self._boots)
        if world.errs(self.number, Misbehaviour.LIE):
            strangers = set(world.numbers.values()) - {self.number, *self.neighbours}
            for stranger in sorted(strangers)[:1]:
                self.core.link_up(world.node_ids[stranger], *self._now())
        for near in self.neighbours.values():
            near.link.redial()

    def die(self) -> None:
        """Crash: lose all state and links."""
        if self.directory is None:
            return
        self._world.note("die", self.number, self._boots)
        self.directory = None
        self._world.spread.restarted(self.number)
        for near in self.neighbours.values():
            near.link.cut(0.0)
        self._world.agenda.after(1 + self._draws.expovariate(1 / DOWN), self.start)

    def stumble(self) -> None:
        """Crash at random times during the faults."""
        world = self._world
        if not world.is_calm:
            self.die()
            world.agenda.after(self._draws.pause(world.plan.crashes / 3600), self.stumble)

    def _now(self) -> tuple[float, int]:
        now = self._world.agenda.now
        return now, EPOCH_MS + round((now + self._clock) * 1000)

    # Cards.

    def link_up(self, number: int) -> None:
        """Handle a new session of a link; the dialling end opens the stream of cards."""
        peer, link, end = self.neighbours[number]
        session = link.session
        assert session is not None
        self.core.link_up(peer.node_id, *self._now())
        if session.dialler == end:
            self.core.begin_exchange(peer.node_id)

            def opened() -> None:
                peer.core.begin_exchange(self.node_id)
                peer.act()

            session.lanes[end].send(_SHORT, opened)
        self.act()

    def link_down(self, number: int, session: KeptSession) -> None:
        """Handle the end of a session at this end."""
        peer, _, end = self.neighbours[number]
        if self.directory is not None:
            self.core.link_down(peer.node_id, *self._now())
            self.act()
        waiting = list(session.waiting[end].values())
        session.waiting[end].clear()
        for answered in waiting:
            answered(ResultCode.UNREACHABLE, None)

    def act(self) -> None:
        """Send all pending events, and schedule the core's next deadline."""
        core, world = self.core, self._world
        for neighbour in core.ready(world.agenda.now):
            self._send(self.neighbours[world.numbers[neighbour]])
        own = core.cards.get(self.node_id)
        if own is not None:
            world.spread.made(own, self.number, world.agenda.now, is_whole=world.is_whole)
        deadline = core.next_deadline(world.agenda.now)
        if deadline is not None and deadline < self._wake_at:
            self._wake_at = deadline
            boots = self._boots
            world.agenda.at(deadline, lambda: self._wake(deadline, boots))

    def _wake(self, deadline: float, boots: int) -> None:
        if self.directory is not None and boots == self._boots and deadline == self._wake_at:
            self._wake_at = float("inf")
            self.core.handle_deadline(*self._now())
            self.act()

    def _send(self, near: Neighbour) -> None:
        session = near.link.session
        if session is None or not session.is_up[near.end] or not session.alive:
            return
        if not session.lanes[near.end].is_free:
            self._send_later(near, session)
            return
        now, _ = self._now()
        event = self.core.next_event(near.server.node_id, now)
        if event is None:
            return
        self._put(near, session, event)
        if event.subcategory == CARDS:
            self._err(near, session, event)
        if near.server.node_id in self.core.ready(now):
            self._send_later(near, session)

    def _err(self, near: Neighbour, session: KeptSession, event: CardEvent) -> None:
        """Resend cards that have been sent, if this is the fault of the server."""
        if self._world.errs(self.number, Misbehaviour.TWICE):
            self._put(near, session, event)
        if self._world.errs(self.number, Misbehaviour.OLD):
            first = self._kept.setdefault(near.server.number, event.payload)
            if first is not event.payload:
                self._put(near, session, CardEvent(CARDS, first))

    def _send_later(self, near: Neighbour, session: KeptSession) -> None:
        """Call `act` again when the current event has been sent."""
        lane = session.lanes[near.end]
        if lane.is_asked:
            return
        lane.is_asked = True

        def left() -> None:
            lane.is_asked = False
            if self.directory is not None and near.link.session is session:
                self._send(near)

        self._world.agenda.at(lane.free_at, left)

    def _put(self, near: Neighbour, session: KeptSession, event: CardEvent) -> None:
        cards = self._world.sent(session.watch, near.end, event)

        def arrived() -> None:
            for origin, number in cards:
                session.watch.received(1 - near.end, origin, number)
            near.server.receive(self.number, event)

        session.lanes[near.end].send(len(event.payload), arrived)

    def receive(self, number: int, event: CardEvent) -> None:
        """Handle an event on the stream of cards from a neighbour."""
        peer, link, _ = self.neighbours[number]
        world = self._world
        if event.subcategory == CARDS and world.errs(self.number, Misbehaviour.DEAF):
            return
        try:
            self.core.receive(peer.node_id, event.subcategory, event.payload, *self._now())
        except RemoteProtocolError as error:
            world.breaches.add("cards", f"link {link.name}: server {number} broke a rule: {error}")
            link.cut(0.0)
        else:
            self.act()
            for card in self._heard:
                if self.core.cards.get(card.origin) is card:
                    world.spread.taken(card, self.number, world.agenda.now)
        self._heard.clear()

    def _read(self, encoded: bytes) -> Card:
        card = self._world.read(encoded)
        self._heard.append(card)
        return card

    # Dials.

    def reach(self, target: NodeId, done: Answered) -> None:
        """Try to open a tunnel to a server along up to three paths; `done` receives the result."""
        attempts = self.core.attempts((target,), self._world.dial_timeout)
        boots = self._boots

        def go_on() -> None:
            if self.directory is None or boots != self._boots:
                return  # no longer waiting
            path = attempts.next(self._world.agenda.now)
            if path is None:
                done(attempts.code, attempts.hop)
            else:
                self.dial(path, attempts.timeout, came)

        def came(code: int, hop: int | None) -> None:
            if code:
                attempts.failed(code, hop, self._world.agenda.now)
                go_on()
            else:
                done(code, hop)

        go_on()

    def dial(self, path: Path, timeout: float, done: Answered) -> None:
        """Dial along a path; `done` receives the answer, or that none came in `timeout` seconds."""
        world = self._world
        tunnel = SimulatedTunnel(world, path)
        world.dials.began(tunnel.trace, self.number)

        def answered(code: int, hop: int | None) -> None:
            world.note("answer", self.number, code, tunnel.trace)
            tunnel.end_later(0.0 if code else world.draws.expovariate(1 / USED))
            done(code, hop)

        tunnel.joined(self.core.dials, None, path[1])
        answer = world.once(timeout, answered, ResultCode.DEADLINE_EXCEEDED, None)
        self._forward(tunnel, 0, path[1], timeout, answer)

    def _forward(
        self, tunnel: SimulatedTunnel, hop: int, after: NodeId, timeout: float, answered: Answered
    ) -> None:
        """Forward a Dial to a neighbour; this server is at index `hop` of the path."""
        world = self._world
        near = self.neighbours.get(world.numbers[after])
        session = None if near is None else near.link.session
        if near is None or session is None or not session.is_up[near.end]:
            answered(ResultCode.UNREACHABLE, hop)
            return
        payload = encode_dial(tunnel.trace, timeout, path=tunnel.path)
        world.dials.forwarded(tunnel.trace, self.number)
        world.note("dial", self.number, near.server.number, payload)
        waiting, lanes, end = session.waiting[near.end], session.lanes, near.end

        def reply(code: int, at: int | None) -> None:
            """Return the neighbour's answer to the sender."""

            def arrived() -> None:
                if waiting.pop(tunnel.trace, None) is not None:
                    answered(code, at)

            lanes[1 - end].send(_SHORT, arrived)

        # If the session is lost, this server answers.
        waiting[tunnel.trace] = lambda code, _: answered(code, hop)
        lanes[end].send(
            len(payload), lambda: near.server.dialled(tunnel, self.node_id, payload, reply)
        )

    def dialled(
        self, tunnel: SimulatedTunnel, before: NodeId, payload: bytes, reply: Answered
    ) -> None:
        """Handle a Dial from a neighbour."""
        world = self._world
        world.dials.arrived(tunnel.trace, self.number)
        match self.core.dials.judge(before, payload, world.agenda.now):
            case Refuse(code, hop):
                reply(code, hop)
            case DeliverLocally(_, path):
                tunnel.joined(self.core.dials, before, None)
                reply(0, len(path) - 1)
            case Forward() as way:
                tunnel.joined(self.core.dials, before, way.after)
                left = way.deadline - world.agenda.now
                answer = world.once(left, reply, ResultCode.DEADLINE_EXCEEDED, way.hop)
                for after in self._next(before, way.after):
                    self._forward(tunnel, way.hop, after, left, answer)

    def _next(self, before: NodeId, after: NodeId) -> Sequence[NodeId]:
        """Return the next servers for a Dial: `after` only, unless the server is faulty."""
        if self._world.errs(self.number, Misbehaviour.BACK):
            return (before,)
        if self._world.errs(self.number, Misbehaviour.FORK):
            near = (one.server.node_id for one in self.neighbours.values())
            return (after, *[one for one in near if one not in (before, after)][:1])
        return (after,)
