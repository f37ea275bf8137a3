"""`BlockingPeer`: the other node of one connection, for a program that awaits nothing."""

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from types import UnionType
from typing import Any, overload

from parley._crypto.identity import Identity, NodeId
from parley._lbm.codec import Encodable
from parley._node.blocking.background import Background
from parley._node.blocking.reading import BlockingAnswer
from parley._node.blocking.requests import BlockingRequests
from parley._node.data_types import D, Model
from parley._node.meeting import CONNECT_TIMEOUT
from parley._node.node import Node
from parley._node.peer.peer import Peer
from parley._node.trust.policies import AcceptHook, TrustPolicy


class BlockingPeer(BlockingRequests[Peer]):
    """A peer whose methods wait for what they return. Made by `parley.blocking.connect`.

    `peer` is the same for asynchronous code, which has to run in its loop: `run` does that.
    """

    def __repr__(self) -> str:
        return f"<BlockingPeer {self.peer.node_id.short if self.peer.node_id else self.peer.name}>"

    @property
    def peer(self) -> Peer:
        """The peer, for what runs in its loop."""
        return self._asked

    @property
    def node_id(self) -> NodeId | None:
        """The id that the other side has proved; None on an unencrypted connection."""
        return self.peer.node_id

    @property
    def is_open(self) -> bool:
        """Whether the connection is open."""
        return self.peer.is_open

    @overload
    def call_stream(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        timeout: float | None = ...,
        headers: Mapping[str, Encodable] | None = ...,
        returns: type[D] | None = None,
    ) -> BlockingAnswer[D]: ...

    @overload
    def call_stream(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        timeout: float | None = ...,
        headers: Mapping[str, Encodable] | None = ...,
        returns: UnionType | type[Any],
    ) -> BlockingAnswer[Any]: ...

    def call_stream(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        timeout: float | None = None,
        headers: Mapping[str, Encodable] | None = None,
        returns: Any = None,
    ) -> BlockingAnswer[Any]:
        """Call a topic whose handler answers in items: `for item in peer.call_stream(..)`; as
        `Peer.call_stream`."""
        answer = self.peer.call_stream(
            topic, data, timeout=timeout, headers=headers, returns=returns
        )
        return BlockingAnswer(self._background, answer)

    def ping(self) -> float:
        """The round-trip time in seconds; raises as `Peer.ping`."""
        return self._background.run(self.peer.ping)


def connect(
    address: str,
    *,
    node: Node | None = None,
    trust: TrustPolicy | AcceptHook | None = None,
    timeout: float = CONNECT_TIMEOUT,
) -> BlockingPeer:
    """Dial a node and do the handshake, as `Node.connect`, which says what is raised.

    `node` is our own, which must not be running and has settings and handlers already; by default
    one with a new identity. It lives in a thread of its own, in a loop of asyncio, until the peer
    is closed.
    """
    ours = node or Node(Identity.create())
    background = Background(ours)
    with ExitStack() as stack:
        stack.push(background.leave)
        dial = partial(ours.connect, address, trust=trust, timeout=timeout)
        peer = BlockingPeer(background, background.run(dial))
        stack.pop_all()
    return peer
