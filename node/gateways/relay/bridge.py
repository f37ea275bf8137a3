"""The bridge between a relay's broadcasts and a topic's notes.

A message isn't sent back to its source. The bridge is a client of the relay with its node's UUID
(docs/protocol.md, section 4).
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from parley._lbm.codec import Encodable
from parley._node.dialects.relay.codec import BROADCAST, UUIDS_SIZE, decode_messages, encode_message
from parley._node.dialects.relay.router import Piece
from parley._node.dialects.values import ConversionError, Rest, from_bytes, to_bytes
from parley._node.errors import ParleyError
from parley._node.gateways.relay.relay import Relay
from parley._node.handlers.topic import Topic
from parley._node.protocol.errors import PayloadTooLargeError
from parley._node.transport.loop import Runner, Waiter

logger = logging.getLogger("parley.gateway")

# The header of a note that was a broadcast: the sender's UUID as text.
SENDER = "relay.sender"
# The cost of a broadcast that waits to be published, in addition to its payload, in bytes.
MESSAGE_COST = 300


class Bridge:
    """Connects a `relay` and a `topic` during its `async with` block.

    A broadcast becomes a note with the payload as its data and the header `relay.sender`. A note
    becomes a broadcast: bytes and text are sent unchanged, other data in the format `values`
    ("cbor", "msgpack" or "json"). Enter the bridge before the relay listens, so that no client
    takes its `uuid` (`node.node_id.uuid`).

    `published` counts forwarded broadcasts, and `broadcast` counts forwarded notes. `lost` counts
    messages that were too long, could not be encoded, or exceeded the relay's
    `limits.write_buffer`. `ignored` counts direct messages to the node.

    Example:

        from parley.dialects import Bridge, Relay

        topic = node.topic("weather")
        async with Relay() as relay, Bridge(relay, topic, node.node_id.uuid):
            address = await relay.listen("tcp://127.0.0.1:0")
            await topic.publish("rain")
    """

    def __init__(
        self, relay: Relay, topic: Topic[Any], uuid: UUID, *, values: Rest = "cbor"
    ) -> None:
        self.relay = relay
        self.topic = topic
        self.uuid = uuid
        self.published = self.broadcast = self.lost = self.ignored = 0
        self._values: Rest = values
        self._tap = self._noted  # one object, because the topic compares its taps by identity
        self._queue: deque[tuple[bytes, bytes]] = deque()
        self._waiting_size = 0
        self._waiter: Waiter | None = None
        self._runner: Runner | None = None
        self._undo: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<Bridge {self.topic.name!r} as {self.uuid}>"

    async def __aenter__(self) -> Self:
        """Join the relay and the topic.

        Raises:
            ConfigError: the UUID is in use at the relay.
            ParleyError: the relay isn't running, or the bridge already is.
        """
        if self._undo:
            raise ParleyError(f"the bridge of topic {self.topic.name!r} is already running")
        backend = self.relay.backend
        self._undo = [self.relay.join(self.uuid, self), self.topic.tap(self._tap)]
        self._runner = backend.spawn(self._publish)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        undo, self._undo = self._undo, []
        for step in undo:
            step()
        if self._runner is not None:
            self._runner.cancel()
            self._runner = None
        self.lost += len(self._queue)
        self._queue.clear()
        self._waiting_size = 0

    # From the relay to the topic.

    def deliver(self, pieces: Sequence[Piece], held: int, now: float) -> None:
        """Queue broadcasts to be published on the topic."""
        for to, sender, payload in decode_messages(b"".join(pieces)):
            size = len(payload) + MESSAGE_COST
            if to != BROADCAST:
                self.ignored += 1
            elif self._waiting_size + size > self.relay.limits.write_buffer:
                self._lose("the topic is too slow")
            else:
                self._waiting_size += size
                self._queue.append((sender, payload))
        if self._waiter is not None:
            self._waiter.wake()

    async def _publish(self) -> None:
        queue = self._queue
        while True:
            while queue:
                sender, payload = queue.popleft()
                self._waiting_size -= len(payload) + MESSAGE_COST
                headers = {SENDER: str(UUID(bytes=sender))}
                try:
                    await self.topic.publish(from_bytes(payload), headers, source=self._tap)
                except PayloadTooLargeError:
                    self._lose("it is too long for a note")
                except TypeError as error:  # the topic has a type
                    self._lose(f"it does not match the topic's type: {error}")
                except ParleyError as error:  # the node has stopped
                    self._lose(str(error))
                else:
                    self.published += 1
            self._waiter = self.relay.backend.waiter()
            await self._waiter
            self._waiter = None

    # From the topic to the relay.

    def _noted(self, data: Encodable, headers: Mapping[str, Encodable] | None) -> None:
        if headers and self._came_from_here(headers.get(SENDER)):
            self.ignored += 1
            return
        try:
            payload = to_bytes(data, self._values)
        except ConversionError as error:
            self._lose(str(error))
            return
        if UUIDS_SIZE + len(payload) > self.relay.limits.longest_frame:
            self._lose("it is too long for the relay (longest_frame)")
            return
        self.broadcast += 1
        message = encode_message(BROADCAST, self.uuid.bytes, payload)
        self.relay.broadcast(self.uuid, message)

    def _came_from_here(self, sender: Encodable) -> bool:
        """Return whether a note is a broadcast of this relay that another node's bridge has
        published.
        """
        try:
            return isinstance(sender, str) and UUID(sender) in self.relay
        except ValueError:
            return False

    def _lose(self, reason: str) -> None:
        if not self.lost:
            logger.warning(
                "the bridge of topic %r lost a message: %s; further ones are counted, not logged",
                self.topic.name,
                reason,
                extra={"event": "bridge.lost"},
            )
        self.lost += 1
