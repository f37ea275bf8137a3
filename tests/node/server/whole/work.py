"""The work of the nodes in a whole network: they call each other, some calls with `once`, write to
rooms and read them.
"""

import anyio

from parley._crypto.identity import NodeId
from parley._node.errors import ParleyError
from parley._node.peer.idempotency import IdempotencyKey
from parley._node.peer.link_subscription import LinkSubscription
from parley._node.peer.peer import Peer
from parley._node.protocol.errors import ProtocolError
from tests.node.server.whole.ledger import Job, Reading
from tests.node.server.whole.world import SLOWEST, HomeUser, Resident, Server, World

# The errors with which a request may end.
TOLD = (ParleyError, ProtocolError)
TIMEOUT = 60.0
AGAIN = 5.0  # seconds before a retry


class Worker:
    """A node that connects to other nodes one after another and makes some calls; accounts also
    write notes. `over` ends it after the current call.
    """

    def __init__(self, world: World, who: Resident) -> None:
        self.world, self.who, self.ledger = world, who, world.ledger
        self.draws = world.plan.draws("worker", who.name)
        self.over = anyio.Event()
        self._jobs = 0

    async def run(self) -> None:
        while True:
            with anyio.move_on_after(self.draws.expovariate(1 / self.world.plan.pause)):
                await self.over.wait()
                return
            if isinstance(self.who, HomeUser) and self.draws.random() < 0.25:
                await self.write(self.draws.choice(self.world.rooms))
                continue
            others = [*self.world.servers, *self.world.accounts]
            target = self.draws.choice([one for one in others if one is not self.who])
            await self.call(target, self.draws.randrange(1, 5))

    async def call(self, target: Resident, calls: int) -> bool:
        """Connect to a node and make so many calls; return whether all simple calls were
        answered.
        """
        sessions = Sessions(self, target)
        good = True
        try:
            for _ in range(calls):
                if self.draws.random() < 0.5:
                    await self.call_once(sessions)
                else:
                    good = await self.call_plainly(sessions) and good
                await anyio.sleep(self.draws.uniform(0.0, SLOWEST))
        finally:
            await sessions.close()
        return good

    async def call_plainly(self, sessions: "Sessions") -> bool:
        job = self._job("call", sessions.target.name, once=False)
        try:
            peer = await sessions.peer()
            await peer.call("work", self._data(job), timeout=TIMEOUT)
        except TOLD as error:
            self.ledger.told(job, error)
            return False
        self.ledger.answered(job)
        return True

    async def call_once(self, sessions: "Sessions") -> None:
        """Repeat a call until it is answered or cannot be repeated, because the target has crashed
        or was unreachable for five minutes.
        """
        job, key = self._job("call", sessions.target.name, once=True), IdempotencyKey()
        data, lives = self._data(job), 0
        while True:
            try:
                peer = await sessions.peer()
                if key.sent is None and isinstance(sessions.target, Server):
                    lives = sessions.target.lives
                await peer.call("work", data, timeout=TIMEOUT, once=key)
            except TOLD as error:
                if key.is_over:
                    self._given_up(job, key, error, sessions.target, lives)
                    return
                self.ledger.say(f"{job.name}: {type(error).__name__}", "asked again")
                await anyio.sleep(AGAIN)
            else:
                self.ledger.answered(job)
                return

    async def write(self, room: Server) -> None:
        assert isinstance(self.who, HomeUser)
        job, key, lives = self._job("note", room.name, once=True), IdempotencyKey(), 0
        while True:
            try:
                assert self.who.home is not None
                if key.sent is None:
                    lives = room.lives
                number = await self.who.home.publish(
                    self.world.room(room), job.name, timeout=TIMEOUT, once=key
                )
            except TOLD as error:
                if key.is_over:
                    self._given_up(job, key, error, room, lives)
                    return
                self.ledger.say(f"{job.name}: {type(error).__name__}", "asked again")
                await anyio.sleep(AGAIN)
            else:
                self.ledger.answered(job)
                if number != self.ledger.place(job.name)[1]:
                    self.ledger.fault(f"{job.name} is said to have the number {number}")
                return

    def _job(self, kind: str, target: str, *, once: bool) -> Job:
        self._jobs += 1
        name = f"{kind} {self._jobs} of {self.who.name}"
        return self.ledger.begin(Job(name, target, once))

    def _data(self, job: Job) -> list[str | float]:
        seconds = self.draws.uniform(0.0, SLOWEST) if self.draws.random() < 0.5 else 0.0
        return [job.name, self.who.name, seconds]

    def _given_up(
        self, job: Job, key: IdempotencyKey, error: Exception, target: Resident, lives: int
    ) -> None:
        self.ledger.told(job, error)
        died = isinstance(target, Server) and target.lives != lives
        if not died and key.age(self.world.clock.now()) < 290.0:
            self.ledger.fault(f"{job.name} was given up, and {target.name} is there: {error!r}")


class Sessions:
    """The session of a worker with its target, opened on demand."""

    def __init__(self, worker: Worker, target: Resident) -> None:
        self.worker, self.target = worker, target
        self._peer: Peer | None = None

    async def peer(self) -> Peer:
        if self._peer is None or not self._peer.is_open:
            if self._peer is not None:
                self._count(self._peer)
            to = self.worker.world.to(self.target)
            self._peer = await self._reach(to)
            assert self._peer.node_id == to[-1]
        return self._peer

    async def _reach(self, to: tuple[NodeId, ...]) -> Peer:
        who = self.worker.who
        if isinstance(who, HomeUser):
            assert who.home is not None
            return await who.home.reach(*to)
        assert isinstance(who, Server)
        if who.federation is None:
            raise ParleyError("it is dead itself")
        return await who.federation.reach(*to)

    async def close(self) -> None:
        if self._peer is not None:
            await self._peer.close()
            self._count(self._peer)

    def _count(self, peer: Peer) -> None:
        self.worker.ledger.counts["sessions, by calls"] += 1
        self.worker.ledger.counts["of these, resumed"] += peer.resumes > 0


class Reader:
    """An account that reads a room through its home until the end."""

    def __init__(self, world: World, who: HomeUser, room: Server) -> None:
        self.world, self.who, self.room = world, who, room
        self.reading = Reading(world.ledger, who.name)

    async def run(self) -> None:
        position = None
        while True:
            assert self.who.home is not None
            try:
                subscription = self.who.home.subscribe(
                    self.world.room(self.room), timeout=TIMEOUT, after=position
                )
                async with subscription:
                    if not subscription.recovered:
                        self.reading.is_told = True
                    await self._read(subscription)
            except TOLD as error:
                self.reading.tell(error)
                position = None
            await anyio.sleep(AGAIN)

    async def _read(self, subscription: LinkSubscription) -> None:
        """Read notes until an error. Sessions may change while it waits for notes."""
        gaps, sessions = subscription.gaps, 0

        def begun() -> None:
            nonlocal sessions
            sessions += 1

        subscription.on_session(begun)
        async for note in subscription:
            if sessions and not subscription.recovered:
                self.reading.is_told = True
            sessions = 0
            self.reading.take(str(note), subscription.gaps - gaps)
            gaps = subscription.gaps
