"""What a caller does on an open connection: events, streams, credit, keys.

`Connection` adds bytes and time, the handshake and the end. All here raises
`ConnectionClosedError` where no connection is open, and nothing of the other side's doing.
"""

from collections.abc import Callable

from parley._node.protocol.account import SHARE, Account
from parley._node.protocol.codes import DATA, SIM, STREAM, CloseCode
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.errors import ConnectionClosedError, LocalProtocolError
from parley._node.protocol.flow import Flow
from parley._node.protocol.limits import EVENT_COST, READ_ON, UNWRITTEN_PART, Limits
from parley._node.protocol.multiplexer import Multiplexer
from parley._node.protocol.observer import DirectionState
from parley._node.protocol.outbox import Outbox, Wire
from parley._node.protocol.reports import Report
from parley._node.protocol.resumption import Resumption
from parley._node.protocol.session import Session
from parley._node.protocol.states import State
from parley._node.protocol.stream_zero import Farewell


class Speaker:
    """The caller's side of a connection.

    `answers` is the account of what handlers have made and wait to have written, `unsealed` that of
    events that wait for a seal (`deliver="sealed"`). `happened` is what `reports` will return,
    `dropped` counts the events of the other side that nobody took.
    """

    def __init__(self, config: CoreConfig, state: State, total: Account | None) -> None:
        self.config = config
        self.account = Account(config.peer_memory, total, SHARE)
        self.answers = Account(UNWRITTEN_PART * config.peer_memory, total)
        self.unsealed = Account(0, total)  # the limit follows when limits are agreed
        self._state = state
        self.dropped = 0
        self.happened: list[Report] = []
        self.outbox = Outbox(self.account)
        self.wire = Wire(self.account, self.outbox.waker)
        self._closing: Farewell = (CloseCode.NORMAL, "")
        self.session: Session | None = None

    # State, as a caller sees it.

    @property
    def state(self) -> State:
        """Where the connection stands."""
        return self._state

    def reports(self) -> list[Report]:
        """What happened since the last call."""
        reports = self.happened[:]
        self.happened.clear()
        return reports

    def checkpoint(self) -> tuple[DirectionState, DirectionState]:
        """Both directions, ours first; raises LocalProtocolError where there is no chain."""
        if self.session is None:
            raise LocalProtocolError("there is no chain")
        return self.session.checkpoint()

    @property
    def resumption(self) -> Resumption | None:
        """How the session outlives its transport; None where that was not agreed."""
        return self.session.resumption if self.session else None

    @property
    def holds_back(self) -> bool:
        """Whether it sends less than its transport takes: `resume_buffer` bytes are kept, and
        nothing but events of stream 0 and Opens goes out until the other side tells more."""
        session = self.session
        if session is None or session.resumption is None:
            return False
        kept = session.resumption.kept
        return kept.held >= kept.buffer

    @property
    def memory(self) -> int:
        """Bytes that the connection holds, weighed as memory."""
        kept = self.resumption.kept.uncharged if self.resumption is not None else 0
        return self.account.held + self.answers.held + self.unsealed.held + kept

    def watch_memory(self, on_charge: Callable[[], None] | None) -> None:
        """Call `on_charge` whenever `memory` has grown; None ends that."""
        self.account.on_charge = self.answers.on_charge = self.unsealed.on_charge = on_charge

    # What waits, and what a caller may do.

    @property
    def queued_bytes(self) -> int:
        """Bytes of frames that wait, and of events that wait to be encrypted: their payloads,
        and 64 for each, so that small ones count as what they hold."""
        outbox = self.outbox
        return self.wire.size + outbox.size + EVENT_COST * outbox.count

    @property
    def limits(self) -> Limits:
        """The limits that were agreed; our own before and after."""
        return self.session.mux.limits if self.session else self.config.limits

    @property
    def streams(self) -> Multiplexer:
        """The streams, for what is asked of them alone; raises ConnectionClosedError."""
        return self._open().mux

    def flow(self) -> Flow:
        """Credit and windows of all open streams; none where no connection is open."""
        return self.session.mux.flow() if self.session else Flow({}, 0, 0, 0)

    def send(
        self,
        stream: int,
        async_id: int,
        category: int,
        subcategory: int,
        payload: bytes,
        *,
        lbm: bool = True,
        seal: bool = False,
        releases: int = 0,
    ) -> int:
        """Queue an event of category 3 up on stream 1 or an open stream; see `Multiplexer.send`."""
        session = self.session
        if session is None or self._state is not State.OPEN:
            session = self._open()
        if category < SIM:
            raise LocalProtocolError(f"events of category {category} are not the caller's")
        mux = session.mux
        return mux.send(stream, async_id, category, subcategory, payload, lbm, seal, releases)

    def send_data(self, stream: int, data: bytes | memoryview, join: int = 0) -> None:
        """Queue 2/5 Data, 1..max_payload bytes, on a stream from 2 up; raises as `send`. A view
        is one of bytes that do not change until they were sent. Data that waits last on the stream
        is made longer instead, up to `join` bytes."""
        if not data or stream < 2:
            size = len(data)
            reason = (
                f"{size} bytes of Data on stream {stream}: at least 1 byte, on stream 2 or above"
            )
            raise LocalProtocolError(reason)
        mux = self._open().mux
        before = self.outbox.extend(stream, data, join) if join else 0
        if before:
            before += EVENT_COST
            mux.expected += (before + len(data)) // READ_ON - before // READ_ON
        else:
            mux.send(stream, 0, STREAM, DATA, data, False, False)

    def open_stream(self, label: str, window: int | None = None, credit: int | None = None) -> int:
        """Open a stream; returns its id. `window` is what we are ready to hold, `credit` what the
        other side said it is, in bytes. Raises LocalProtocolError if `max_streams` are open."""
        return self._open().mux.open_stream(label, window, credit)

    def finish_stream(self, stream: int) -> None:
        """End our direction of a stream, after what is queued on it; raises as `send`."""
        self._open().mux.finish(stream)

    def reset_stream(self, stream: int, code: int, text: str = "") -> None:
        """End both directions of a stream now; nothing happens if it is gone."""
        self._open().mux.reset(stream, code, text)

    def has_credit(self, stream: int) -> bool:
        """Whether what is sent on `stream`, one from 2 up, would not wait for credit."""
        return self.credit(stream) > 0

    def credit(self, stream: int) -> int:
        """What may be sent on `stream`, one from 2 up, in bytes of cost; what waits in the outbox
        is not taken from it yet."""
        return self.session.mux.credit(stream) if self.session is not None else 0

    def consume(self, stream: int, cost: int, count: int = 1) -> None:
        """Give back the `cost` of `count` EventReceived once the application has used them."""
        if cost and self.session is not None:
            self.session.mux.consume(stream, cost, count)

    def free(self, cost: int, count: int = 1) -> None:
        """The caller bounds what it keeps of `count` EventReceived of this `cost` itself: they
        are charged no more. Their credit goes back with `give_back`."""
        if cost and self.session is not None:
            self.session.mux.free(cost, count)

    def give_back(self, stream: int, cost: int) -> None:
        """Give back the `cost` of what was freed once it is used."""
        if cost and self.session is not None:
            self.session.mux.give_back(stream, cost)

    def count_dropped(self, *, charged: bool = True) -> None:
        """Nobody takes an event of the other side. It is `charged` unless the reason is ours: no
        room, or an answer that nobody waits for any more. Beyond the allowance the other side's
        next event ends the connection (`overloaded`)."""
        self.dropped += 1
        if charged and self.session is not None:
            self.session.count_dropped()

    def notify_writable(self, stream: int, *, credit: bool = False) -> None:
        """Report StreamWritable once, when nothing waits on `stream` any more; with
        `credit`, if nothing waits already, when it has credit."""
        self._open().mux.watch(stream, credit=credit)

    def ping(self, now: float) -> int:
        """Send a Ping; PongReceived carries its async id."""
        return self._open().ping(now)

    def update_keys(self, now: float) -> None:
        """Go to the next epoch in our direction; KeysUpdated reports it."""
        self._open().update_keys(now)

    def rekey(self, now: float) -> None:
        """Agree on fresh keys for both directions; KeysUpdated reports each."""
        self._open().rekey(now)

    def _open(self) -> Session:
        if self._state is not State.OPEN or self.session is None:
            raise ConnectionClosedError(self._closing[0], "the connection is not open")
        return self.session
