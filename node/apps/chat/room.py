"""A chat room: `Room` on the hosting node, and `Member` for a guest.

The author of a message is the peer that proved its node ID on the connection, whatever the message
claims. The people in a room are its subscribers, so a person leaves when the subscription ends.
"""

from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, Self

import anyio

from parley._crypto.identity import NodeId
from parley._lbm.codec import Value
from parley._node.apps.chat.messages import (
    NAME_LENGTH,
    TEXT_LENGTH,
    Message,
    Person,
    clean_name,
    require_text,
    say_of,
    topic_of,
)
from parley._node.errors import (
    CallRefused,
    ParleyError,
    PeerClosedError,
    SubscribeRefused,
    UnreachableError,
)
from parley._node.handlers.topic import SubscribeRequest
from parley._node.node import Node
from parley._node.peer.link import Link
from parley._node.peer.link_subscription import LinkSubscription
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import ResultCode
from parley._node.remote.requests import Call

ROOM_LIMIT: Final = 100  # connections
ID_LIMIT: Final = 4  # of these, per node ID
# The rate limit of each node ID, for messages and joins together.
RATE_COUNT: Final = 20
RATE_SECONDS: Final = 10.0
# Node IDs whose rate is tracked, even after they leave, so that rejoining does not reset it.
_REMEMBERED: Final = 1_000


