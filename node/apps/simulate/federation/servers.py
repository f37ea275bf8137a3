"""A simulated server: the pure core of a real one, with a clock of its own, that may die."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from crypto.identity import NodeId
from node.apps.simulate.federation.links import Answered, KeptLink, KeptSession
from node.apps.simulate.federation.plan import Misbehaviour
from node.apps.simulate.federation.tunnels import SimulatedTunnel
from node.federation.card import Card
from node.federation.dials import Here, Onward, Refused, encode_dial
from node.federation.directory import Directory
from node.federation.exchange import CardEvent
from node.protocol.codes import CARDS, ResultCode
from node.protocol.errors import RemoteProtocolError

if TYPE_CHECKING:
    from node.apps.simulate.federation.world import FederationWorld

# 2026-01-01 00:00 UTC, in ms.
EPOCH_MS: Final = 1_767_225_600_000
# Seconds that a server is away after it died, on average.
DOWN: Final = 20.0
# Seconds for a Dial, by up to three paths.
DIAL_TIMEOUT: Final = 15.0
# Bytes of a Dial's answer, and of the opening of a stream.
_SHORT: Final = 40


class SimulatedServer:
    """Server `number`. `neighbours` are those that it has a link with."""

    def __init__(self, world: "FederationWorld", number: int, neighbours: Iterable[int]) -> None:
        plan = world.plan
        self._world = world
        self._draws = plan.draws("server", number)
        self.number = number
        self.identity = plan.identity(number)
        self.node_id = self.identity.node_id
        self.carries = plan.carries(number, neighbours)
        self.links: dict[int, KeptLink] = {}
        self.directory: Directory | None = None
        self.boots = 0
        self.clock = 0.0  # seconds by which it is ahead
        self._wake_at = float("inf")
        self._heard: list[Card] = []
        self._kept: dict[int, bytes] = {}  # the first cards sent to each neighbour, by one that errs

    @property
    def is_running(self) -> bool:
        """Whether it is up."""
        return self.directory is not None

    @property
    def core(self) -> Directory:
        """Its core; it is up."""
        assert self.directory is not None
        return self.directory

    # Its life.

    def start(self) -> None:
        """Begin with nothing but its key, and have its links dialled."""
        if self.directory is not None:
            return
        world = self._world
        self.boots += 1
        self.clock = self._draws.uniform(0, world.plan.clocks)
        self._wake_at = float("inf")
        self.directory = Directory(
            self.identity,
            world.node_ids,
            carry=[world.node_ids[one] for one in sorted(self.carries)],
            read=self._read,
        )
        world.note("start", self.number, self.boots)
        if world.errs(self, Misbehaviour.LIE):
            strangers = set(range(world.plan.servers)) - {self.number, *self.links}
            for stranger in sorted(strangers)[:1]:
                self.core.link_up(world.node_ids[stranger], *self._now())
        for link in self.links.values():
            link.redial()

    def die(self) -> None:
        """Lose all that is not on a disk, and the links with it."""
        if self.directory is None:
            return
        self._world.note("die", self.number, self.boots)
        self.directory = None
        self._world.spread.restarted(self.number)
        for link in self.links.values():
            link.cut(0.0)
        self._world.agenda.after(1 + self._draws.expovariate(1 / DOWN), self.start)

    def stumble(self) -> None:
        """Die now and then, as long as there are faults."""
        plan = self._world.plan
        if plan.crashes and not self._world.is_calm:
            self.die()
            self._world.agenda.after(self._draws.pause(plan.crashes / 3600), self.stumble)

    def _now(self) -> tuple[float, int]:
        now = self._world.agenda.now
        return now, EPOCH_MS + round((now + self.clock) * 1000)

    # Cards.

    def link_up(self, link: KeptLink, end: int) -> None:
        """A session of a link has begun; the end that dialled opens the stream of cards."""
        session, peer = link.session, link.ends[1 - end]
        assert session is not None
        self.core.link_up(peer.node_id, *self._now())
        if session.dialler == end:
            self.core.begin_exchange(peer.node_id)

            def opened() -> None:
                peer.core.begin_exchange(self.node_id)
                peer.act()

            session.lanes[end].send(_SHORT, opened)
        self.act()

    def link_down(self, link: KeptLink, end: int, session: KeptSession) -> None:
        """A session is over, as this end sees it."""
        if self.directory is not None and link.session is session:
            self.core.link_down(link.ends[1 - end].node_id, *self._now())
            self.act()
        waiting = session.waiting[end]
        for answered in list(waiting.values()):
            answered(ResultCode.UNREACHABLE, None)
        waiting.clear()

    def act(self) -> None:
        """Send what there is to be sent, and be woken when the core asks for it."""
        core = self.core
        for neighbour in core.ready():
            self._send(self.links[self._world.numbers[neighbour]])
        own = core.cards.get(self.node_id)
        if own is not None:
            self._world.spread.made(own, self.number, self._world.agenda.now)
        deadline = core.next_deadline()
        if deadline is not None and deadline < self._wake_at:
            self._wake_at = deadline
            boots = self.boots
            self._world.agenda.at(deadline, lambda: self._wake(deadline, boots))

    def _wake(self, deadline: float, boots: int) -> None:
        if self.directory is not None and boots == self.boots and deadline == self._wake_at:
            self._wake_at = float("inf")
            self.core.handle_deadline(*self._now())
            self.act()

    def _send(self, link: KeptLink) -> None:
        session = link.session
        end = link.ends.index(self)
        if session is None or not session.is_up[end] or not session.lanes[end].is_free:
            return
        peer = link.ends[1 - end]
        event = self.core.next_event(peer.node_id)
        if event is None:
            return
        self._put(link, session, end, event)
        if event.subcategory == CARDS and self._world.errs(self, Misbehaviour.TWICE):
            self._put(link, session, end, event)
        if event.subcategory == CARDS and self._world.errs(self, Misbehaviour.OLD):
            first = self._kept.setdefault(peer.number, event.payload)
            if first is not event.payload:
                self._put(link, session, end, CardEvent(CARDS, first))

        def left() -> None:
            if self.directory is not None and link.session is session:
                self._send(link)

        self._world.agenda.at(session.lanes[end].free_at, left)

    def _put(self, link: KeptLink, session: KeptSession, end: int, event: CardEvent) -> None:
        peer = link.ends[1 - end]
        cards = self._world.sent(session, end, event)

        def arrived() -> None:
            for origin, number in cards:
                session.watch.received(1 - end, origin, number)
            peer.receive(link, 1 - end, event)

        session.lanes[end].send(len(event.payload), arrived)

    def receive(self, link: KeptLink, end: int, event: CardEvent) -> None:
        """An event of the stream of cards has come from a neighbour."""
        peer = link.ends[1 - end]
        if event.subcategory == CARDS and self._world.errs(self, Misbehaviour.DEAF):
            return
        try:
            self.core.receive(peer.node_id, event.subcategory, event.payload, *self._now())
        except RemoteProtocolError as error:
            self._world.breaches.add("cards", f"{link.name}: {peer.number} broke a rule: {error}")
            link.cut(0.0)
            return
        for card in self._heard:
            if self.core.cards.get(card.origin) is card:
                self._world.spread.taken(card, self.number, self._world.agenda.now)
        self._heard.clear()
        self.act()

    def _read(self, encoded: bytes) -> Card:
        card = self._world.read(encoded)
        self._heard.append(card)
        return card

    # Dials.

    def reach(self, target: NodeId, done: Answered) -> None:
        """Try to open a tunnel to a server, by up to three paths; `done` is told what came of it."""
        attempts = self.core.attempts((target,), DIAL_TIMEOUT)
        boots = self.boots

        def go_on() -> None:
            if self.boots != boots or self.directory is None:
                return  # nobody waits any more
            path = attempts.next(self._world.agenda.now)
            if path is None:
                done(attempts.code, attempts.hop)
                return
            tunnel = SimulatedTunnel(self._world, self, path)
            tunnel.open(attempts.timeout, came)

        def came(code: int, hop: int | None) -> None:
            if not code:
                done(code, hop)
                return
            attempts.failed(code, hop, self._world.agenda.now)
            go_on()

        go_on()

    def forward(
        self, tunnel: SimulatedTunnel, after: NodeId, timeout: float, answered: Answered
    ) -> None:
        """Send a Dial on to a neighbour."""
        hop = tunnel.path.index(self.node_id) if self.node_id in tunnel.path else 0
        link = self.links.get(self._world.numbers.get(after, -1))
        session = None if link is None else link.session
        if link is None or session is None or not session.is_up[end := link.ends.index(self)]:
            answered(ResultCode.UNREACHABLE, hop)
            return
        peer, dials = link.ends[1 - end], self._world.dials
        payload = encode_dial(tunnel.trace, timeout, path=tunnel.path)
        dials.forwarded(tunnel.trace, self.number)
        self._world.note("dial", f"{self.number}>{peer.number}", 0, payload)
        waiting = session.waiting[end]

        def reply(code: int, at: int | None) -> None:
            """What the peer answers travels back."""

            def arrived() -> None:
                if waiting.pop(tunnel.trace, None) is not None:
                    answered(code, at)

            session.lanes[1 - end].send(_SHORT, arrived)

        waiting[tunnel.trace] = lambda code, at: answered(code, hop if at is None else at)
        session.lanes[end].send(
            len(payload), lambda: peer.dialled(tunnel, self.node_id, payload, reply)
        )

    def dialled(
        self, tunnel: SimulatedTunnel, before: NodeId, payload: bytes, reply: Answered
    ) -> None:
        """A Dial has come from a neighbour."""
        now = self._world.agenda.now
        self._world.dials.arrived(tunnel.trace, self.number)
        decision = self.core.dials.judge(before, payload, now)
        match decision:
            case Refused(code, hop):
                reply(code, hop)
            case Here():
                tunnel.joined(self, before, None)
                reply(0, len(tunnel.path) - 1)
            case Onward() as way:
                tunnel.joined(self, before, way.after)
                self._pass_on(tunnel, way, before, reply)

    def _pass_on(
        self, tunnel: SimulatedTunnel, way: Onward, before: NodeId, reply: Answered
    ) -> None:
        world = self._world
        left = way.deadline - world.agenda.now
        answer = world.once(left, reply, ResultCode.DEADLINE_EXCEEDED, way.hop)
        if world.errs(self, Misbehaviour.BACK):
            self.forward(tunnel, before, left, answer)
            return
        self.forward(tunnel, way.after, left, answer)
        if world.errs(self, Misbehaviour.FORK):
            others = [link.ends[1 - link.ends.index(self)] for link in self.links.values()]
            for other in others:
                if other.node_id not in (before, way.after):
                    self.forward(tunnel, other.node_id, left, answer)
                    break
