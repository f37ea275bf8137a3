"""Connect a node and the reference peer over real sockets, either of them dialling.

The reference blocks, so it runs in a thread, and every wait has a timeout. The tests read the
node's log about its connections, as its operator would.
"""

import logging
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal, TypeVar

import anyio
from anyio import to_thread

from parley import Call, Node, NodeConfig, ParleyError, Peer, Stream
from parley._crypto.identity import Identity
from parley._crypto.registry import PARAMETERS, SIGNING
from parley._node.transport.address import Address
from parley._node.trust.policies import AnyPeer, Pinned, TrustPolicy
from tests.node.tuned import tuned
from tests.reference.channel import ConnectionLost
from tests.reference.establish import HONEST, Misbehaviour
from tests.reference.handshake import Config
from tests.reference.identity import Identity as ReferenceIdentity
from tests.reference.peer import ReferencePeer, Side
from tests.reference.recorded import seed
from tests.reference.sealing import Suite

T = TypeVar("T")
Act = Callable[[ReferencePeer], T]
Application = Callable[[Peer], Awaitable[object]]
Transport = Literal["tcp", "unix"]

SIDES: Final[tuple[Side, ...]] = ("initiator", "responder")
# Long enough for a busy machine; a test that needs as much of it has failed.
PATIENCE: Final = 4.0
# The bystander's message; handlers do not count it.
BYSTANDER: Final = "bystander"
FAST: Final = {"kex": ("x25519",)}
_ENDED: Final = re.compile(r"^[A-Z]+ (?:peer|guest) \S+ ended: ([a-z-]+|\d+) \(")


def our_identity(*algorithms: str) -> Identity:
    """Return the node's identity, the same in every test, with keys in the order of
    `algorithms`.
    """
    names = algorithms or ("ed25519",)
    return Identity.from_keys([SIGNING[name].load(seed(f"ours {name}")) for name in names])


def their_identity(*algorithms: str) -> ReferenceIdentity:
    """The reference peer's."""
    names = algorithms or ("ed25519",)
    return ReferenceIdentity.from_seeds(*((name, seed(f"theirs {name}")) for name in names))


def our_config(suite: Suite | None = None, **settings: Any) -> NodeConfig:
    """Our settings: one suite only, or all with the cheap kex; handlers are not waited for."""
    if suite is not None:
        settings["algorithms"] = {name: (getattr(suite, name),) for name in PARAMETERS}
    settings.setdefault("algorithms", FAST)
    settings.setdefault("drain_timeout", 0.0)
    return tuned(**settings)


def their_config(suite: Suite | None = None, **settings: Any) -> Config:
    """The reference's settings, likewise."""
    names = {name: (getattr(suite, name),) for name in PARAMETERS} if suite else FAST
    signing = suite.signing if suite else "ed25519"
    settings.setdefault("identity", their_identity(signing))
    return Config(**{**names, **settings})


