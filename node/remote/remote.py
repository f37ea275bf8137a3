"""The remote side of a connection, as handlers see it: a `Peer`, or a `Guest` of another
dialect.
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

    Attributes: timeout: seconds for the whole request; it is also sent as the deadline. None waits
    until the connection ends. headers: application headers, by name.
    """

    timeout: float | None
    headers: Mapping[str, Encodable] | None


class Remote(Protocol):
    """The remote side of one connection: a `Peer`, or a `Guest` of another dialect.

    `name` is the dialled address, or the address that the connection came from.

    Example:

        def describe(remote):
            return f"{remote.name}: {'encrypted' if remote.encrypted else 'plaintext'}"

        print(describe(peer))
    """

    backend: Backend
    driver: Driver
    name: str

    @property
    def node_id(self) -> NodeId | None:
        """The node ID that the remote side has proved, or None."""

    @property
    def path(self) -> tuple[NodeId, ...]:
        """The route of its transport through a federation; empty for a direct one."""

    @property
    def encrypted(self) -> bool:
        """Whether the connection is encrypted and the remote side authenticated."""

    @property
    def suite(self) -> Suite | None:
        """The cipher suite of the connection; None if it is unencrypted."""

    @property
    def role(self) -> str:
        """The role that the remote side claims. It is unverified and grants no permissions."""

    @property
    def info(self) -> Mapping[str, Value]:
        """Application data from its handshake (unverified)."""

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
        """Call a topic and return the result; raises as `Peer.call`."""

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
        """Send queued data, then close the connection."""

    async def closed(self) -> ConnectionEnded:
        """Wait for the end of the connection; returns how it ended."""

    def closed_error(self) -> PeerClosedError:
        """Return the error for requests after the end."""
