"""A place in a room that another node hosts.

The host is believed about what only it can know, such as who proved which id to it; what is not a
message is ignored.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Self

from crypto.identity import NodeId
from node.apps.chat.messages import Message, Person, say_of, topic_of
from node.errors import ParleyError
from node.peer.peer import Peer
from node.peer.subscription import Subscription

# People that a guest keeps on its roster, whatever its host says.
_MOST_PEOPLE: Final = 1_000
SAY_TIMEOUT: Final = 30.0


@asynccontextmanager
async def joined(peer: Peer, room: str, name: str) -> AsyncIterator["Member"]:
    """Join a room while it lasts.

    Raises:
        SubscribeRejected: the host says no, and why. CallRefused: no such room.
        PeerClosedError: the connection is over. ParleyError: not a room.
    """
    async with peer.subscribe(topic_of(room), {"name": name}) as subscription:
        yield Member(peer, room, subscription)


class Member:
    """Our place: `async for message in member` is what happens there. `me` is who we are:
    the name may be another than we wished for."""

    def __init__(self, peer: Peer, room: str, subscription: Subscription) -> None:
        self._peer = peer
        self._room = room
        self._subscription = subscription
        welcome = subscription.data
        try:
            if not isinstance(welcome, dict) or not isinstance(welcome.get("people"), list):
                raise ValueError("its answer is not a welcome")
            self.me = Person.parse(welcome.get("you"))
            people = [Person.parse(value) for value in welcome["people"][:_MOST_PEOPLE]]
        except ValueError as error:
            raise ParleyError(f"{peer} has no chat room {room!r}: {error}") from error
        self._people: dict[NodeId, Person] = {person.node_id: person for person in people}

    @property
    def people(self) -> list[Person]:
        """Who is here, as the host tells."""
        return list(self._people.values())

    async def say(self, text: str) -> None:
        """Say something; raises as `Peer.call` (code 19: too much, 21: too long)."""
        await self._peer.call(say_of(self._room), text, timeout=SAY_TIMEOUT)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """What happens next, until the host closes the room; raises as `Subscription`."""
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
