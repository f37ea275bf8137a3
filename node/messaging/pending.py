"""Requests that wait for their answers: ours, and those of the other side.

A request has one final answer, and whatever comes after it changes nothing. `Asking` and
`Answering` keep these requests.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from parley._lbm.codec import Value
from parley._node.messaging.chunks import ChunkInbox
from parley._node.messaging.deadlines import NO_SLOT
from parley._node.messaging.finals import FinalAnswer, sim_final
from parley._node.messaging.kept import TopicPosition
from parley._node.protocol.codes import SIM
from parley._node.protocol.flow_control import SendCredit

NO_CELLS: Final[Mapping[int, Any]] = {}


class OutgoingCall:
    """A call or subscription of ours. `code` and `data` are its answer once `done`.

    `on_done` is called once, when the answer came, the deadline passed (code 17) or the
    connection ended (code `LOST`; `close_code` and `close_text` say why). `on_final` is
    called with code and stream (0 for none) of the final answer when that comes, also if
    nobody waits any more; then `cells` are those of a Result. `chunks` takes a streamed
    answer. `category` is that of whatever answers it.
    """

    category: ClassVar[int] = SIM

    __slots__ = (
        "async_id",
        "cells",
        "chunks",
        "close_code",
        "close_text",
        "code",
        "data",
        "done",
        "on_done",
        "on_final",
        "slot",
    )

    def __init__(self, on_done: Callable[[], None]) -> None:
        self.on_done = on_done
        self.on_final: Callable[[int, int], None] | None = None
        self.cells: Mapping[int, Any] = NO_CELLS
        self.chunks: ChunkInbox | None = None
        self.async_id = 0
        self.slot: set[Any] = NO_SLOT
        self.done = False
        self.code = 0
        self.data: Any = None
        self.close_code = 0
        self.close_text = ""

    def finish(self, code: int, data: Any) -> None:
        """Hand over the answer; later ones change nothing."""
        if not self.done:
            self.done = True
            self.code = code
            self.data = data
            self.on_done()


class IncomingCall:
    """A call or subscription that came, for its handler; `subcategory` says which.

    `deadline` is seconds of the connection's clock, or None. `answered` is set once its
    answer is on its way; from then on the handler's own answer changes nothing. `begun` is
    for whoever runs the handler to set when it runs, `weight` what is charged for it.
    `window` is what the asking side named for what will be sent to it, or None; `after` where
    a Subscribe goes on;
    `credit` what is left of it for Chunks, and `on_credit` is called when there is more.
    `once` is the key of a call that is to be made once.
    `came` is when it came, for calls and named events.
    `made` is its answer once that is encoded before there is room for it. `entry` is what
    was found for it when it came, which is what runs it.
    """

    __slots__ = (
        "after",
        "answered",
        "async_id",
        "begun",
        "came",
        "cost",
        "credit",
        "data",
        "deadline",
        "entry",
        "headers",
        "made",
        "on_credit",
        "once",
        "runner",
        "slot",
        "stream",
        "subcategory",
        "topic",
        "weight",
        "window",
    )

    def __init__(
        self,
        subcategory: int,
        topic: str,
        data: Value,
        headers: Mapping[str, Value],
        stream: int,
        async_id: int,
        weight: int,
        cost: int,
        entry: Any = None,
    ) -> None:
        self.entry = entry
        self.came = 0.0
        self.subcategory = subcategory
        self.topic = topic
        self.data: Any = data
        self.headers = headers
        self.stream = stream
        self.async_id = async_id
        self.weight = weight
        self.cost = cost  # what it took of its stream's credit, until it is answered
        self.window: int | None = None
        self.once: bytes | None = None
        self.after: TopicPosition | None = None
        self.credit: SendCredit | None = None
        self.on_credit: Callable[[], None] | None = None
        self.deadline: float | None = None
        self.slot: set[Any] = NO_SLOT
        self.answered = False
        self.begun = False
        self.made: FinalAnswer | None = None
        self.runner: Any = None  # the shell's handle of the running handler

    def final(self, code: int, data: Any = None, stream: int = 0) -> FinalAnswer:
        """Its final answer; `stream` is what an accepted Subscribe is answered with. Raises
        LbmEncodeError for data without an encoding."""
        return sim_final(code, data, stream)


# Told of each request that is over: with its code, and without it if it never was one to run.
OnFinal = Callable[[IncomingCall | None, int], None]


def untold(call: IncomingCall | None, code: int) -> None:
    """Nobody counts."""
