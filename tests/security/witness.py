"""A node all of whose doors to the application are watched, on each transport.

Whatever of the application runs is written down; `untouched` says that nothing
did. Strangers come as plain byte streams, or as the reference peer over any of them.
"""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar, cast

import anyio
from anyio import from_thread, to_thread
from anyio.abc import ByteStream, SocketAttribute, SocketListener, TaskGroup

from parley import Call, Node, NodeConfig, ParleyError, Peer, Stream
from parley._crypto.identity import Identity, PublicIdentity
from parley._node.handlers.topic import Topic
from parley._node.transport.address import Address
from parley._node.transport.memory import memory_pair
from parley._node.trust.policies import AnyPeer
from tests.interop.meeting import PATIENCE, logged
from tests.reference.establish import HONEST, Misbehaviour
from tests.reference.handshake import Config
from tests.reference.peer import ReferencePeer, Side

T = TypeVar("T")

TRANSPORTS: Final = ("tcp", "unix", "memory")
TOPIC: Final = "topic"


class WatchedTrust(AnyPeer):
    """Trusts everybody; whom it was asked about is written down."""

    def __init__(self) -> None:
        self.asked: list[PublicIdentity] = []

    def check(self, peer: PublicIdentity, name: str | None) -> None:
        self.asked.append(peer)


@dataclass
class Witness:
    """A running node, and each word that its application heard.

    `called` has what the handlers were given, `errors` what `connect..` and `accept..`
    raised, `met` the peers that they returned; `addresses` are by transport.
    """

    node: Node
    directory: Path
    trust: WatchedTrust
    topic: Topic
    tasks: TaskGroup
    called: list[object] = field(default_factory=list)
    errors: list[ParleyError] = field(default_factory=list)
    met: list[Peer] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    addresses: dict[str, str] = field(default_factory=dict)

    @property
    def untouched(self) -> bool:
        """Whether no handler ran, nobody subscribed, and no Peer was handed out."""
        return not (self.called or self.met or self.topic.subscribers)

    async def stranger(self, transport: str, *, node_dials: bool) -> ByteStream:
        """A byte stream to the node, as whoever is at its other end."""
        if transport == "memory":
            ours, theirs = memory_pair()
            self.tasks.start_soon(self._join, theirs, node_dials)
            return ours
        place = "tcp://127.0.0.1:0" if transport == "tcp" else f"unix://{self.directory}/ours"
        if not node_dials:
            if transport not in self.addresses:
                self.addresses[transport] = await self.node.listen(place)
            return await open_stream(self.addresses[transport])
        if transport == "tcp":
            listeners = await anyio.create_tcp_listener(local_host="127.0.0.1")
            listener = cast(SocketListener, listeners.listeners[0])
            place = f"tcp://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"  # noqa: S610  # no SQL
        else:
            place = f"unix://{self.directory}/theirs"
            listener = await anyio.create_unix_listener(f"{self.directory}/theirs")
        async with listener:
            self.tasks.start_soon(self._dial, place)
            with anyio.fail_after(PATIENCE):
                return await listener.accept()

    async def meets(
        self,
        act: Callable[[ReferencePeer], T],
        side: Side,
        transport: str,
        config: Config,
        wrong: Misbehaviour = HONEST,
        *,
        automatic: bool = True,
    ) -> T:
        """Run `act` on a reference peer that has not shaken hands; `side` is the reference's."""
        stream = await self.stranger(transport, node_dials=side == "responder")

        def run() -> T:
            sock = cast(socket.socket, StreamSocket(stream))
            peer = ReferencePeer(
                sock, side, config, wrong=wrong, timeout=PATIENCE, automatic=automatic
            )
            return act(peer)

        try:
            return await to_thread.run_sync(run)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.aclose_forcefully(stream)

    async def settled(self, until: Callable[[], bool]) -> None:
        """Wait until it holds."""
        with anyio.fail_after(PATIENCE):
            while not until():  # noqa: ASYNC110 - what is waited for has no event
                await anyio.sleep(0.002)

    async def _dial(self, place: str) -> None:
        await self._try(self.node.connect(place, trust=self.trust, timeout=PATIENCE))

    async def _join(self, stream: ByteStream, node_dials: bool) -> None:
        if node_dials:
            await self._try(self.node.connect_stream(stream, trust=self.trust))
        else:
            await self._try(self.node.accept_stream(stream))

    async def _try(self, meeting: Awaitable[Peer]) -> None:
        try:
            self.met.append(await meeting)
        except ParleyError as error:
            self.errors.append(error)


class StreamSocket:
    """A byte stream as the blocking socket that the reference expects, from its thread."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._timeout: float | None = PATIENCE

    def settimeout(self, timeout: float | None) -> None:
        self._timeout = timeout

    def sendall(self, data: bytes) -> None:
        self._run(self._stream.send, data)

    def recv(self, size: int) -> bytes:
        try:
            return cast(bytes, self._run(self._stream.receive, size))
        except anyio.EndOfStream:
            return b""

    def shutdown(self, how: int) -> None:
        self._run(self._stream.send_eof)

    def close(self) -> None:
        self._run(self._stream.aclose)

    def _run(self, function: Callable[..., Any], *args: object) -> object:
        async def bounded() -> object:
            with anyio.fail_after(self._timeout):
                return await function(*args)

        try:
            return from_thread.run(bounded)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise ConnectionResetError from error


class TappedStream(ByteStream):
    """A byte stream; what is sent on it is written down."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self.sent = bytearray()

    async def send(self, item: bytes) -> None:
        await self._stream.send(item)
        self.sent += item

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        return await self._stream.receive(max_bytes)

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()


async def open_stream(address: str) -> ByteStream:
    """A plain connection to one of our addresses."""
    target = Address.parse(address)
    if target.scheme == "unix":
        return await anyio.connect_unix(target.path)
    return await anyio.connect_tcp(target.host, target.port)


@asynccontextmanager
async def witness(config: NodeConfig, identity: Identity) -> AsyncIterator[Witness]:
    """A node with a handler of every kind."""
    trust = WatchedTrust()
    with TemporaryDirectory(prefix="parley-") as directory:
        async with (
            Node(identity, config=config, trust=trust) as node,
            anyio.create_task_group() as tasks,
        ):
            seen = Witness(node, Path(directory), trust, node.topic(TOPIC), tasks)
            _watch(seen)
            with logged(seen.log):
                yield seen
            tasks.cancel_scope.cancel()


def _watch(seen: Witness) -> None:
    node = seen.node

    @node.on_call("parley.echo")
    async def echo(call: Call) -> object:
        seen.called.append(call.data)
        return call.data

    @node.on_stream("echo")
    async def echo_stream(stream: Stream) -> None:
        seen.called.append(stream.label)
        async for data in stream:
            seen.called.append(data)

    @node.on_subscribe(TOPIC)
    async def subscribe(request: object) -> None:
        seen.called.append(request)
