"""What is known of the other node of a connection: who it is, what was agreed, how it ended.

One rule: it is read, never changed, from what the core reported. Asks nothing of anybody.
"""

from collections.abc import Mapping

from crypto.identity import NodeId
from crypto.registry import Suite
from lbm.codec import Value
from node.errors import PeerClosedError, handshake_error
from node.messaging.calls import Calls
from node.messaging.dispatch import Dispatch
from node.messaging.topics import Topics
from node.peer.reports import PeerState
from node.protocol.codes import CloseCode
from node.protocol.connection import Connection
from node.protocol.limits import Limits
from node.protocol.reports import ConnectionEnded
from node.transport.waiting import Changes
from node.trust.deciding import Deciding


class PeerView:
    """The part of `Peer` that is only read."""

    name: str
    calls: Calls
    core: Connection
    deciding: Deciding
    dispatch: Dispatch
    topics: Topics
    _changes: Changes
    _state: PeerState

    @property
    def node_id(self) -> NodeId | None:
        """Who the other side proved to be; None on an unencrypted connection."""
        identity = self._state.agreed.identity if self._state.agreed else None
        return identity.node_id if identity else None

    @property
    def suite(self) -> Suite | None:
        """The algorithms agreed on; None on an unencrypted connection."""
        return self._state.agreed.suite if self._state.agreed else None

    @property
    def encrypted(self) -> bool:
        """Whether the connection is encrypted and its peer authenticated."""
        return self.suite is not None

    @property
    def role(self) -> str:
        """What the other side claims to be: a claim, from which no rights follow."""
        return self._state.agreed.remote_role if self._state.agreed else ""

    @property
    def info(self) -> Mapping[str, Value]:
        """What the other side says of itself."""
        return self._state.agreed.info if self._state.agreed else {}

    @property
    def limits(self) -> Limits:
        """The limits that both sides keep."""
        return self._state.agreed.limits if self._state.agreed else self.core.config.limits

    @property
    def is_open(self) -> bool:
        """Whether the handshake is over and the connection is not."""
        return self._state.agreed is not None and self._state.ended is None

    @property
    def is_gone(self) -> bool:
        """Whether its transport is closed."""
        return self._state.gone

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

    def __repr__(self) -> str:
        return f"<Peer {self.node_id.short if self.node_id else self.name}>"

    async def closed(self) -> ConnectionEnded:
        """Wait for the end of the connection; returns why it ended."""
        while self._state.ended is None:
            await self._changes.until(lambda: self._state.ended is not None)
        return self._state.ended

    async def opened(self) -> None:
        """Wait for the end of the handshake.

        Raises:
            NotTrustedError: a side refused the other. HandshakeError: they could not agree.
        """
        await self._changes.until(
            lambda: self._state.agreed is not None or self._state.ended is not None
        )
        ended = self._state.ended
        if self._state.agreed is None and ended is not None:
            refused = self.deciding.refused
            raise refused or handshake_error(ended.code, ended.text, ended.reason)

    def closed_error(self) -> PeerClosedError:
        """Why nothing can be asked any more."""
        if self._state.ended is None:
            return PeerClosedError(CloseCode.NORMAL, "the connection is closing")
        return PeerClosedError(self._state.ended.code, self._state.ended.text)
