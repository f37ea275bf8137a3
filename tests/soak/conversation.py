"""One connection of one side from its handshake to its end: load, rest, a clean end or a cut.

All traffic on the connection must have ended when `run` returns; whatever is still running after
`HANG` seconds is a violation.
"""

from collections.abc import Awaitable, Callable
from random import Random  # noqa: TID251  # seeded
from typing import Any

import anyio

from parley import Peer
from parley._node.protocol.codes import CloseCode
from tests.soak.handlers import Publisher
from tests.soak.ledger import Book
from tests.soak.phases import Phases
from tests.soak.plan import HANG, PATIENCE, Plan
from tests.soak.traffic import FEED, TICKER, Traffic

TOPICS = (FEED, TICKER)
Worker = Callable[[Any], Awaitable[None]]


class Conversation:
    """One connection; `side` is "client" or "server", and `published` are the local node's
    topics.
    """

    def __init__(
        self,
        peer: Peer,
        number: int,
        side: str,
        plan: Plan,
        phases: Phases,
        published: dict[str, Publisher],
    ) -> None:
        self.peer = peer
        self.book = Book(number)
        self.done = anyio.Event()
        self._side = side
        self._plan = plan
        self._published = published
        self._traffic = Traffic(peer, self.book, phases, Random(f"{plan.seed} {side} {number}"))

    @property
    def busy(self) -> dict[str, int]:
        """The tasks that must still end before the connection is at rest."""
        held = ("events", "notes", "handler of events")
        return {name: n for name, n in self.book.active.items() if not name.startswith(held)}

    async def run(self) -> None:
        """Start all traffic; return when the traffic and the connection have ended."""
        async with anyio.create_task_group() as watched:
            watched.start_soon(self._watch, watched.cancel_scope)
            async with anyio.create_task_group() as workers:
                for name, worker, argument in self._workers():
                    workers.start_soon(self._work, name, worker, argument)
            self.done.set()
            if self._side == "client" and self.peer.is_open:
                await self._leave()
            ended = await self.peer.closed()
            self.book.graceful = ended.code == CloseCode.NORMAL
            self.book.resumes = self.peer.resumes
            while self.book.active:  # noqa: ASYNC110 - handlers end in the loop's next turns
                await anyio.sleep(0.01)
            watched.cancel_scope.cancel()
        for topic, publisher in self._published.items():
            self.book.sending(f"notes/{topic}").count = publisher.count

    def look(self) -> dict[str, Any]:
        """Return the state of the connection at rest, for the judge."""
        flow, calls = self.peer.core.flow(), self.peer.calls
        return {
            "streams": {
                str(stream): [one.credit, one.window, one.left, one.consumed]
                for stream, one in flow.streams.items()
            },
            "unconsumed": flow.unconsumed,
            "committed": flow.committed,
            "queued": self.peer.core.queued_bytes,
            "asking": len(calls.outgoing),
            "answering": len(calls.incoming),
            "stream_requests": len(calls.stream_requests),
            "deadlines": calls.deadlines.earliest != float("inf"),
            "kept": len(self.peer.streams),
            "losses": self._traffic.losses,
            "notes": {
                topic: check.expected
                for topic in TOPICS
                if (check := self.book.received.get(f"notes/{topic}")) is not None
            },
        }

    def _workers(self) -> list[tuple[str, Worker, Any]]:
        plan, traffic = self._plan, self._traffic
        calls = plan.client_calls if self._side == "client" else plan.server_calls
        found: list[tuple[str, Worker, Any]]
        counts: list[tuple[str, Worker, int]] = [
            ("calls", traffic.calls, calls),
            ("items", traffic.items, plan.items),
            ("events", traffic.events, plan.events),
            ("pipes", traffic.pipes, plan.pipes),
            ("rekeys", traffic.rekeys, 1),
        ]
        found = [(f"{n}/{one}", worker, one) for n, worker, count in counts for one in range(count)]
        return [*found, *((f"notes of {topic}", traffic.notes, topic) for topic in TOPICS)]

    async def _work(self, name: str, worker: Worker, argument: Any) -> None:
        with self.book.part(name):
            await worker(argument)

    async def _leave(self) -> None:
        """End cleanly, once the other side is done as well."""
        with self.book.part("leaving"):
            await self.peer.call("leave", timeout=PATIENCE)
            await self.peer.close()

    async def _watch(self, scope: anyio.CancelScope) -> None:
        """Check that tasks waiting on an ended connection end soon."""
        await self.peer.closed()
        await anyio.sleep(HANG)
        self.book.complain(f"still waiting {HANG:g} s after the end: {dict(self.book.active)}")
        scope.cancel()
