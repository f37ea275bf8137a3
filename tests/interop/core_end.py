"""A core at one end of blocking sockets, in a thread: it echoes, is cut, and resumes.

A minimal substitute for a node's drivers and listener, so that the core alone talks to the
reference. Every wait has a timeout.
"""

import socket
import threading
from collections.abc import Callable
from time import perf_counter, sleep
from typing import Any, Final

from parley._crypto.identity import Identity
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.connection import Connection
from parley._node.protocol.event import Event
from parley._node.protocol.reports import (
    ConnectionEnded,
    PeerIdentified,
    Report,
    Resumed,
    ResumeRequested,
)
from parley._node.protocol.resume_attempt import ResumeAttempt
from parley._node.protocol.resumption import spend_mac

PATIENCE: Final = 4.0
ECHOED: Final = 64  # the category of events that come back as they are
_TURN: Final = 0.02


class CoreEnd:
    """`dial` gives the initiator a new transport; the responder gets them by `arrived`.

    Events of category 64 come back as they are. `reports` are all that were made.
    """

    def __init__(self, config: CoreConfig, *, dial: Callable[[], socket.socket] | None) -> None:
        self.core = Connection(config, initiator=dial is not None, now=perf_counter())
        self.reports: list[Report] = []
        self.rejected: list[Connection] = []
        self._dial = dial
        self._arrived: list[socket.socket] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "CoreEnd":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def arrived(self, sock: socket.socket) -> None:
        """A transport that somebody opened to this end."""
        self._arrived.append(sock)

    def all(self, kind: type[Any]) -> list[Any]:
        """The reports of a kind."""
        return [report for report in self.reports if isinstance(report, kind)]

    def wait_for(self, kind: type[Any], count: int = 1) -> list[Any]:
        """The reports of a kind, once there are so many."""
        ends = perf_counter() + PATIENCE
        while len(self.all(kind)) < count and perf_counter() < ends:
            sleep(_TURN / 4)
        return self.all(kind)

    @property
    def resumed(self) -> list[int]:
        return [report.number for report in self.all(Resumed)]

    @property
    def code(self) -> int | None:
        """The code of its end."""
        ended = self.wait_for(ConnectionEnded)
        return ended[0].code if ended else None

    def _run(self) -> None:
        sock: socket.socket | None = self._dial() if self._dial else None
        while not self._stopped.is_set():
            if sock is None:
                sock = self._again()
                continue
            if self._arrived and not self._dial:
                fresh = self._listen(self._arrived.pop(0))
                sock = fresh or sock
            sock = self._turn(sock)
        if sock is not None:
            sock.close()

    def _again(self) -> socket.socket | None:
        """Another transport, if there may be one."""
        if self._dial is None:
            sleep(_TURN / 4)
            return self._listen(self._arrived.pop(0)) if self._arrived else None
        if not self.core.is_suspended:
            sleep(_TURN)
            return None
        sock, now = self._dial(), perf_counter()
        attempt: ResumeAttempt = self.core.start_attempt(now)
        sock.settimeout(PATIENCE)
        try:
            sock.sendall(attempt.data_to_send(now))
            while attempt.outcome is None and (data := sock.recv(65_536)):
                attempt.receive_data(data, perf_counter())
        except OSError:
            pass
        if attempt.outcome != "resumed":
            sock.close()
            return None
        self._take(attempt.unread_bytes)
        return sock

    def _listen(self, sock: socket.socket) -> socket.socket | None:
        """The first event on a new transport: of the first session, or a Resume."""
        if not self.core.is_suspended and self.core.resumption is None:
            return sock
        fresh = Connection(self.core.config, initiator=False, now=perf_counter())
        sock.settimeout(PATIENCE)
        asked: list[ResumeRequested] = []
        while not asked and not fresh.ended and (data := sock.recv(65_536)):
            fresh.receive_data(data, perf_counter())
            asked += [r for r in fresh.reports() if isinstance(r, ResumeRequested)]
            sock.sendall(fresh.data_to_send(perf_counter()))
        now, core = perf_counter(), self.core
        if asked and core.resumption is not None and asked[0].resume.tag in core.resumption.tags:
            if core.accept_resume(asked[0].resume, now):
                self._take(fresh.hand_over())
                return sock
        elif asked:
            spend_mac(asked[0].resume)
        if asked:
            fresh.refuse_resume(now)
        sock.sendall(fresh.data_to_send(now))
        self.rejected.append(fresh)
        sock.close()
        return None

    def _turn(self, sock: socket.socket) -> socket.socket | None:
        """Read a little and write the available output; None once the transport is closed."""
        sock.settimeout(_TURN)
        try:
            if not self._say(sock):
                return None
            data = sock.recv(65_536)
        except TimeoutError:
            self.core.handle_deadline(perf_counter())
            return sock
        except OSError:
            data = b""
        if not data:
            self.core.receive_eof(perf_counter())
            self.reports += self.core.reports()
            sock.close()
            return None
        self._take(data)
        return sock

    def _say(self, sock: socket.socket) -> bool:
        while data := self.core.data_to_send(perf_counter()):
            sock.sendall(data)
        return not self.core.ended and not self.core.is_suspended

    def _take(self, data: bytes) -> None:
        now = perf_counter()
        self.core.receive_data(data, now)
        while reports := self.core.reports():
            self.reports += reports
            for report in reports:
                if isinstance(report, PeerIdentified):
                    self.core.accept_peer(now)
                    self.core.receive_data(b"", now)
                elif isinstance(report, Event) and report.category == ECHOED:
                    self.core.send(1, 0, ECHOED, 1, report.payload, lbm=False)


def core_config(identity: Identity, **settings: Any) -> CoreConfig:
    """The cheap exchange, and resuming for 30 s."""
    return CoreConfig(
        identity=identity, algorithms={"kex": ("x25519",)}, **{"resume": 30.0, **settings}
    )
