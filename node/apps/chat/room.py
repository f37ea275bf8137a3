"""A chat room, as the node that hosts it keeps it.

The author of a message is the peer that proved its id on that connection, whatever the message
claims. Being present means being subscribed, so that everybody whose subscription ended has left.
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
ID_LIMIT: Final = 4  # of these, with one node id
# What one id may say and how often it may join, together.
RATE_COUNT: Final = 20
RATE_SECONDS: Final = 10.0
# Ids whose rate is remembered: whoever leaves must not come back with a fresh one.
_REMEMBERED: Final = 1_000


class Room:
    """A room on `node`. `name` is part of the names of its topic and its call, `host_name`
    is the host's own; `on_message` is told all that happens.

    Raises:
        ParleyError: the node has a room of that name. ValueError: no name for a person.
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
        # The room does not wait for a slow member; and a roster with gaps would be wrong.
        self.topic = node.topic(topic_of(name), slow="unsubscribe", patience=0)
        self.topic.on_subscribe(self._join)
        node.on_call(say_of(name))(self._handle_say)
        self._on_message = on_message
        self._limit = limit
        self._present: dict[Peer, Person] = {}
        self._expected: dict[Peer, Person] = {}  # were let in, and are not there yet
        self._rates: OrderedDict[NodeId, deque[float]] = OrderedDict()
        self._order = anyio.Lock()

    @property
    def people(self) -> list[Person]:
        """Who is here, each once, the host first."""
        return list(dict.fromkeys((self.host, *self._present.values())))

    async def run(self) -> None:
        """Tell everybody who comes and who leaves, until cancelled."""
        while True:
            await self.topic.until(lambda: self._peers() != self._present.keys())
            await self._update()

    async def say(self, text: str) -> None:
        """Say something as the host; raises ValueError if it is not a message."""
        await self._publish(Message("text", self.host, require_text(text)))

    # What peers ask for.

    def _join(self, request: SubscribeRequest) -> Value:
        """Decide on a newcomer. In one go: nothing is said between roster and first note."""
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

    # Inside.

    def _peers(self) -> set[Peer]:
        subscribed = [subscriber.peer for subscriber in self.topic.subscribers]
        return {peer for peer in subscribed if isinstance(peer, Peer) and peer.is_open}

    async def _update(self) -> None:
        """Make the roster that of the subscriptions, and tell what is new."""
        async with self._order:  # a join is told before what is said after it
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
        """Whoever is here at another place already keeps the name."""
        everybody = (self.host, *self._present.values(), *self._expected.values())
        return next((person for person in everybody if person.node_id == node_id), None)

    def _free_name(self, wish: str) -> str:
        """The name, with a number if it is another's."""
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
        """Count one more of somebody's messages; False if it is one too many."""
        now = anyio.current_time()
        times = self._rates.setdefault(node_id, deque(maxlen=RATE_COUNT))
        if len(times) == RATE_COUNT and now - times[0] < RATE_SECONDS:
            return False
        times.append(now)
        self._rates.move_to_end(node_id)
        if len(self._rates) > _REMEMBERED:
            self._rates.popitem(last=False)
        return True


# People that a guest keeps on its roster, whatever its host says.
_MOST_PEOPLE: Final = 1_000
# Seconds that something to be said waits for the room, and then for its answer.
SAY_TIMEOUT: Final = 30.0


@asynccontextmanager
async def join_room(link: Link, room: str, name: str) -> AsyncIterator["Member"]:
    """Join a room while it lasts, and join it again whenever a session ended.

    Raises:
        SubscribeRefused: the host says no, and why. CallRefused: no such room.
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
            if not peer.is_suspended:
                return peer
            await _not_suspended(peer)

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


async def _not_suspended(peer: Peer) -> None:
    """Wait until its session goes on, or is over."""
    await peer.live.changes.until(lambda: not peer.is_suspended)
