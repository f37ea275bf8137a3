"""`SimProtoSubscription`: a topic that the other side publishes, as it is read.

What is not read slows only this subscription, which ends with its `async with`. SimProto numbers no
notes and keeps none: what is published while there is no connection is lost.
"""

import logging
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Protocol, Self

import anyio

from parley._lbm.codec import Encodable
from parley._node.errors import CallRefused, ParleyError, PeerClosedError
from parley._node.gateways.guest import Guest
from parley._node.gateways.simproto.link import SimProtoLink
from parley._node.gateways.simproto.notes import SimProtoNotes, check_window
from parley._node.links.emitter import Waited
from parley._node.links.redial import random_fraction
from parley._node.links.subscription import PASSING, PAUSES
from parley._node.logs import one_line
from parley._node.transport.waiting import pause

logger = logging.getLogger("parley.gateway")


class SimProtoSource(Waited["SimProtoPublisher"], Protocol):
    """Where a topic is subscribed to: over one connection, or over one after another."""

    @property
    def is_over(self) -> bool:
        """Whether no connection follows the one that there is, or was."""


class SimProtoPublisher(Protocol):
    """The other side of one connection."""

    @property
    def link(self) -> SimProtoLink:
        """The connection."""


class SimProtoSubscription:
    """The notes of a topic, in their order, each as bytes (None if it is empty): `async with
    peer.subscribe("prices") as notes`, then `async for note in notes`. One task may read
    at a time.

    `data` is what came with the acceptance, bytes or None. If it was made by a client with
    `pauses`, it goes on when a connection was lost: what had come is read first, and then, as the
    next note is asked for, the topic is subscribed to again. `cuts` counts the connections that
    were lost before the last note that was read: where it is more than before, notes may be
    missing.

    Raises:
        ConfigError: `window` is below 65,536.
    """

    def __init__(
        self,
        source: SimProtoSource,
        topic: str,
        data: Encodable,
        timeout: float | None,
        window: int,
    ) -> None:
        check_window(window)
        self.topic = topic
        self.data: bytes | None = None
        self.cuts = 0
        self._source = source
        self._asked = data
        self._timeout = timeout
        self._window = window
        self._begun = self._left = False
        self._lost = 0  # connections
        self._link: SimProtoLink | None = None  # the last one
        self._notes: SimProtoNotes | None = None  # over that; None: it was read to its end
        self._again: anyio.CancelScope | None = None  # while it is subscribed to again
        self._reading = anyio.ResourceGuard("reading from")

    def __repr__(self) -> str:
        return f"<SimProtoSubscription to {self.topic!r} of {self._source!r}>"

    @property
    def peer(self) -> Guest:
        """The publisher, over the last connection; ParleyError before it is entered."""
        if self._link is None:
            raise ParleyError(
                f"not subscribed to {self.topic!r} yet; enter the subscription with `async with`"
            )
        return self._link.guest

    # Beginning and end.

    async def __aenter__(self) -> Self:
        """Subscribe; of a client with `pauses`, once there is a connection.

        Raises:
            SubscribeRejected: the publisher said no (code 3). CallRefused: another code:
                1 no such topic, 2 subscribed already. CallTimeout: no response in time, or no
                connection: then its cause is why. PeerClosedError: the connection is over.
            ConversionError: the data has no form. LocalProtocolError: 4,096 wait for the
                connection.
        """
        if self._begun:
            raise ParleyError(
                f"cannot enter the subscription to {self.topic!r} again; call subscribe again"
            )
        self._begun = True
        try:
            await self._subscribe(*await self._source.connected(self._timeout))
        except BaseException:
            self._left = True
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self._left = True
        if self._again is not None:
            self._again.cancel()
        if self._notes is not None:
            await self._notes.end(hasty=exc_type is not None)

    # Reading.

    def __aiter__(self) -> AsyncIterator[bytes | None]:
        return self

    async def __anext__(self) -> bytes | None:
        """The data of the next note, None if it is empty.

        Raises:
            StreamResetError: code 33, slow-consumer: we did not keep up. PeerClosedError: the
                connection is over, and none follows. CallRefused: after a connection was lost the
                publisher refuses, and not for a moment. ClosedResourceError: its `async with` is
                over. BusyResourceError: two tasks read.
        """
        if not self._begun:
            raise ParleyError(
                f"cannot read topic {self.topic!r}: the subscription isn't entered; "
                "use `async with`"
            )
        with self._reading:
            while not self._left:
                if self._notes is None:
                    with anyio.CancelScope() as self._again:
                        await self._subscribe_again()
                    continue
                try:
                    note = await self._notes.take()
                except PeerClosedError:
                    if self._source.is_over:
                        raise
                    self._notes = None
                    self._lost += 1
                else:
                    self.cuts = self._lost
                    return note
        raise anyio.ClosedResourceError

    # Inside.

    async def _subscribe(self, publisher: SimProtoPublisher, timeout: float | None) -> None:
        notes = SimProtoNotes(publisher.link, self.topic, self._window)
        self.data = await notes.begin(self._asked, timeout)
        self._link, self._notes = publisher.link, notes
        if self._left:  # meanwhile
            await notes.end(hasty=True)

    async def _subscribe_again(self) -> None:
        failures = 0
        while True:
            publisher, _ = await self._source.connected(None)
            try:
                await self._subscribe(publisher, self._timeout)
            except PeerClosedError:
                continue
            except CallRefused as error:
                if error.code not in PASSING:
                    raise
                failures += 1
                seconds = PAUSES.after(failures, random_fraction())
                text = "topic %r: %s; asked again in %.1f s"
                logger.info(
                    text,
                    self.topic,
                    one_line(str(error)),
                    seconds,
                    extra={"event": "subscription.again", "again_in": seconds},
                )
                await pause(self._source.backend, seconds)
            else:
                return
