"""Forwarding of a topic of another node to a topic of this node."""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self

from parley._lbm.codec import Encodable, Value
from parley._lbm.errors import LbmEncodeError
from parley._node.backoff import Backoff
from parley._node.errors import ParleyError
from parley._node.handlers.topic import Topic
from parley._node.logs import one_line
from parley._node.messaging.notes import DROPPED_HEADER
from parley._node.node import Node
from parley._node.peer.peer import Peer
from parley._node.peer.reconnecting import RetryLoop, random_fraction
from parley._node.peer.subscription import Subscription
from parley._node.protocol.errors import LocalError
from parley._node.transport.address import Address
from parley._node.transport.conditions import Condition
from parley._node.trust.policies import TrustPolicy

logger = logging.getLogger("parley.forward")


class Forward:
    """Republishes a topic of the node at `address` on the topic of the same name of `node`.

    Use it as an async context manager; it forwards during the block. The local topic exists from
    the start; an existing topic of `node` is shared. A `Link` connects to the other node, and
    reconnects after growing `pauses` (`draw` returns their random part, 0 to 1). After a
    subscription was rejected or has ended, the forward subscribes again, with the same pauses.
    `data` is sent with the subscription. `notes` counts published notes, and `cuts` counts lost
    subscriptions.

    Two nodes cannot forward one topic to each other, because each note would circulate forever.
    While this node forwards, it rejects the other node's subscription to the topic. While the other
    node is subscribed, this node doesn't forward. Rings of three or more nodes, and nodes that
    connect without encryption, are not detected.

    Raises:
        AddressError: `address` is not a valid address.
        ConfigError: the address has no node ID, and no `trust` policy was given.

    Example:

        from parley import Forward, Identity, Node

        async with Node(Identity.create()) as source:
            source.topic("weather")
            address = await source.listen("tcp://127.0.0.1:0")
            async with Forward(node, "weather", address) as forward:
                await forward.linked()
    """

    def __init__(
        self,
        node: Node,
        topic: str,
        address: str,
        *,
        trust: TrustPolicy | None = None,
        data: Encodable = None,
        pauses: Backoff | None = None,
        draw: Callable[[], float] = random_fraction,
    ) -> None:
        self.node = node
        self._new_link = partial(node.link, address, trust=trust, pauses=pauses, draw=draw)
        self._link = self._new_link()
        target = Address.parse(address)
        self.address, self._place = str(target), target.place
        self.topic: Topic[Any] = node.topics.get(topic) or node.topic(topic)
        self.notes = 0  # notes published here
        self.cuts = 0  # number of lost subscriptions
        self._data = data
        self._subscription: Subscription | None = None
        self._lost = 0  # notes lost over earlier links
        self._misfits = 0  # notes that cannot be published here
        self._logged_losses = 0  # number of losses when they were last logged
        self._logged_reason = ""  # the last logged reason for the missing link
        self._without = 0.0
        self._since = 0.0  # when the link was established or lost
        self._changes = Condition(lambda: node.backend.waiter())
        self._redial = RetryLoop(self._attempt, self._again, pauses=pauses, draw=draw)

    def __repr__(self) -> str:
        state = "linked" if self.is_linked else "not linked"
        return f"<Forward of {self.topic.name!r} from {self._place}, {state}>"

    @property
    def is_linked(self) -> bool:
        """Whether the forward is subscribed now."""
        return self._subscription is not None

    @property
    def peer(self) -> Peer | None:
        """The other node while there is a link, otherwise None."""
        return self._link.peer if self.is_linked else None

    @property
    def lost(self) -> int:
        """Number of notes that are known to be lost.

        The other node dropped them because this node was too slow, or the local topic rejected
        them. Notes published while there was no link are not counted.
        """
        subscription = self._subscription
        lost = self._lost + self._misfits
        return lost if subscription is None else lost + _dropped(subscription)

    @property
    def seconds_without_link(self) -> float:
        """Total time without a link since the start, in seconds."""
        if self._redial.is_over or self.is_linked:
            return self._without
        return self._without + self.node.backend.now() - self._since

    async def linked(self) -> None:
        """Wait for a link.

        Raises:
            ParleyError: the forward isn't running.
        """
        if self._redial.is_over:
            raise ParleyError(f"{self!r} is not running: use `async with`")
        await self._changes.until(lambda: self.is_linked)

    async def __aenter__(self) -> Self:
        """Start to dial.

        Raises:
            ParleyError: the node isn't running, or the forward already is.
        """
        loop = self.node.backend
        if not self._redial.is_over:
            raise ParleyError(f"{self!r} is already running; create another one")
        self._since = loop.now()
        self._link = await self._new_link().__aenter__()
        self._redial.begin(loop)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        """Send Close to the other node without waiting for its answer; the topic stays."""
        if self._redial.is_over:
            return
        cuts, self._without = self.cuts, self.seconds_without_link
        await self._redial.stop()
        await self._link.aclose(graceful=False)
        self.cuts = cuts  # leaving doesn't count as a lost subscription

    # Internals.

    def _again(self, why: Exception, seconds: float) -> None:
        reason, logged = one_line(str(why)), self._logged_reason
        self._logged_reason = reason
        logger.log(
            logging.DEBUG if reason == logged else logging.WARNING,
            "topic %r of %s: %s; subscribing again in %.1f s",
            self.topic.name,
            self._place,
            reason,
            seconds,
            extra={"event": "forward.failed", "topic": self.topic.name, "again_in": seconds},
        )

    async def _attempt(self) -> Exception:
        """Wait for a session and forward notes until the subscription ends; return the reason."""
        try:
            return await self._carry(await self._link.next_session())
        finally:
            self.cuts += self.is_linked
            self._unlinked()

    async def _carry(self, peer: Peer) -> Exception:
        async with peer.subscribe(self.topic.name, self._data) as subscription:
            leave = self.topic.add_source(peer.node_id)
            try:
                self._linked(subscription)
                async for notes in subscription.batches():
                    headers = _own_headers(subscription.headers)
                    for note in notes:
                        await self._publish(note, headers)
                    self._log_losses()
            finally:
                leave()
        return ParleyError("the other node ended the topic")

    async def _publish(self, note: Value, headers: Mapping[str, Value] | None) -> None:
        try:
            await self.topic.publish(note, headers)
        except (LocalError, LbmEncodeError, TypeError) as error:
            # TypeError: the local topic has a type that the note doesn't match.
            if not self._misfits:
                logger.warning(
                    "cannot publish a note from %s on topic %r: %s; further ones are not logged",
                    self._place,
                    self.topic.name,
                    error,
                    extra={"event": "forward.misfit", "topic": self.topic.name},
                )
            self._misfits += 1
        else:
            self.notes += 1

    def _linked(self, subscription: Subscription) -> None:
        now = self.node.backend.now()
        without, self._since = now - self._since, now
        self._without += without
        self._logged_reason = ""
        if self.cuts:
            logger.warning(
                "topic %r of %s: linked again; notes published in the last %.1f s are missing",
                self.topic.name,
                self._place,
                without,
                extra={"event": "forward.again", "topic": self.topic.name, "without": without},
            )
        else:
            logger.info(
                "topic %r of %s: linked",
                self.topic.name,
                self._place,
                extra={"event": "forward.linked", "topic": self.topic.name},
            )
        self._redial.established()
        self._subscription = subscription
        self._changes.notify()

    def _unlinked(self) -> None:
        """Record the end of the subscription, if there was one."""
        subscription = self._subscription
        if subscription is None:
            return
        self._log_losses()
        self._since = self.node.backend.now()
        self._lost += _dropped(subscription)
        self._subscription = None
        self._changes.notify()

    def _log_losses(self) -> None:
        """Log the first loss, and then each time the number has doubled."""
        lost = self.lost
        if lost and lost >= 2 * self._logged_losses:
            self._logged_losses = lost
            logger.warning(
                "topic %r of %s: %d notes lost",
                self.topic.name,
                self._place,
                lost,
                extra={"event": "forward.lost", "topic": self.topic.name, "lost": lost},
            )


def _dropped(subscription: Subscription) -> int:
    return subscription.dropped + subscription.inbox.malformed


def _own_headers(headers: Mapping[str, Value]) -> Mapping[str, Value] | None:
    """Return the publisher's headers without the one that concerns the forward's own
    subscription.
    """
    if DROPPED_HEADER in headers:
        headers = {name: value for name, value in headers.items() if name != DROPPED_HEADER}
    return headers or None
