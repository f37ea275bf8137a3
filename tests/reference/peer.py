"""A blocking peer for tests: initiator or responder, honest unless a test configures otherwise.

It uses one thread and one socket, and every wait is bounded by the channel's timeout. Received
events are checked and answered here; acts.py has the actions.
"""

import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Literal

from tests.reference import establish, wire
from tests.reference.allowances import Allowances
from tests.reference.batches import batched, meant
from tests.reference.channel import DEFAULT_TIMEOUT, Channel, ConnectionLost
from tests.reference.establish import HONEST, Established, Misbehaviour
from tests.reference.handshake import Config
from tests.reference.primitives import HASH_SIZES
from tests.reference.rekeying import RekeyState
from tests.reference.resume import Resumption, resume_key
from tests.reference.sealing import Opened, Signer, verify_seal
from tests.reference.streams import Streams
from tests.reference.wire import (
    ALWAYS_SEALED_TYPES,
    CELLS,
    CODES,
    STREAM_ZERO_PAYLOAD,
    TYPES,
    Event,
    Violation,
    cells_payload,
    loose_cells,
    strict_cells,
)

Side = Literal["initiator", "responder"]
ON_STREAM_ZERO: Final = frozenset({TYPES["Window"], TYPES["Reset"]})
HANDSHAKE_ONLY: Final = frozenset(
    TYPES[n] for n in ("Hello", "Reply", "Proof", "Retry", "Reject", "Resume", "Resumed")
)
ENCRYPTED_ONLY: Final = frozenset(
    TYPES[name] for name in ("Seal", "KeyUpdate", "RekeyOffer", "RekeyAnswer")
)


