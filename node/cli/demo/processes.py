"""The other processes of the demo: starting and ending them, and their main functions.

A process ends when its standard input closes, or by SIGKILL.
"""

import hashlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, Final

import anyio
from anyio import to_thread
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from parley._crypto.identity import Identity, NodeId
from parley._lbm.codec import Value
from parley._node.cli.output import Output, format_value
from parley._node.config import NodeConfig
from parley._node.errors import CallRefused, ParleyError
from parley._node.node import Node
from parley._node.protocol.codes import FIRST_APPLICATION_CODE
from parley._node.remote.requests import Call
from parley._node.remote.stream import Stream
from parley._node.server.federation import Federation
from parley._node.settings.tables import FederationSettings
from parley._node.tunnels.splice import SpliceSide

START_TIMEOUT = 15.0
STOP_TIMEOUT = 5.0


class OtherProcess:
    """A process that runs a hidden command. `address` is its node's address with the node ID."""

    def __init__(self, process: Process) -> None:
        self.address = ""
        self._process = process
        self._text = ""
        self._killed = False
        if process.stdout is None or process.stdin is None:
            raise ParleyError(f"cannot talk to process {process.pid}: it has no input or output")
        self._out = TextReceiveStream(process.stdout)
        self._in = process.stdin

    async def line(self) -> Any:
        """Return its next line, parsed as JSON."""
        while "\n" not in self._text:
            try:
                self._text += await self._out.receive()
            except anyio.EndOfStream:
                raise ParleyError(
                    f"process {self._process.pid} of the demo ended before it was ready"
                ) from None
        line, _, self._text = self._text.partition("\n")
        return json.loads(line)

    async def send(self, what: Any) -> Any:
        """Send a line of JSON and return the response."""
        await self._in.send(json.dumps(what).encode() + b"\n")
        with _in_time(START_TIMEOUT, "answer"):
            return await self.line()

    async def kill(self) -> None:
        self._killed = True
        self._process.kill()
        await self._process.wait()

    async def end(self) -> None:
        """Close its input and wait for its end; ParleyError if it fails."""
        await self._in.aclose()
        with _in_time(STOP_TIMEOUT, "end"):
            if (code := await self._process.wait()) != 0 and not self._killed:
                raise ParleyError(
                    f"process {self._process.pid} of the demo failed with exit code {code}"
                )