@dataclass
class Ours:
    """A node with its handlers, and their results.

    `called` has (topic, data) of each call whose handler began, `stopped` the topics whose handlers
    were cancelled, `opened` the labels of streams whose handlers began.
    """

    node: Node
    directory: Path
    called: list[tuple[str, Any]] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    refusal: ParleyError | None = None  # what our `connect` raised
    accepted: dict[Transport, str] = field(default_factory=dict)

    # Meeting.

    async def meet(
        self,
        act: Act[T],
        side: Side = "initiator",
        *,
        config: Config | None = None,
        wrong: Misbehaviour = HONEST,
        application: Application | None = None,
        trust: TrustPolicy | None = None,
        transport: Transport = "tcp",
        automatic: bool = True,
        expected: bytes | None = None,
        connect: Callable[[socket.socket], socket.socket] = lambda sock: sock,
    ) -> T:
        """Run `act` on a reference peer that has not shaken hands; `side` is the reference's.

        `application` is what our side does with its Peer, if it is our side that dials.
        `connect` may put something in the place of the reference's socket.
        """
        settings = config or their_config()

        def run(sock: socket.socket) -> T:
            with connect(sock) as connected:
                peer = ReferencePeer(
                    connected,
                    side,
                    settings,
                    wrong=wrong,
                    expected=expected,
                    timeout=PATIENCE,
                    automatic=automatic,
                )
                return act(peer)

        if side == "initiator":
            address = await self.listen(transport)
            return await to_thread.run_sync(lambda: run(dial(address)))
        return await self._be_dialled(run, transport, trust or AnyPeer(), application)

    async def listen(self, transport: Transport = "tcp") -> str:
        """Our address on a transport, listening from now on."""
        if transport not in self.accepted:
            place = "tcp://127.0.0.1:0" if transport == "tcp" else f"unix://{self.directory}/ours"
            self.accepted[transport] = await self.node.listen(place)
        return self.accepted[transport]

    async def _be_dialled(
        self,
        run: Callable[[socket.socket], T],
        transport: Transport,
        trust: TrustPolicy,
        application: Application | None,
    ) -> T:
        results: list[T] = []
        with listening(transport, self.directory) as (server, place):

            def serve() -> None:
                results.append(run(without_delay(server.accept()[0])))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._connect, place, trust, application)
                await to_thread.run_sync(serve)
        return results[0]

    async def _connect(
        self, place: str, trust: TrustPolicy, application: Application | None
    ) -> None:
        try:
            peer = await self.node.connect(place, trust=trust, timeout=PATIENCE)
        except ParleyError as error:
            self.refusal = error
            return
        if application is not None:
            with anyio.fail_after(PATIENCE):
                await application(peer)

    # Afterwards.

    async def ended(self) -> str:
        """Waits for a connection to end; the name of its code, from our log."""
        codes: list[str] = []
        with anyio.fail_after(PATIENCE):
            while not codes:
                codes = [m[1] for line in self.log if (m := _ENDED.search(line))]
                await anyio.sleep(0.002)
        return codes[0]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Waits for something to become so."""
        with anyio.fail_after(PATIENCE):
            while not condition():  # noqa: ASYNC110 - the condition has no event
                await anyio.sleep(0.002)


@asynccontextmanager
async def our_node(
    config: NodeConfig | None = None,
    *,
    identity: Identity | None = None,
    trust: TrustPolicy | None = None,
    **settings: Any,
) -> AsyncIterator[Ours]:
    """Our node, running, with handlers; its log is kept. `settings` are other arguments of Node."""
    with TemporaryDirectory(prefix="parley-") as directory:
        async with Node(
            identity or our_identity(), config=config or our_config(), trust=trust, **settings
        ) as n:
            ours = Ours(n, Path(directory))
            add_handlers(ours)
            with logged(ours.log):
                yield ours


@asynccontextmanager
async def with_bystander(config: NodeConfig | None = None, **settings: Any) -> AsyncIterator[Ours]:
    """Do the same with another connection, which must survive whatever happens on the first."""
    async with our_node(config, **settings) as ours:
        address = await ours.listen()
        async with Node(Identity.create(), config=config or our_config()) as bystander:
            peer = await bystander.connect(address, trust=AnyPeer())
            # Our node has it open too, before anything else happens.
            assert await peer.call("parley.echo", BYSTANDER, timeout=PATIENCE) == BYSTANDER
            yield ours
            assert await peer.call("parley.echo", BYSTANDER, timeout=PATIENCE) == BYSTANDER
            assert peer.is_open
            await peer.close()


def add_handlers(ours: Ours) -> None:
    """echo, hold (never answers), fail, large (an answer of so many bytes); streams alike."""
    node = ours.node

    def note(call: Call) -> None:
        if call.data != BYSTANDER:
            ours.called.append((call.topic, call.data))

    @node.on_call("parley.echo")
    async def echo(call: Call) -> object:
        note(call)
        return call.data

    @node.on_call("hold")
    async def hold(call: Call) -> None:
        note(call)
        try:
            await anyio.sleep_forever()
        finally:
            ours.stopped.append(call.topic)

    @node.on_call("fail")
    async def fail(call: Call) -> None:
        note(call)
        raise ValueError("a secret of the server")

    @node.on_call("large")
    async def large(call: Call) -> bytes:
        note(call)
        return bytes(int(str(call.data)))

    @node.on_stream("echo")
    async def echo_stream(stream: Stream) -> None:
        ours.opened.append(stream.label)
        async for data in stream:
            await stream.send(data)

    @node.on_stream("hold")
    async def hold_stream(stream: Stream) -> None:
        ours.opened.append(stream.label)
        await anyio.sleep_forever()


@contextmanager
def logged(lines: list[str]) -> Iterator[None]:
    """What our package logs, as lines 'LEVEL message'."""

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(f"{record.levelname} {record.getMessage()}")

    logger, handler = logging.getLogger("parley"), Keep()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def dial(address: str) -> socket.socket:
    """A plain socket to one of our addresses."""
    target = Address.parse(address)
    if target.scheme == "tcp":
        return without_delay(socket.create_connection((target.host, target.port), PATIENCE))
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.settimeout(PATIENCE)
        sock.connect(target.path)
    except OSError:
        sock.close()
        raise
    return sock


def without_delay(sock: socket.socket) -> socket.socket:
    """Return the socket, without write buffering."""
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


@contextmanager
def listening(transport: Transport, directory: Path) -> Iterator[tuple[socket.socket, str]]:
    """A plain socket that listens, and the address for our node to dial."""
    if transport == "tcp":
        server = socket.create_server(("127.0.0.1", 0))
        place = f"tcp://127.0.0.1:{server.getsockname()[1]}"
    else:
        path = directory / "theirs"
        path.unlink(missing_ok=True)
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(path))
        server.listen()
        place = f"unix://{path}"
    with server:
        server.settimeout(PATIENCE)
        yield server, place


def pinned(ours: Ours) -> TrustPolicy:
    """A policy that refuses the reference peer: it trusts only ourselves."""
    return Pinned(ours.node.node_id)


def silence(peer: ReferencePeer) -> bool:
    """Whether our node ends the transport without another byte."""
    try:
        return not peer.channel.sock.recv(1)
    except ConnectionLost:
        return True
    except OSError as error:
        return not isinstance(error, TimeoutError)
