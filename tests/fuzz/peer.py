"""The other side of a fuzzed connection: the reference's keys, controlled by a script.

It sends arbitrary events under valid keys, and checks all that it receives: every frame decrypts,
every seal is valid, every answer has its request.
"""

from collections import Counter
from dataclasses import replace
from typing import Any, Final

from tests.fuzz.meeting import SCALAR, SIGNER, Flights, Setting, frames_of
from tests.fuzz.script import Step
from tests.reference.batches import batched, meant
from tests.reference.exchange import Offer
from tests.reference.rekeying import RekeyState
from tests.reference.sealing import Direction, Opened, verify_seal
from tests.reference.wire import (
    ALWAYS_SEALED_TYPES,
    CELLS,
    TYPES,
    Event,
    Violation,
    cells_payload,
    frame,
    parse_raw,
)

# Events by which a script may change keys without the reference: afterwards it can't decrypt.
_KEY_EVENTS: Final = frozenset(TYPES[name] for name in ("KeyUpdate", "RekeyOffer", "RekeyAnswer"))
_HANDSHAKE: Final = frozenset(TYPES[n] for n in ("Hello", "Reply", "Proof", "Retry", "Reject"))
_REQUESTS: Final = {
    TYPES[request]: frozenset(TYPES[answer] for answer in answers)
    for request, answers in {
        "Call": ("Result",),
        "Subscribe": ("Result",),
        "Unsubscribe": ("Result",),
        "Notify": ("Result",),
        "Emit": ("End", "Error"),
    }.items()
}
_ANSWERS: Final = frozenset().union(*_REQUESTS.values())


class FuzzingPeer:
    """Create the peer. `flights` are the handshake's messages; `public` is the core's key.

    `deaf` is True after keys may have changed without the reference; `closed` after it received
    Close.
    """

    def __init__(self, setting: Setting, flights: Flights, public: bytes) -> None:
        self._public = public
        self._initiator = setting.side == "responder"
        self._outgoing: Direction | None = None
        self._incoming: Direction | None = None
        self._rekeying: RekeyState | None = None
        self._offer: tuple[Opened, dict[int, Any]] | None = None
        self._asked: Counter[tuple[int, int]] = Counter()  # it may use an id twice
        self._last_stream = 0
        self.deaf = False
        self.closed = False
        if flights.keys is not None:
            self._outgoing = flights.keys.outgoing.direction()
            self._incoming = flights.keys.incoming.direction()
            self._rekeying = RekeyState(
                self._outgoing,
                self._incoming,
                flights.keys.rekey,
                is_initiator=self._initiator,
            )

    # Sending.

    def say(self, step: Step, *, sealed: bool) -> bytes:
        """Return the frame of a step's event, regardless of the rules."""
        event = Event(step.stream, step.async_id, step.category, step.subcategory, step.payload)
        for one in meant(event):
            if one.type in _REQUESTS:
                self._asked[one.stream, one.async_id] += 1
        if event.type in _KEY_EVENTS:
            self.deaf = True
        return self._framed(event, sealed)

    def update_keys(self) -> bytes:
        """An honest KeyUpdate: the rekey's, if one is due."""
        if self._rekeying is None or self.deaf:
            return b""
        update = Event(0, 0, *TYPES["KeyUpdate"], self._rekeying.update_payload())
        framed = self._framed(update, True)
        self._rekeying.updated()
        return framed

    def offer_rekey(self) -> bytes:
        """Return an honest RekeyOffer, unless one of this side is in progress."""
        rekeying = self._rekeying
        if rekeying is None or self.deaf or rekeying.offer or rekeying.pending:
            return b""
        rekeying.offer = Offer("x25519", SCALAR)
        share = cells_payload(share=rekeying.offer.share)
        framed = self._framed(Event(0, 0, *TYPES["RekeyOffer"], share), True)
        rekeying.offered()
        return framed

    def answer_rekey(self) -> bytes:
        """An honest answer to the core's RekeyOffer and the KeyUpdate that follows it."""
        rekeying, offer, self._offer = self._rekeying, self._offer, None
        if rekeying is None or self.deaf or offer is None or rekeying.pending:
            return b""
        answer = rekeying.receive_offer(*offer)
        if answer is None:
            return b""
        framed = self._framed(Event(0, 0, *TYPES["RekeyAnswer"], answer[0]), True)
        rekeying.answered(offer[0], answer[1])
        return framed + self.update_keys()

    def _framed(self, event: Event, sealed: bool) -> bytes:
        if self._outgoing is None:
            return frame(event.raw)
        return frame(self._outgoing.write(event.stream, event.inner, SIGNER, sealed=sealed))

    # Receiving.

    def hear(self, wire: bytes) -> None:
        """Open and check whole frames of the core."""
        for data in frames_of(wire):
            if not self.deaf:
                assert not self.closed, "something was sent after Close"
                opened = self._open(data)
                is_batch = opened.event.type == TYPES["Batch"]
                for event in batched(opened.event) if is_batch else [opened.event]:
                    self._check(replace(opened, event=event))

    def _open(self, data: bytes) -> Opened:
        if self._incoming is None:
            return Opened(parse_raw(data), 1, b"")
        opened = self._incoming.read(data)
        if opened.form:
            verify_seal(self._incoming.suite, self._public, opened)
        else:
            assert opened.event.type not in ALWAYS_SEALED_TYPES
        return opened

    def _check(self, opened: Opened) -> None:
        event = opened.event
        assert event.type not in _HANDSHAKE
        if event.type in _ANSWERS:
            asked = (event.stream, event.async_id)
            self._asked[asked] -= 1
            assert self._asked[asked] >= 0, f"an unexpected answer: {asked}"
        elif event.type == TYPES["Open"]:
            assert event.stream > self._last_stream
            assert event.stream % 2 == (0 if self._initiator else 1)
            self._last_stream = event.stream
        elif event.category in (1, 2) and event.type != TYPES["Data"]:
            cells = event.cells()
            self.closed = event.type == TYPES["Close"]
            try:
                self._keys_changed(opened, cells)
            except Violation:
                # The script's own events may have crossed the core's: out of step.
                self.deaf = True

    def _keys_changed(self, opened: Opened, cells: dict[int, Any]) -> None:
        rekeying, kind = self._rekeying, opened.event.type
        if rekeying is None:
            assert kind not in _KEY_EVENTS
        elif kind == TYPES["KeyUpdate"]:
            rekeying.receive_update(cells)
        elif kind == TYPES["RekeyOffer"]:
            assert CELLS["share"] in cells
            self._offer = opened, cells
        elif kind == TYPES["RekeyAnswer"]:
            rekeying.receive_answer(opened, cells)
