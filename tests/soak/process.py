"""One of the two processes: a node, its conversations, and lines of JSON to the judge.

Commands arrive on standard input, one word per line: count, begin, status, rest, look, leave. Each
is answered by one line, and each ended connection produces a line. `python -m tests.soak.process
SIDE PLAN [ADDRESS]`.
"""

import gc
import json
import logging
import sys
from typing import Any

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from parley import Call, HandshakeError, Node, Peer
from parley._crypto.identity import Identity
from parley._node.errors import PeerClosedError
from parley._node.protocol.codes import CloseCode
from tests.soak.conversation import Conversation
from tests.soak.epochs import Epochs
from tests.soak.handlers import add_handlers, add_publishers
from tests.soak.ledger import Book
from tests.soak.phases import Phases
from tests.soak.plan import PATIENCE, Plan, soak_config

# Seconds within which all load must have ended after the command to rest.
REST = 60.0


class Process:
    """One side of the run."""

    def __init__(
        self, side: str, plan: Plan, node: Node, epochs: Epochs, tasks: TaskGroup, address: str
    ) -> None:
        self.node = node
        self.phases = Phases()
        self.published = add_publishers(node)
        self.errors: list[str] = []
        self._side = side
        self._plan = plan
        self._epochs = epochs
        self._tasks = tasks
        self._address = address
        self._conversations: dict[Peer, Conversation] = {}
        self._begun = 0
        add_handlers(node, self._book_of)
        node.on_call("join")(self._join)
        node.on_call("leave")(self._leave)

    # Connections.

    async def _dial(self) -> None:
        """Maintain one connection to the server until the run ends."""
        while not self.phases.over:
            try:
                peer = await self.node.connect(self._address)
            except HandshakeError as error:
                if error.code != CloseCode.CONNECTION_LOST:
                    self.errors.append(f"a handshake ended with {error}")
                continue  # cut during the handshake
            number, self._begun = self._begun, self._begun + 1
            conversation = self._new(peer, number)
            try:
                await peer.call("join", number, timeout=PATIENCE)
            except PeerClosedError as error:
                if error.code != CloseCode.CONNECTION_LOST:
                    self.errors.append(f"join ended with {error}")
            await self._converse(conversation)

    async def _join(self, call: Call) -> None:
        assert isinstance(call.data, int)
        assert isinstance(call.peer, Peer)
        self._tasks.start_soon(self._converse, self._new(call.peer, call.data))

    async def _leave(self, call: Call) -> None:
        assert isinstance(call.peer, Peer)
        await self._conversations[call.peer].done.wait()

    def _new(self, peer: Peer, number: int) -> Conversation:
        conversation = Conversation(
            peer, number, self._side, self._plan, self.phases, self.published
        )
        self._conversations[peer] = conversation
        return conversation

    async def _converse(self, conversation: Conversation) -> None:
        await conversation.run()
        del self._conversations[conversation.peer]
        emit("connection", **conversation.book.tally())

    def _book_of(self, peer: Peer) -> Book:
        return self._conversations[peer].book

    # Commands.

    async def obey(self) -> None:
        """Run the judge's commands until its pipe is closed."""
        while True:
            line = await to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
            if not line:
                return
            command = line.strip()
            emit(command, **await getattr(self, f"_do_{command}")())

    async def _do_begin(self) -> dict[str, Any]:
        self._tasks.start_soon(self._epochs.watch_loop, self.phases.rest)
        for publisher in self.published.values():
            self._tasks.start_soon(publisher.publish, self.phases)
        for _ in range(self._plan.links if self._side == "client" else 0):
            self._tasks.start_soon(self._dial)
        return {}

    async def _do_status(self) -> dict[str, Any]:
        return {"tasks": len(anyio.get_running_tasks()), "open": len(self._conversations)}

    async def _do_rest(self) -> dict[str, Any]:
        self._epochs.rest()
        self.phases.rest.set()
        busy: dict[int, dict[str, int]] = {}
        with anyio.move_on_after(REST):
            while True:
                talks = self._conversations.values()
                busy = {talk.book.number: talk.busy for talk in talks if talk.busy}
                if not busy:
                    break
                await anyio.sleep(0.02)
        gc.collect()
        return {"busy": busy}

    async def _do_look(self) -> dict[str, Any]:
        return {
            "connections": {talk.book.number: talk.look() for talk in self._conversations.values()},
            "published": {topic: one.count for topic, one in self.published.items()},
        }

    async def _do_leave(self) -> dict[str, Any]:
        self.phases.left.set()
        with anyio.move_on_after(REST):
            while self._conversations or self.node.peers:  # noqa: ASYNC110 - of many events
                await anyio.sleep(0.02)
        gc.collect()
        return {"left": len(self._conversations), "epochs": self._epochs.summary()}

    async def _do_count(self) -> dict[str, Any]:
        gc.collect()
        return {"tasks": len(anyio.get_running_tasks()), "errors": self.errors}


class Complaints(logging.Handler):
    """Records the node's own error logs as failures of the run."""

    def __init__(self, errors: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._errors = errors

    def emit(self, record: logging.LogRecord) -> None:
        """Store a record with its exception."""
        failed = record.exc_info[1] if record.exc_info else None
        self._errors.append(f"{record.name}: {record.getMessage()} {failed!r}")


def emit(kind: str, **fields: Any) -> None:
    """Send a line to the judge."""
    print(json.dumps({"kind": kind, **fields}), flush=True)


async def run(side: str, plan: Plan, address: str) -> None:
    """Run one side until the judge closes the pipe."""
    epochs = Epochs()
    node = Node(Identity.create(), config=soak_config(plan), observer=epochs.observer)
    async with node, anyio.create_task_group() as tasks:
        process = Process(side, plan, node, epochs, tasks, address)
        logging.getLogger().addHandler(Complaints(process.errors))
        listening = await node.listen("tcp://127.0.0.1:0") if side == "server" else ""
        emit("ready", address=listening)
        await process.obey()
        tasks.cancel_scope.cancel()


if __name__ == "__main__":
    _plan = Plan.parse(sys.argv[2])
    anyio.run(run, sys.argv[1], _plan, "".join(sys.argv[3:]), **_plan.loop())
