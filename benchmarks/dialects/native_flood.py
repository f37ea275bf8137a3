"""A hostile native peer: it proves who it is, then floods, on one connection or on many; or it is a
stranger that asks for sessions which nobody has, on one new connection after another.

It needs the core alone, so that it costs less than whom it floods; what comes back it
reads and throws away. What it costs others is measured elsewhere.
"""

import selectors
import socket
from collections.abc import Callable
from time import perf_counter
from typing import Final, NamedTuple

from benchmarks.dialects.pump import connect
from crypto.hashing import SHA256
from crypto.randomness import random_bytes
from lbm import keys
from lbm.codec import Value
from node.protocol.codes import CALL, EMIT, MAIN_STREAM, NAMED, RESUME, SIM
from node.protocol.config import CoreConfig
from node.protocol.connection import Connection
from node.protocol.event import handshake_event
from node.protocol.frames import frame
from node.protocol.reports import PeerIdentified
from node.protocol.requests import LAST_ASYNC_ID
from node.protocol.resume import TAG_SIZE
from node.protocol.states import State
from parley import ConnectionEnded, Identity
from parley.protocol import Encodable, encode

MANY: Final = 20
READ_SIZE: Final = 1 << 16
LEAST_BLOCK: Final = 1 << 16  # bytes that are encrypted ahead of the socket


class Attack(NamedTuple):
    """One event that is sent again and again: how it is signed, whether it wants an answer, and
    what it is."""

    title: str
    sealed: bool
    answered: bool
    category: int
    subcategory: int
    payload: bytes


def _call(topic: str, data: Encodable) -> bytes:
    return encode({keys.TOPIC: topic, keys.DATA: data})


ATTACKS: Final[dict[str, Attack]] = {
    "sealed": Attack(
        "events that nobody handles, each signed",
        True,
        False,
        NAMED,
        EMIT,
        encode({keys.NAME: "nobody"}),
    ),
    "requests": Attack(
        "calls that want no answer", False, False, SIM, CALL, _call("echo", bytes(128))
    ),
    "arrays": Attack(
        "calls with 8,000 small arrays each", False, False, SIM, CALL, _call("echo", [[0]] * 8_000)
    ),
    # Nearly as many as a payload of this size may have.
    "maps": Attack(
        "calls with 10,000 small maps each, and reads the answers",
        False,
        True,
        SIM,
        CALL,
        _call("echo", [{"a": 1}] * 10_000),
    ),
}
STRANGERS: Final = "resumes"
_TITLES: Final[dict[str, str]] = {
    **{how: attack.title for how, attack in ATTACKS.items()},
    STRANGERS: "Resumes of sessions that nobody has, each on a new connection",
}
NATIVE_FLOODS: Final[dict[str, str]] = {
    **_TITLES,
    **{f"{how}-{MANY}": f"{title}, {MANY} connections" for how, title in _TITLES.items()},
}


class Attacker:
    """One connection of the hostile peer, open for events."""

    def __init__(self, address: str, identity: Identity, attack: Attack) -> None:
        self._attack = attack
        self._sent = 0  # requests that want an answer
        self._block = memoryview(b"")
        self.socket = connect(address.partition("#")[0], b"")
        self._core = Connection(CoreConfig(identity=identity), initiator=True, now=perf_counter())
        try:
            while self._core.state is not State.OPEN:
                self._shake_hands()
        except BaseException:
            self.socket.close()
            raise
        self.socket.sendall(self._core.data_to_send(perf_counter()))
        self.socket.setblocking(False)

    def write(self) -> int:
        """Write what the socket takes; how many bytes that were. Raises OSError."""
        if not self._block:
            self._block = memoryview(self._encrypted())
        try:
            taken = self.socket.send(self._block)
        except BlockingIOError:
            return 0
        self._block = self._block[taken:]
        return taken

    def read(self) -> None:
        """Throw away what came. Raises OSError if the server hung up."""
        if not self.socket.recv(READ_SIZE):
            raise ConnectionError("the server hung up")

    def _encrypted(self) -> bytes:
        _, sealed, answered, category, subcategory, payload = self._attack
        for _ in range(1 + LEAST_BLOCK // len(payload) // 4):
            self._sent += answered
            async_id = self._sent % LAST_ASYNC_ID + 1 if answered else 0
            self._core.send(MAIN_STREAM, async_id, category, subcategory, payload, seal=sealed)
        return self._core.data_to_send(perf_counter())

    def _shake_hands(self) -> None:
        core = self._core
        self.socket.sendall(core.data_to_send(perf_counter()))
        core.receive_data(self.socket.recv(READ_SIZE), perf_counter())
        for report in core.reports():
            if isinstance(report, PeerIdentified):
                core.accept_peer(perf_counter())
            elif isinstance(report, ConnectionEnded):
                raise ConnectionError(report.reason)


class Stranger:
    """One connection on which a session is asked for; the server hangs up when it has refused."""

    def __init__(self, address: str) -> None:
        self.socket = connect(address.partition("#")[0], b"")
        self._resume = resume_of_nobody()
        self.socket.setblocking(False)

    def write(self) -> int:
        """Ask; how many bytes that were. Raises OSError."""
        resume, self._resume = self._resume, b""
        return self.socket.send(resume) if resume else 0

    def read(self) -> None:
        """Throw away the answer. Raises OSError when the server has hung up."""
        if not self.socket.recv(READ_SIZE):
            raise ConnectionError("the server hung up")


def resume_of_nobody() -> bytes:
    """The frame of a Resume whose tag and mac are random."""
    cells: dict[int, Value] = {
        keys.TAG: random_bytes(TAG_SIZE),
        keys.ATTEMPT: 1,
        keys.RECEIVED: 0,
        keys.MAC: random_bytes(SHA256.size),
    }
    return frame(handshake_event(RESUME, encode(cells)))


class NativeHostile:
    """All connections of the hostile peer. `sent` counts bytes, `connections` how often it
    came."""

    def __init__(self, address: str, how: str) -> None:
        name, _, many = how.partition("-")
        self._selector = selectors.DefaultSelector()
        self._make: Callable[[], Attacker | Stranger]
        if name == STRANGERS:
            self._make = lambda: Stranger(address)
        else:
            attack, identity = ATTACKS[name], Identity.create()
            self._make = lambda: Attacker(address, identity, attack)
        self._wanted = int(many or 1)
        self._open = 0
        self.sent = 0
        self.connections = 0

    def flood(self, end: float) -> None:
        """Until then; OSError if it cannot come back at once."""
        while perf_counter() < end:
            while self._open < self._wanted:
                self._come()
            for key, events in self._selector.select(0.01):
                try:
                    if events & selectors.EVENT_READ:
                        key.data.read()
                    self.sent += key.data.write()
                except OSError:
                    self._leave(key.data.socket)

    def close(self) -> None:
        """Leave."""
        for key in list(self._selector.get_map().values()):
            self._leave(key.data.socket)
        self._selector.close()

    def _come(self) -> None:
        attacker = self._make()
        self._selector.register(
            attacker.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, attacker
        )
        self._open += 1
        self.connections += 1

    def _leave(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        connection.close()
        self._open -= 1
