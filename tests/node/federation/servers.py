"""Servers of a federation without I/O, and links that deliver their events in any order."""

from collections import deque
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from random import Random  # noqa: TID251 - seeded: the order of the cards

from parley._crypto.identity import Identity, NodeId
from parley._crypto.signing import ED25519
from parley._lbm import keys
from parley._node.federation.card_exchange import CardEvent
from parley._node.federation.cards import Card, read_card, sign_card
from parley._node.federation.directory import Directory
from parley._node.federation.limits import CARD_INTERVAL
from parley._node.protocol import codes
from parley._node.protocol.event_types import CARDS

MS = 1_700_000_000_000  # a time in 2023
TRACE = bytes(range(16))

# Each card is parsed and verified once for all servers in a process.
read_once = lru_cache(maxsize=10_000)(read_card)


@cache
def identity(number: int) -> Identity:
    """Return one of the test identities, which are the same in every run."""
    return Identity.from_keys([ED25519.load(number.to_bytes(32, "big"))])


def node_id(number: int) -> NodeId:
    return identity(number).node_id


def card(
    number: int = 1,
    links: Mapping[NodeId, bool] | Iterable[NodeId] = (),
    *,
    server: int = 0,
    made_ms: int = MS,
) -> Card:
    """Create a card of the server `server`; links given only by number relay tunnels."""
    listed = links if isinstance(links, Mapping) else dict.fromkeys(links, True)
    return read_once(sign_card(identity(server), number=number, made_ms=made_ms, links=listed))


def numbers_in(payload: bytes) -> list[tuple[NodeId, int]]:
    cards = map(read_once, CARDS.read(payload)[keys.ENVELOPES])
    return [(one.origin, one.number) for one in cards]


class _Session:
    """A link session: the events in transit in each direction, and the cards that have passed."""

    def __init__(self) -> None:
        self.under_way: dict[int, deque[CardEvent]] = {}
        self.passed: set[tuple[int, NodeId, int]] = set()


class Servers:
    """A federation of `size` servers that relay for all, controlled by the test.

    Links are pairs (a, b) with a < b. Each card is checked to pass each session only once.
    """

    def __init__(self, size: int, seed: int = 0) -> None:
        self.random = Random(seed)
        self.now, self.now_ms = 0.0, MS
        self.sent = 0  # bytes
        self._number = {node_id(server): server for server in range(size)}
        self._sessions: dict[tuple[int, int], _Session] = {}
        self.directories = [self._start(server) for server in range(size)]

    def _start(self, server: int) -> Directory:
        everybody = list(self._number)
        return Directory(identity(server), everybody, carry=everybody, read=read_once)

    @property
    def links(self) -> set[tuple[int, int]]:
        return set(self._sessions)

    def connect(self, a: int, b: int) -> None:
        self._sessions[a, b] = _Session()
        for here, there in ((a, b), (b, a)):
            self._sessions[a, b].under_way[here] = deque()
            assert self.directories[here].link_up(node_id(there), self.now, self.now_ms)
            self.directories[here].begin_exchange(node_id(there))

    def cut(self, a: int, b: int) -> None:
        """End a link and discard the events in transit."""
        del self._sessions[a, b]
        for here, there in ((a, b), (b, a)):
            self.directories[here].link_down(node_id(there), self.now, self.now_ms)

    def restart(self, server: int) -> None:
        """Restart a server without its state; its links come up again."""
        links = [link for link in self._sessions if server in link]
        for link in links:
            self.cut(*link)
        self.directories[server] = self._start(server)
        for link in links:
            self.connect(*link)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.now_ms += round(seconds * 1000)
        for directory in self.directories:
            directory.handle_deadline(self.now, self.now_ms)

    def turn(self, slow: float = 0.4) -> bool:
        """Let each direction of each link, in random order, send or deliver an event.

        Directions that are slow, by chance, are skipped. Returns False if there was no work.
        """
        directions = [
            (session, *pair)
            for (a, b), session in self._sessions.items()
            for pair in ((a, b), (b, a))
        ]
        self.random.shuffle(directions)
        busy = False
        for session, sender, receiver in directions:
            if self.random.random() < slow:
                continue
            event = self.directories[sender].next_event(node_id(receiver), self.now)
            under_way = session.under_way[sender]
            if event is not None:
                self._check(session, sender, event)
                under_way.append(event)
            elif under_way:
                event = under_way.popleft()
                self.directories[receiver].receive(node_id(sender), *event, self.now, self.now_ms)
            busy = busy or event is not None
        return busy

    def _check(self, session: _Session, sender: int, event: CardEvent) -> None:
        self.sent += len(event.payload)
        if event.subcategory == codes.CARDS:
            for origin, number in numbers_in(event.payload):
                assert (sender, origin, number) not in session.passed
                session.passed.add((sender, origin, number))

    def settle(self) -> None:
        """Run until no further events are sent and cut links are no longer listed."""
        for seconds in (0, CARD_INTERVAL, 60, CARD_INTERVAL):
            self.wait(seconds)
            while self.turn() or self.turn(slow=0):
                pass

    def check(self) -> None:
        """Check that all connected servers have each other's newest cards, with the right links."""
        linked: dict[int, set[int]] = {server: set() for server in self._number.values()}
        for a, b in self._sessions:
            linked[a].add(b)
            linked[b].add(a)
        for server, directory in enumerate(self.directories):
            newest = directory.cards.get(node_id(server))
            assert newest is not None or not linked[server]
            if newest is not None:
                assert {self._number[one] for one in newest.links} == linked[server]
            for other in _reached(server, linked) - {server}:
                own = self.directories[other].cards[node_id(other)]
                assert directory.cards[node_id(other)].number == own.number, (server, other)


def _reached(server: int, linked: Mapping[int, set[int]]) -> set[int]:
    found, new = {server}, [server]
    while new:
        further = linked[new.pop()] - found
        found |= further
        new += further
    return found
