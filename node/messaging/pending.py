"""Calls that wait for their answers: ours, and those of the other side.

One rule: a call has one answer, and whatever comes after it changes nothing. `Calls`
keeps them; they know neither the connection nor the handlers.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from lbm.codec import Value

# The code of a call whose connection ended: none that can come from the wire.
LOST: Final = -1


class OutgoingCall:
    """A call of ours. `code` and `data` are its answer once `done`.

    `on_done` is called once, when the answer came, the deadline passed (code 17) or the
    connection ended (code `LOST`; `close_code` and `close_text` say why).
    """

    __slots__ = (
        "async_id",
        "close_code",
        "close_text",
        "code",
        "data",
        "done",
        "on_done",
        "slot",
    )

    def __init__(self, on_done: Callable[[], None]) -> None:
        self.on_done = on_done
        self.async_id = 0
        self.slot = 0
        self.done = False
        self.code = 0
        self.data: Value = None
        self.close_code = 0
        self.close_text = ""

    def finish(self, code: int, data: Value) -> None:
        """Give the answer to who waits; later ones change nothing."""
        if not self.done:
            self.done = True
            self.code = code
            self.data = data
            self.on_done()


class IncomingCall:
    """A call that came, for its handler.

    `deadline` is seconds of the connection's clock, or None. `answered` is set once its
    answer is on its way; from then on the handler's own answer changes nothing.
    """

    __slots__ = (
        "answered",
        "async_id",
        "cost",
        "data",
        "deadline",
        "headers",
        "runner",
        "size",
        "slot",
        "stream",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        data: Value,
        headers: Mapping[str, Value],
        stream: int,
        async_id: int,
        size: int,
        cost: int,
    ) -> None:
        self.topic = topic
        self.data = data
        self.headers = headers
        self.stream = stream
        self.async_id = async_id
        self.size = size
        self.cost = cost  # what it took of its stream's credit, until it is answered
        self.deadline: float | None = None
        self.slot = 0
        self.answered = False
        self.runner: Any = None  # the shell's handle of the running handler
