"""A place in a room that another node hosts, over as many sessions as it takes.

The host is believed about what only it can know, such as who proved which id to it; what is not a
message is ignored.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, Self

import anyio

from parley._crypto.identity import NodeId
from parley._node.apps.chat.messages import Message, Person, say_of, topic_of
from parley._node.errors import (
    CallRefused,
    ParleyError,
    PeerClosedError,
    UnreachableError,
)
from parley._node.links.link import Link
from parley._node.links.subscription import LinkSubscription
from parley._node.peer.peer import Peer

# People that a guest keeps on its roster, whatever its host says.
_MOST_PEOPLE: Final = 1_000
# Seconds that something to be said waits for the room, and then for its answer.
SAY_TIMEOUT: Final = 30.0


@asynccontextmanager
async def joined(link: Link, room: str, name: str) -> AsyncIterator["Member"]:
    """Join a room while it lasts, and join it again whenever a session ended.

    Raises:
        SubscribeRejected: the host says no, and why. CallRefused: no such room.
        CallTimeout: no answer. PeerClosedError: the link has ended. ParleyError: not a room.
    """
    wish = {"name": name}
    async with link.subscribe(topic_of(room), wish) as subscription:
        yield Member(subscription, room, wish)


class Member:
    """Our place: `async for message in member` is what happens there. `me` is who we are:
    the name may be another than we wished for. What happens while the connection is lost is not
    known; `on_return` is called, in its turn, each time that we have joined again."""

    def __init__(self, subscription: LinkSubscription, room: str, wish: dict[str, str]) -> None:
        self.on_return: Callable[[], None] = lambda: None
        self._subscription = subscription
        self._room = room
        self._wish = wish  # which is what is asked for each time
        self._arrive()
        subscription.on_session(self._return)

    @property
    def people(self) -> list[Person]:
        """Who is here, as the host tells."""
        return list(self._people.values())

    @property
    def is_over(self) -> bool:
        """Whether the host has closed the room, or we have left it: nothing follows what happened
        until then."""
        return self._subscription.is_over

    async def say(self, text: str) -> None:
        """Say something, once we are in the room.

        Raises:
            UnreachableError: we were not, for 30 s, or will not be any more: it was not said.
            CallRefused: nor was it (code 19: too much, 21: too long). CallTimeout,
            PeerClosedError: whether it was said is not known.
        """
        try:
            with anyio.fail_after(SAY_TIMEOUT):
                peer = await self._present()
        except TimeoutError as error:
            raise UnreachableError(f"not in the room for {SAY_TIMEOUT:g} s") from error
        except (CallRefused, PeerClosedError, anyio.ClosedResourceError) as error:
            raise UnreachableError(f"not in the room {self._room!r} any more: {error}") from error
        await peer.call(say_of(self._room), text, timeout=SAY_TIMEOUT)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """What happens next, until the host closes the room.

        Raises:
            ParleyError: what was joined again is not a room. Otherwise as `LinkSubscription`.
        """
        while True:
            note = await anext(self._subscription)
            try:
                message = Message.parse(note)
            except ValueError:
                continue  # of another version, or nonsense
            person = message.person
            if message.kind == "leave":
                self._people.pop(person.node_id, None)
            elif message.kind == "join" and len(self._people) < _MOST_PEOPLE:
                self._people[person.node_id] = person
            return message

    async def _present(self) -> Peer:
        """The host, once we are in its room and nothing keeps us from it. What a session without
        a transport is given may go down with it, so that it is not given to one."""
        while True:
            peer = await self._subscription.ready()
            if not peer.is_parted:
                return peer
            await _not_parted(peer)

    def _arrive(self) -> None:
        """The host has let us in: take what it says of us, and of the others."""
        welcome = self._subscription.data
        try:
            if not isinstance(welcome, dict) or not isinstance(welcome.get("people"), list):
                raise ValueError(f"its answer is not a welcome: {ascii(welcome)[:80]}")
            self.me = Person.parse(welcome.get("you"))
            people = [Person.parse(value) for value in welcome["people"][:_MOST_PEOPLE]]
        except ValueError as error:
            raise ParleyError(f"there is no chat room {self._room!r}: {error}") from error
        self._people: dict[NodeId, Person] = {person.node_id: person for person in people}
        self._wish["name"] = self.me.name  # so that it stays, if others come back before us

    def _return(self) -> None:
        self._arrive()
        self.on_return()


async def _not_parted(peer: Peer) -> None:
    """Wait until its session goes on, or is over."""
    await peer.live.changes.until(lambda: not peer.is_parted)