class Room:
    """A room on `node`, which hosts it.

    `name` is part of the names of its topic and its call, and `host_name` is the host's name in the
    room. `on_message` is called with each event in the room.

    Raises:
        ParleyError: the node already has a room of that name.
        ValueError: the host's name is invalid.
    """

    def __init__(
        self,
        node: Node,
        name: str,
        host_name: str,
        on_message: Callable[[Message], None],
        *,
        limit: int = ROOM_LIMIT,
    ) -> None:
        self.name = name
        self.host = Person(node.node_id, clean_name(host_name))
        # The room does not wait for slow members. They are unsubscribed, because losing single
        # notes would make their list of people wrong.
        self.topic = node.topic(topic_of(name), slow="unsubscribe", patience=0)
        self.topic.on_subscribe(self._join)
        node.on_call(say_of(name))(self._handle_say)
        self._on_message = on_message
        self._limit = limit
        self._present: dict[Peer, Person] = {}
        self._expected: dict[Peer, Person] = {}  # accepted, but not subscribed yet
        self._rates: OrderedDict[NodeId, deque[float]] = OrderedDict()
        self._order = anyio.Lock()

    @property
    def people(self) -> list[Person]:
        """The people in the room, the host first, each once."""
        return list(dict.fromkeys((self.host, *self._present.values())))

    async def run(self) -> None:
        """Announce joins and leaves until cancelled."""
        while True:
            await self.topic.until(lambda: self._peers() != self._present.keys())
            await self._update()

    async def say(self, text: str) -> None:
        """Send a message as the host; raise ValueError if the text is invalid."""
        await self._publish(Message("text", self.host, require_text(text)))

    # Requests of peers.

    def _join(self, request: SubscribeRequest) -> Value:
        """Accept or refuse a new member.

        It is not async, so that nothing is published between the list of people and the first note.
        """
        peer, data = request.peer, request.data
        if not isinstance(peer, Peer) or peer.node_id is None:
            raise SubscribeRefused("cannot join over plaintext: a proved node id is required")
        try:
            wish = clean_name(data.get("name") if isinstance(data, dict) else None)
        except ValueError as error:
            raise SubscribeRefused(str(error)) from error
        self._forget_expected()
        others = {*self._present, *self._expected} - {peer}
        if len(others) >= self._limit:
            raise SubscribeRefused(f"the room is full: it has {self._limit:,} places")
        if sum(other.node_id == peer.node_id for other in others) >= ID_LIMIT:
            raise SubscribeRefused(
                f"your node id has too many connections to this room: at most {ID_LIMIT}"
            )
        if not self._counts(peer.node_id):
            raise SubscribeRefused("too often: wait a little")
        person = self._known(peer.node_id) or Person(peer.node_id, self._free_name(wish))
        self._expected[peer] = person
        return {
            "room": self.name,
            "you": person.encode(),
            "people": [somebody.encode() for somebody in self.people],
        }

    async def _handle_say(self, call: Call) -> None:
        await self._update()
        person = self._present.get(call.peer) if isinstance(call.peer, Peer) else None
        if person is None:
            raise CallRefused(ResultCode.NOT_AUTHORISED, "join the room first")
        if isinstance(call.data, str) and len(call.data) > TEXT_LENGTH:
            raise CallRefused(
                ResultCode.PAYLOAD_TOO_LARGE, f"at most {TEXT_LENGTH:,} characters at a time"
            )
        try:
            text = require_text(call.data)
        except ValueError as error:
            raise CallRefused(ResultCode.MALFORMED, str(error)) from error
        if not self._counts(person.node_id):
            raise CallRefused(
                ResultCode.OVERLOADED, f"at most {RATE_COUNT} messages in {RATE_SECONDS:g} s"
            )
        await self._publish(Message("text", person, text))

    def _peers(self) -> set[Peer]:
        subscribed = [subscriber.peer for subscriber in self.topic.subscribers]
        return {peer for peer in subscribed if isinstance(peer, Peer) and peer.is_open}

    async def _update(self) -> None:
        """Update the people from the current subscriptions, and announce the changes."""
        async with self._order:  # announce a join before later messages
            there, before = self._peers(), {*self.people}
            for peer in [peer for peer in self._present if peer not in there]:
                del self._present[peer]
            for peer in there - self._present.keys():
                person = self._expected.pop(peer, None)
                if person is not None:
                    self._present[peer] = person
            after = {*self.people}
            for person in before - after:
                await self._deliver(Message("leave", person))
            for person in after - before:
                await self._deliver(Message("join", person))

    async def _publish(self, message: Message) -> None:
        async with self._order:
            await self._deliver(message)

    async def _deliver(self, message: Message) -> None:
        self._on_message(message)
        await self.topic.publish(message.encode())

    def _known(self, node_id: NodeId) -> Person | None:
        """Return the person with this node ID, who keeps the name on further connections."""
        everybody = (self.host, *self._present.values(), *self._expected.values())
        return next((person for person in everybody if person.node_id == node_id), None)

    def _free_name(self, wish: str) -> str:
        """Return the wanted name, with a number if another person has it."""
        everybody = (self.host, *self._present.values(), *self._expected.values())
        taken = {person.name.casefold() for person in everybody}
        name, number = wish, 1
        while name.casefold() in taken:
            number += 1
            ending = f"-{number}"
            name = wish[: NAME_LENGTH - len(ending)] + ending
        return name

    def _forget_expected(self) -> None:
        for peer in [peer for peer in self._expected if not peer.is_open]:
            del self._expected[peer]

    def _counts(self, node_id: NodeId) -> bool:
        """Count one message or join of a node ID; return False if its rate limit is exceeded."""
        now = anyio.current_time()
        times = self._rates.setdefault(node_id, deque(maxlen=RATE_COUNT))
        if len(times) == RATE_COUNT and now - times[0] < RATE_SECONDS:
            return False
        times.append(now)
        self._rates.move_to_end(node_id)
        if len(self._rates) > _REMEMBERED:
            self._rates.popitem(last=False)
        return True


# The maximum number of people that a guest stores, however many the host lists.
_MOST_PEOPLE: Final = 1_000
# Seconds that a message waits for the room, and then for its answer.
SAY_TIMEOUT: Final = 30.0


