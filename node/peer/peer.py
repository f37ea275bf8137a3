"""`Peer`: the other node of one connection, as applications use it.

It joins the connection with what speaks on it and with the handlers of its node. Whatever waits
here ends with the connection, at once, with its code.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Self

from parley._crypto.identity import NodeId
from parley._crypto.registry import Suite
from parley._lbm.codec import Encodable, Value
from parley._node.handlers.interceptors import Intercepted
from parley._node.messaging.formats import FormatName
from parley._node.messaging.payloads import Payload, Tandem, make_payload
from parley._node.peer.endpoint import Endpoint, Host
from parley._node.peer.requests import PeerRequests
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.connection import Connection
from parley._node.protocol.limits import Limits
from parley._node.protocol.reports import ConnectionEnded
from parley._node.remote.emission import Emission
from parley._node.remote.live_connection import LiveConnection
from parley._node.remote.stream import Stream
from parley._node.trust.policies import Decider

if TYPE_CHECKING:
    from parley._node.bus.bus import Bus
    from parley._node.bus.config import BusConfig
    from parley._node.bus.remote.store import LentBuses


class Peer(PeerRequests):
    """The other node. Made by `Node`. `name`, for the log, is the address dialled or where the
    connection came from."""

    def __init__(
        self,
        core: Connection,
        host: Host,
        name: str,
        trust: Decider,
        dialled: str | None,
        on_change: Callable[["Peer"], None],
    ) -> None:
        self.core = core
        self.backend = host.backend
        self.name = name
        self.live = live = LiveConnection(core, self, host.backend, host.config, name)
        self.endpoint = end = Endpoint(live, host, trust, dialled)
        self.driver = live.driver
        self.calls = end.calls
        self.asking = end.calls.asking
        self.interceptors = host.handlers.interceptors
        self.topics = end.topics
        self.streams = end.streams
        self._buses: LentBuses | None = None
        live.on_change = lambda: on_change(self)

    def __repr__(self) -> str:
        return f"<Peer {self.node_id.short if self.node_id else self.name}>"

    def __str__(self) -> str:
        """The peer as log lines name it."""
        return f"peer {self.node_id.short if self.node_id else self.name}"

    # What is known of it.

    @property
    def node_id(self) -> NodeId | None:
        """The id that the other side has proved; None on an unencrypted connection."""
        return self.live.node_id

    @property
    def suite(self) -> Suite | None:
        """The algorithms agreed on; None on an unencrypted connection."""
        return self.live.agreed.suite if self.live.agreed else None

    @property
    def encrypted(self) -> bool:
        """Whether the connection is encrypted and its peer authenticated."""
        return self.suite is not None

    @property
    def role(self) -> str:
        """What the other side claims to be: a claim, from which no rights follow."""
        return self.live.agreed.remote_role if self.live.agreed else ""

    @property
    def info(self) -> Mapping[str, Value]:
        """What the other side says of itself."""
        return self.live.agreed.info if self.live.agreed else {}

    @property
    def limits(self) -> Limits:
        """The limits that both sides keep."""
        return self.live.limits

    @property
    def is_gone(self) -> bool:
        """Whether its transport is closed."""
        return self.live.gone

    @property
    def is_parted(self) -> bool:
        """Whether the session has lost its transport and waits for another; what is asked of it
        meanwhile waits with it. It is open all the same."""
        return self.live.is_parted

    @property
    def path(self) -> tuple[NodeId, ...]:
        """The way of its transport through a federation (section 19), from origin to target; empty
        for a direct one. Only the neighbour is proven: nothing is authorised by the others."""
        return self.live.path

    @property
    def resumes(self) -> int:
        """How often the session went on over a new transport."""
        return self.live.resumes

    @property
    def running_calls(self) -> int:
        """How many handlers of this peer's calls run."""
        return len(self.calls.answering)

    @property
    def ignored(self) -> int:
        """Named events of the peer for which there was no handler."""
        return self.calls.named.ignored

    @property
    def dropped(self) -> int:
        """Events that nobody took."""
        return self.core.dropped

    # What to ask of it.

    def emit(
        self,
        name: str,
        data: Encodable | Tandem | Payload = None,
        *,
        namespace: str = "",
        format: FormatName = "lbm",
    ) -> Emission:
        """Emit a named event: `await` it, or ask it for its `reply()` or `replies()`. `format` is
        what the data travels in; `raw` takes bytes as they are, a Tandem two payloads. What is
        raised, and when: `Emission`.

        Raises:
            FormatError: there is no such format, or `raw` is given something other than bytes.
        """
        end = self.endpoint
        emitter = end.emitter_of(name) if self.interceptors.event_out else end.emitter
        return Emission(emitter, name, namespace, make_payload(data, format))

    def open_stream(self, label: str, answers: Iterable[tuple[int, int]] = ()) -> Stream:
        """Open a stream to the handler that the other side has for `label`. `answers` are the
        types of events, as (category, subcategory), that answer `stream.request`.

        Raises:
            PeerClosedError: the connection is over. ConfigError: `answers` are not types.
            LocalProtocolError: as many streams are open as were agreed.
        """
        chain = self.interceptors.stream_out
        if not chain:
            return self.streams.open(label, answers)
        stream: Stream = chain.run(
            Intercepted(chain, self, label), lambda one: self.streams.open(one.name, answers)
        )
        return stream

    def bus(self, config: "BusConfig | None" = None) -> "Bus":
        """The bus that the other side offers (docs/bus.md): for as long as this connection
        lives, and as far as the other side allows. `config` has what is decided on this side:
        `service`, `consumer`, `timeout`. One on the next connection goes on as the same consumer if
        `config.consumer` is the same."""
        if self._buses is None:
            # Here: most connections have none, and programs start sooner without it.
            from parley._node.bus.remote.store import lend

            self._buses = lend(self.live, self.streams)
        return self._buses.open(config)

    async def ping(self) -> float:
        """The round-trip time in seconds.

        Raises:
            PeerClosedError: the connection is over. LocalProtocolError: 64 wait already,
                or there were more than 8,192 at once and 512 a second.
        """
        return await self.live.ping()

    def update_keys(self) -> None:
        """Go on under the next keys in our direction.

        Raises:
            PeerClosedError: the connection is over. LocalProtocolError: more than 32 at once,
                and one in 2 s in which there is a transport.
        """
        self.live.update_keys()

    async def rekey(self) -> int:
        """Agree on fresh keys for both directions; returns the rekey's number. One that is under
        way already, by either side's wish, is joined.

        Raises:
            PeerClosedError: the connection is over, or ended before the rekey was finished, within
                30 s. LocalProtocolError: the last rekey is less than 10 s old.
        """
        return await self.live.rekey()

    def redial(self) -> None:
        """Make a new transport now, the side that dialled alone: the network has changed, or
        the pause before the next attempt is too long. The old transport goes when the new one is
        there; `resumes` says when.

        Raises:
            PeerClosedError: the connection is over. LocalProtocolError: the other side dialled, or
                no resuming was agreed.
        """
        self.live.redial()

    # Its end.

    async def closed(self) -> ConnectionEnded:
        """Wait for the end of the connection; returns why it ended."""
        return await self.live.closed()

    async def close(self, code: int = CloseCode.NORMAL, text: str = "") -> None:
        """End gracefully: what is queued goes first; returns when the transport is closed.

        Raises:
            ValueError: `code` is not one that Close may carry.
        """
        if self._buses is not None:
            await self._buses.aclose()  # as long as events can be given back
        self.live.draining = True
        self.topics.flush()
        self.core.close(self.backend.now(), code, text)
        self.driver.settle()
        await self.live.changes.until(lambda: self.live.gone)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        """Close; by an exception without waiting for it."""
        if exc_type is None:
            await self.close()
        else:
            self.live.drop(CloseCode.NORMAL)