class Closed(Exception):
    """The other side sent Close."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code
        self.text = text


class ReferencePeer:
    """Create a peer. With `automatic` False, it doesn't answer and returns every event (keys still
    change).

    `handlers` answer Calls by topic. `signer` replaces the identity's key in later seals. `events`
    has every received event in order, with its form; the events of a Batch follow it.
    """

    def __init__(
        self,
        sock: socket.socket,
        side: Side,
        config: Config,
        *,
        wrong: Misbehaviour = HONEST,
        expected: bytes | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        automatic: bool = True,
    ) -> None:
        self.channel = Channel(sock, timeout)
        self.side: Side = side
        self.config = config
        self.wrong = wrong
        self.expected = expected
        self.automatic = automatic
        self.handlers: dict[str, Callable[[Any], Any]] = {"parley.echo": lambda data: data}
        self.signer: Signer | None = None
        self.events: list[Opened] = []
        self.backlog: deque[Event] = deque()
        self.inside: deque[Event] = deque()  # Events of a Batch that are not yet returned.
        self.unsealed_sent = 0
        self.unsealed_received = 0
        self.newly_sealed = 0  # events in form 0 that the last seal vouched for
        self.allowances = Allowances()
        self.rekeying: RekeyState | None = None
        self.resumption: Resumption | None = None
        self._established: Established | None = None
        self._streams: Streams | None = None

    def handshake(self) -> "ReferencePeer":
        """Up to both Proofs; raises Violation (of either side's making) or ConnectionLost."""
        run = establish.initiate if self.side == "initiator" else establish.respond
        try:
            done = run(self.channel, self.config, self.wrong, self.expected)
        except Violation:
            self.channel.finish()
            raise
        self._established = done
        limits, suite = done.agreement.limits, done.agreement.suite
        names = (suite.signing, suite.sealing) if suite else (None, None)
        self.channel.limit = wire.frame_limit(limits["max_payload"], *names)
        initiator = self.side == "initiator"
        self._streams = Streams(
            limits["stream_window"], limits["max_streams"], is_initiator=initiator
        )
        if done.outgoing and done.incoming and done.keys:
            self.rekeying = RekeyState(
                done.outgoing, done.incoming, done.keys.rekey, is_initiator=initiator
            )
        if done.agreement.resume_ms and done.keys and suite:
            session, size = done.keys.session_id, HASH_SIZES[suite.hash]
            key = resume_key(suite.hash, done.keys.exporter, session, size)
            self.resumption = Resumption(suite.hash, key)
            if self.automatic and not initiator:
                with suppress(ConnectionLost):  # The next read reports it.
                    self.tell()
        return self

    @property
    def session(self) -> Established:
        """What the handshake left."""
        if self._established is None:
            raise ConnectionLost("no handshake yet")
        return self._established

    @property
    def streams(self) -> Streams:
        """Stream states."""
        if self._streams is None:
            raise ConnectionLost("no handshake yet")
        return self._streams

    def send_frame(self, event: bytes) -> None:
        """Any bytes as one event; where there is resume they are kept."""
        if self.resumption is not None:
            self.resumption.kept.add(wire.frame(event))
        self.channel.send_frame(event)

    def send_raw(self, data: bytes) -> None:
        """Any bytes, without a frame."""
        self.channel.send_raw(data)

    def send_event(
        self,
        stream: int,
        async_id: int,
        category: int,
        subcategory: int,
        payload: bytes = b"",
        *,
        sealed: bool | None = None,
        flip_seal: bool = False,
        corrupt: Callable[[bytes], bytes] | None = None,
    ) -> bytes:
        """Send an event under valid keys and return it as sent.

        `sealed` None follows the rules. `corrupt` changes the finished event; keys, counters and
        chain remain honest. KeyUpdates change keys only through acts.
        """
        event = Event(stream, async_id, category, subcategory, payload)
        if sealed is None:
            limit = self.session.agreement.limits["seal_events"]
            sealed = event.type in ALWAYS_SEALED_TYPES or self.unsealed_sent >= limit
        data = self._encrypted(event, sealed, flip_seal)
        for one in meant(event):
            self.allowances.sent(one)
            self.streams.written(one, loose_cells(one))
        if corrupt is not None:
            data = corrupt(data)
        self.send_frame(data)
        return data

    def send(self, name: str, stream: int, async_id: int = 0, /, **cells: Any) -> bytes:
        """An event by name and cells: send("Open", 3, label="app/x")."""
        payload = cells_payload(**cells) if cells else b""
        return self.send_event(stream, async_id, *TYPES[name], payload)

    def seal(self) -> None:
        """1/8 Seal, if anything waits for one."""
        if self.unsealed_sent:
            self.send("Seal", 0)

    def tell(self) -> None:
        """1/15 Received, with the position as it is."""
        if self.resumption is not None:
            self.resumption.heard = self.resumption.received
            self.send("Received", 0, received=self.resumption.received)

    def _encrypted(self, event: Event, sealed: bool, flip_seal: bool) -> bytes:
        outgoing = self.session.outgoing
        if outgoing is None:
            return event.raw
        sealed = sealed or outgoing.suite.sealing == "each"
        self.unsealed_sent = 0 if sealed else self.unsealed_sent + 1
        signer = self.signer or self.config.identity.key(outgoing.suite.signing)
        return outgoing.write(event.stream, event.inner, signer, sealed=sealed, flip_seal=flip_seal)

    def recv_event(self) -> Event:
        """The next event for the application.

        Raises Closed, ConnectionLost, TimeoutError, or Violation after its Close was sent.
        """
        if self.backlog:
            return self.backlog.popleft()
        while True:
            event = self.next_event()
            if event is not None:
                return event

    def next_event(self) -> Event | None:
        """Takes one event from the wire; None where it was answered or was of no concern."""
        if self.inside:
            return self.inside.popleft()
        try:
            if self.automatic:
                self.seal()
            event = self._take(self.channel.receive_frame())
            if self.automatic and self.resumption is not None and self.resumption.tell_due():
                self.tell()
            return event
        except Violation as violation:
            if self.resumption is not None and self.resumption.trial is not None:
                self._forget_transport(self.resumption)
                raise ConnectionLost(f"parted again: {violation}") from violation
            self.fail(violation.code)
            raise

    def _forget_transport(self, resumption: Resumption) -> None:
        """The resumed transport was invalid: the session is suspended as before."""
        incoming = self.session.incoming
        if incoming is not None and resumption.trial is not None:
            incoming.chain, incoming.counters = resumption.trial
        resumption.trial = None
        self.channel.close()

    def fail(self, code: str) -> None:
        """Sends Close with a violation's code and shuts the sending side."""
        try:
            self.send("Close", 0, code=CODES[code])
        except ConnectionLost:
            return  # it has gone already
        self.channel.finish()

    def recv_close(self) -> tuple[int, str]:
        """Read until Close and return its code and text. Raises ConnectionLost if the connection
        ends without one.
        """
        try:
            while True:
                self.recv_event()
        except Closed as closed:
            return closed.code, closed.text

    def _take(self, data: bytes) -> Event | None:
        opened = self._open(data)
        event = opened.event
        self.events.append(opened)
        if self.rekeying is not None and self.rekeying.update_due:
            if event.type != TYPES["KeyUpdate"] or CELLS["rekey"] not in strict_cells(event):
                raise Violation("protocol-error", "RekeyAnswer is followed by its KeyUpdate")
            self.rekeying.update_due = False
        if event.type in HANDSHAKE_ONLY:
            raise Violation("protocol-error", "a handshake event after the handshake")
        rekeyed = event.type == TYPES["KeyUpdate"] and CELLS["rekey"] in strict_cells(event)
        self.allowances.received(event, self.newly_sealed, rekeyed)
        belongs = event.category == 1 or event.type in ON_STREAM_ZERO
        if belongs != (event.stream == 0):
            raise Violation("protocol-error", "stream 0 and what belongs there")
        limit = self.session.agreement.limits["max_payload"]
        if len(event.payload) > (limit if event.stream else STREAM_ZERO_PAYLOAD):
            raise Violation("frame-too-large", "payload over its limit")
        if event.category == 1:
            return self._connection_event(opened)
        if event.category == 2 and event.subcategory > 6:
            raise Violation("protocol-error", "unknown subcategory")
        if event.type != TYPES["Batch"]:
            return self._stream_event(event)
        for one in batched(event):
            self.events.append(replace(opened, event=one))
            taken = self._stream_event(one)
            if taken is not None:
                self.inside.append(taken)
        return self.inside.popleft() if self.inside else None

    def _open(self, data: bytes) -> Opened:
        incoming, remote = self.session.incoming, self.session.remote
        if incoming is None or remote is None:
            event = wire.parse_raw(data)
            if event.type in ENCRYPTED_ONLY:
                raise Violation("protocol-error", "not in plaintext")
            return Opened(event, 0, b"")
        opened = incoming.read(data)
        if self.resumption is not None:
            self.resumption.took(4 + len(data), opened.event.type)
        if opened.form:
            verify_seal(incoming.suite, remote.keys[incoming.suite.signing], opened)
            self.newly_sealed, self.unsealed_received = self.unsealed_received, 0
            return opened
        self.unsealed_received += 1
        if opened.event.type in ALWAYS_SEALED_TYPES:
            raise Violation("seal-violation", "must be sealed")
        if self.unsealed_received > self.session.agreement.limits["seal_events"]:
            raise Violation("seal-violation", "too many unsealed events")
        return opened

    def _connection_event(self, opened: Opened) -> Event | None:
        event, cells = opened.event, strict_cells(opened.event)
        name = next((name for name, kind in TYPES.items() if kind == event.type), "")
        if name == "Close":
            if CELLS["code"] not in cells:
                raise Violation("protocol-error", "Close without a code")
            raise Closed(cells[CELLS["code"]], cells.get(CELLS["text"], ""))
        if not name:
            raise Violation("protocol-error", "unknown subcategory")
        if name in ("Ping", "Pong", "Seal") and event.payload:
            raise Violation("protocol-error", f"{name} has no payload")
        if self.rekeying is not None and name == "KeyUpdate":
            self.rekeying.receive_update(cells)
        if name == "Received":
            self._told(cells)
        if not self.automatic:
            return event
        if name == "Ping":
            if event.async_id:
                self.send("Pong", 0, event.async_id)
        elif name == "Pong":
            return event
        elif self.rekeying is not None and name == "RekeyOffer":
            self._answer_offer(self.rekeying, opened, cells)
        elif self.rekeying is not None and name == "RekeyAnswer":
            self.rekeying.receive_answer(opened, cells)
            self.update_keys()
        return None

    def _told(self, cells: dict[int, Any]) -> None:
        position = cells.get(CELLS["received"])
        if self.resumption is None or position is None:
            raise Violation("protocol-error", "Received, malformed or without resume")
        progress = self.resumption.told(position)
        if progress is not None:
            self.allowances.told(progress)

    def _answer_offer(self, rekeying: RekeyState, opened: Opened, cells: dict[int, Any]) -> None:
        answer = rekeying.receive_offer(opened, cells)
        if answer is None:
            return
        self.send_event(0, 0, *TYPES["RekeyAnswer"], answer[0])
        rekeying.answered(opened, answer[1])
        self.update_keys()

    def update_keys(self) -> None:
        """KeyUpdate: the rekey's where one is due, else a plain one."""
        if self.rekeying is None:
            raise Violation("protocol-error", "no key updates in plaintext")
        self.send_event(0, 0, *TYPES["KeyUpdate"], self.rekeying.update_payload())
        self.rekeying.updated()

    def _stream_event(self, event: Event) -> Event | None:
        category_two = event.category == 2 and event.type != TYPES["Data"]
        if event.type == TYPES["Finish"] and event.payload:
            raise Violation("protocol-error", "Finish has no payload")
        cells = strict_cells(event) if category_two else {}
        if event.type == TYPES["Window"]:
            if CELLS["request"] in cells:
                return event
            self.streams.read_window(cells)
        elif event.type == TYPES["Reset"]:
            answered = self.streams.read_reset(cells)
            if answered is not None and self.automatic:
                self.send("Reset", 0, stream=answered, code=wire.RESET_CODES["cancelled"])
            return event
        elif event.stream == 1:
            if event.category == 2 and event.type != TYPES["Data"]:
                raise Violation("protocol-error", "stream 1 is never opened or finished")
        elif not self.streams.read(event, cells):
            return None
        if event.type == TYPES["Window"]:
            return None if self.automatic else event
        return None if self.automatic and self._answered(event) else event

    def _answered(self, event: Event) -> bool:
        """Grant credit for consumed data, and answer a Call that has a handler."""
        grant = self.streams.consumed(event)
        if grant:
            self.send("Window", 0, stream=event.stream, credit=grant)
        if event.type != TYPES["Call"]:
            return False
        cells = loose_cells(event)
        handler = self.handlers.get(str(cells.get(CELLS["topic"])))
        if handler is None:
            return False
        result = handler(cells.get(CELLS["data"]))
        if event.async_id:
            self.send("Result", event.stream, event.async_id, code=0, data=result)
        return True
