"""`Remote`: the other side of a connection, as a handler sees it.

A native `Peer` is one, and so is a `Guest` of another dialect, which has proved nothing and
speaks a part of this.
"""

from collections.abc import Mapping
from typing import Any, Protocol, TypedDict, Unpack, overload

from parley._crypto.identity import NodeId
from parley._crypto.registry import Suite
from parley._lbm.codec import Encodable, Value
from parley._node.data_types import Model, R
from parley._node.errors import PeerClosedError
from parley._node.messaging.formats import FormatName
from parley._node.messaging.payloads import Payload, Tandem
from parley._node.protocol.reports import ConnectionEnded
from parley._node.remote.emission import Emission
from parley._node.transport.backend import Backend
from parley._node.transport.driver import Driver


class RequestOptions(TypedDict, total=False):
    """Options of a request.

    Attributes:
        timeout: seconds for all of the request; it travels as the deadline. None: as long as the
            connection is open.
        headers: application headers, by name.
    """

    timeout: float | None
    headers: Mapping[str, Encodable] | None


class Remote(Protocol):
    """The other side of one connection. `name` is where it came from, or what was dialled;
    `backend` and `driver` are for whatever runs its requests."""

    backend: Backend
    driver: Driver
    name: str

    @property
    def node_id(self) -> NodeId | None:
        """The node id that it proved; None if it proved none."""

    @property
    def path(self) -> tuple[NodeId, ...]:
        """The way of its transport through a federation; empty for a direct one (`Peer.path`)."""

    @property
    def encrypted(self) -> bool:
        """Whether the connection is encrypted and its other side authenticated."""

    @property
    def suite(self) -> Suite | None:
        """The algorithms agreed on; None without encryption."""

    @property
    def role(self) -> str:
        """What it claims to be: a claim, from which no rights follow."""

    @property
    def info(self) -> Mapping[str, Value]:
        """What it says of itself."""

    @property
    def is_open(self) -> bool:
        """Whether the connection is open."""

    @property
    def is_gone(self) -> bool:
        """Whether its transport is closed."""

    @overload
    async def call(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        once: bool | bytes = False,
        returns: None = None,
        **options: Unpack[RequestOptions],
    ) -> Value: ...

    @overload
    async def call(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        once: bool | bytes = False,
        returns: type[R],
        **options: Unpack[RequestOptions],
    ) -> R: ...

    async def call(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        once: bool | bytes = False,
        returns: Any = None,
        **options: Unpack[RequestOptions],
    ) -> Any:
        """Call a topic and return the data of its answer; raises as `Peer.call`."""

    def emit(
        self,
        name: str,
        data: Encodable | Tandem | Payload = None,
        *,
        namespace: str = "",
        format: FormatName = ...,
    ) -> Emission:
        """Emit a named event; raises as `Peer.emit`."""

    async def close(self, code: int = ..., text: str = "") -> None:
        """End the connection gracefully: what is queued goes first."""

    async def closed(self) -> ConnectionEnded:
        """Wait for the end of the connection; returns why it ended."""

    def closed_error(self) -> PeerClosedError:
        """Why nothing can be asked any more."""