@asynccontextmanager
async def join_room(link: Link, room: str, name: str) -> AsyncIterator["Member"]:
    """Join a room while the context is active, and rejoin it in each new session.

    Raises:
        SubscribeRefused: the host refused, with its reason.
        CallRefused: there is no such room.
        CallTimeout: no answer.
        PeerClosedError: the link has ended.
        ParleyError: not a chat room.
    """
    wish = {"name": name}
    async with link.subscribe(topic_of(room), wish) as subscription:
        yield Member(subscription, room, wish)


class Member:
    """A guest's membership in a room: `async for message in member` yields its events.

    `me` is the guest as the host knows it; the host may have changed the name. Events during a
    disconnection are lost. `on_return` is called, in order with the events, each time the guest has
    rejoined.
    """

    def __init__(self, subscription: LinkSubscription, room: str, wish: dict[str, str]) -> None:
        self.on_return: Callable[[], None] = lambda: None
        self._subscription = subscription
        self._room = room
        self._wish = wish  # sent with each subscription
        self._arrive()
        subscription.on_session(self._return)

    @property
    def people(self) -> list[Person]:
        """The people in the room, according to the host."""
        return list(self._people.values())

    @property
    def is_over(self) -> bool:
        """Whether the host has closed the room or the guest has left it, so that no further events
        follow.
        """
        return self._subscription.is_over

    async def say(self, text: str) -> None:
        """Send a message, after waiting until the guest is in the room.

        Raises:
            UnreachableError: the guest was not in the room for 30 s, or cannot return to it;
                nothing was sent.
            CallRefused: the host refused the message (code 19: too many, 21: too long).
            CallTimeout, PeerClosedError: it is unknown whether the message was sent.
        """
        try:
            with anyio.fail_after(SAY_TIMEOUT):
                peer = await self._present()
        except TimeoutError as error:
            raise UnreachableError(f"not in the room for {SAY_TIMEOUT:g} s") from error
        except (CallRefused, PeerClosedError, anyio.ClosedResourceError) as error:
            raise UnreachableError(f"no longer in the room {self._room!r}: {error}") from error
        await peer.call(say_of(self._room), text, timeout=SAY_TIMEOUT)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """Return the next event; the iteration ends when the host closes the room.

        Raises:
            ParleyError: the name is no longer that of a chat room. Also the errors of
                `LinkSubscription`.
        """
        while True:
            note = await anext(self._subscription)
            try:
                message = Message.parse(note)
            except ValueError:
                continue  # unknown or malformed
            person = message.person
            if message.kind == "leave":
                self._people.pop(person.node_id, None)
            elif message.kind == "join" and len(self._people) < _MOST_PEOPLE:
                self._people[person.node_id] = person
            return message

    async def _present(self) -> Peer:
        """Return the host as soon as the guest is in its room, over a session with a transport.

        A suspended session may be lost together with data sent over it, so wait until it continues.
        """
        while True:
            peer = await self._subscription.ready()
            if not peer.is_suspended:
                return peer
            await _not_suspended(peer)

    def _arrive(self) -> None:
        """Read the host's answer to the subscription: the guest's name and the people in the
        room.
        """
        welcome = self._subscription.data
        try:
            if not isinstance(welcome, dict) or not isinstance(welcome.get("people"), list):
                raise ValueError(f"its answer is not a welcome: {ascii(welcome)[:80]}")
            self.me = Person.parse(welcome.get("you"))
            people = [Person.parse(value) for value in welcome["people"][:_MOST_PEOPLE]]
        except ValueError as error:
            raise ParleyError(f"there is no chat room {self._room!r}: {error}") from error
        self._people: dict[NodeId, Person] = {person.node_id: person for person in people}
        self._wish["name"] = self.me.name  # keep the name, even if others rejoin earlier

    def _return(self) -> None:
        self._arrive()
        self.on_return()


async def _not_suspended(peer: Peer) -> None:
    """Wait until the session continues or has ended."""
    await peer.live.changes.until(lambda: not peer.is_suspended)