@asynccontextmanager
async def other_process(command: str, *options: str) -> AsyncIterator[OtherProcess]:
    """Run a hidden command in a process until the block is left.

    Raises:
        ParleyError: it did not start, or failed.
    """
    # Use the code of this process: -m would first search the current directory, or find another
    # installation.
    code = f"import sys; sys.path[:] = {sys.path!r}; from parley._node.cli.main import main; main()"
    process = await anyio.open_process(
        [sys.executable, "-P", "-c", code, command, *options],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        other = OtherProcess(process)
        with _in_time(START_TIMEOUT, "start"):
            other.address = (await other.line())["addresses"][0]
        yield other
        await other.end()
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.aclose()


@contextmanager
def _in_time(seconds: float, what: str) -> Iterator[None]:
    try:
        with anyio.fail_after(seconds):
            yield
    except TimeoutError as error:
        raise ParleyError(f"the other process did not {what} within {seconds:g} s") from error


FILE_LABEL = "demo.file"
PRICES = "demo.prices"
ROOM = "demo.room"
MOST_NOTES = 10_000
LONGEST_LINE = 200
POEM = ("Two", "nodes", "met;", "neither", "spoke", "in", "the", "clear.")


async def respond() -> None:
    """Run bob until standard input ends."""
    out = Output(as_json=True)
    # On one machine, a lost transport means that the other process has ended.
    async with Node(Identity.create(), config=NodeConfig(resume=0.0)) as node:
        offer(node)
        address = await node.listen("tcp://127.0.0.1:0")
        out.event("ready", node_id=str(node.node_id), addresses=[address])
        await to_thread.run_sync(sys.stdin.buffer.read, abandon_on_cancel=True)
    out.done()


def offer(node: Node) -> None:
    prices, room = node.topic(PRICES), node.topic(ROOM)

    @node.on_call("greet")
    async def greet(call: Call) -> str:
        return f"hello {format_value(call.data)}, I am {node.node_id.short}"

    @node.on_call("demo.poem")
    async def poem(call: Call) -> AsyncIterator[Value]:
        for word in POEM:
            yield word

    @node.on_call("demo.publish")
    async def publish(call: Call) -> int:
        if type(call.data) is not int or not 0 <= call.data <= MOST_NOTES:
            raise CallRefused(FIRST_APPLICATION_CODE, f"a number up to {MOST_NOTES:,}")
        for number in range(call.data):
            await prices.publish({"number": number, "price": 100 + number % 7})
        return call.data

    @node.on_call("demo.say")
    async def say(call: Call) -> None:
        # Use the identity from the handshake, not the name in the message.
        author = call.peer.node_id
        await room.publish(
            {
                "from": author.short if author else None,
                "text": format_value(call.data)[:LONGEST_LINE],
            }
        )

    @node.on_stream(FILE_LABEL)
    async def take(stream: Stream) -> None:
        digest, size = hashlib.sha256(), 0
        async for piece in stream:
            digest.update(piece)
            size += len(piece)
        await stream.send(json.dumps({"sha256": digest.hexdigest(), "size": size}).encode())


FEDERATION_ROOM: Final = "room"
_PATIENCE: Final = 15.0  # seconds
_LEAST_LIE: Final = (
    128  # bytes; a shorter message may be a Received, which the receiver doesn't wait for
)


async def serve_demo() -> None:
    """Run a server until standard input ends."""
    out = Output(as_json=True)
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(Node(Identity.create()))
        address = await node.listen("tcp://127.0.0.1:0")
        out.event("ready", node_id=str(node.node_id), addresses=[address])
        federation: Federation | None = None
        async for told in _lines():
            match told:
                case {"join": settings, "writers": writers}:
                    if writers:
                        node.topic(FEDERATION_ROOM, keep=1_000, writers=writers)
                    joined = Federation(node, FederationSettings(**_tuples(settings)))
                    federation = await stack.enter_async_context(joined)
                case {"await": servers} if federation is not None:
                    await federation.ready(*map(NodeId.parse, servers), timeout=_PATIENCE)
                case {"write": [host, lines]} if federation is not None:
                    async with await federation.reach(NodeId.parse(host)) as peer:
                        for line in lines:
                            await peer.publish(FEDERATION_ROOM, line)
                case "lie":
                    _lie(node)
            out.event("did")
    out.done()


async def _lines() -> AsyncIterator[Any]:
    while line := await to_thread.run_sync(sys.stdin.buffer.readline, abandon_on_cancel=True):
        yield json.loads(line)


def _tuples(settings: dict[str, Any]) -> dict[str, Any]:
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()
    }


def _lie(node: Node) -> None:
    """Flip a bit of the next message that each tunnel through this process carries each way."""
    for service in node.connections.tunnel_services:
        for splice in service.splices:
            for side in splice.sides:
                side.stream.pass_to(_Liar(side))


class _Liar:
    """Receives the Data of one side of a splice, and forwards it with one bit flipped."""

    def __init__(self, side: SpliceSide) -> None:
        self._side = side
        self.finished = side.finished
        self.failed = side.failed
        self.writable = side.writable

    def data_received(self, data: bytes, cost: int) -> None:
        """Forward Data. The first long one is changed, and the honest side gets all others."""
        if len(data) >= _LEAST_LIE:
            self._side.stream.pass_to(self._side)
            data = data[:-1] + bytes((data[-1] ^ 1,))
        self._side.data_received(data, cost)
