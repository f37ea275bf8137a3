"""A chat room, as the node that hosts it keeps it.

The author of a message is the peer that proved its id on that connection, whatever the message
claims. Being present means being subscribed, so that everybody whose subscription ended has left.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

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
from parley._node.errors import CallRefused, SubscribeRejected
from parley._node.handlers.topic import SubscribeRequest
from parley._node.node import Node
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
        node.on_call(say_of(name))(self._said)
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
            raise SubscribeRejected("cannot join over plaintext: a proved node id is required")
        try:
            wish = clean_name(data.get("name") if isinstance(data, dict) else None)
        except ValueError as error:
            raise SubscribeRejected(str(error)) from error
        self._forget_expected()
        others = {*self._present, *self._expected} - {peer}
        if len(others) >= self._limit:
            raise SubscribeRejected(f"the room is full: it has {self._limit:,} places")
        if sum(other.node_id == peer.node_id for other in others) >= ID_LIMIT:
            raise SubscribeRejected(
                f"your node id has too many connections to this room: at most {ID_LIMIT}"
            )
        if not self._counts(peer.node_id):
            raise SubscribeRejected("too often: wait a little")
        person = self._known(peer.node_id) or Person(peer.node_id, self._free_name(wish))
        self._expected[peer] = person
        return {
            "room": self.name,
            "you": person.encode(),
            "people": [somebody.encode() for somebody in self.people],
        }

    async def _said(self, call: Call) -> None:
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
                await self._tell(Message("leave", person))
            for person in after - before:
                await self._tell(Message("join", person))

    async def _publish(self, message: Message) -> None:
        async with self._order:
            await self._tell(message)

    async def _tell(self, message: Message) -> None:
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
