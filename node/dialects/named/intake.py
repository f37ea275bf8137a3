"""Parses events out of what is read, no more at once than may have handlers.

What may not be taken yet stays as bytes, in its place; meanwhile nothing more is to be read.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from parley._node.dialects.frames import FrameSplitter
from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.named.codec import (
    TOTAL_SIZE,
    BromineEvent,
    Flavour,
    measure_of,
    parse_event,
)
from parley._node.protocol.memory_budget import REQUEST_WEIGHT, MemoryBudget

# Events that are taken before other connections have their turn: thousands of the shortest
# ones can come at once, and each may start a handler.
TURN_EVENTS: Final = 64


class NamedIntake:
    """Hands each event to `take`, in order. `running` counts those whose handlers run; they are
    charged to `account`.

    `on_turn` is called when much came at once; `go_on` must follow once other connections had
    their turn. Without `on_turn` everything is taken at once.
    """

    __slots__ = (
        "_account",
        "_flavour",
        "_frames",
        "_held",
        "_limits",
        "_splitter",
        "_take",
        "_turn_left",
        "on_turn",
        "running",
    )

    def __init__(
        self,
        flavour: Flavour,
        limits: DialectLimits,
        take: Callable[[BromineEvent], None],
        account: MemoryBudget,
    ) -> None:
        self._account = account
        self.running = 0
        self.on_turn: Callable[[], None] | None = None
        self._flavour = flavour
        self._limits = limits
        self._take = take
        self._splitter = FrameSplitter(TOTAL_SIZE, measure_of(flavour, limits.longest_frame))
        # What is held back: the rest of a chunk, and further chunks.
        self._frames: Iterator[memoryview] | None = None
        self._held: deque[bytes] = deque()
        self._turn_left = TURN_EVENTS

    @property
    def holds_back(self) -> bool:
        """Whether some of what was read has to wait."""
        return self._frames is not None

    def feed(self, data: bytes) -> None:
        """Bytes came; raises RemoteProtocolError for a malformed event."""
        if self._frames is not None:
            self._held.append(data)  # little: the transport was told to pause
            return
        self._frames = self._splitter.feed(data)
        self._turn_left = TURN_EVENTS
        self._take_frames()

    def started(self, event: BromineEvent) -> None:
        """The handler of an event starts."""
        self.running += 1
        self._account.charge(len(event.data) + REQUEST_WEIGHT)

    def done(self, event: BromineEvent) -> None:
        """The handler of an event is over, and another event may be taken; raises as `feed`."""
        self.running -= 1
        self._account.release(len(event.data) + REQUEST_WEIGHT)
        self._resume()

    def go_on(self) -> None:
        """Other connections had their turn; raises as `feed`."""
        self._turn_left = TURN_EVENTS
        self._resume()

    def clear(self) -> None:
        """Forget what is held back."""
        self._frames = None
        self._held.clear()

    def _resume(self) -> None:
        if self._frames is not None and self._turn_left and self._has_room:
            self._take_frames()

    @property
    def _has_room(self) -> bool:
        if not self.running:
            return True  # otherwise nothing would resume the intake
        return self.running < self._limits.requests and self._account.has_room()

    def _take_frames(self) -> None:
        """Take what was read, as far as there is room."""
        flavour, longest_name = self._flavour, self._limits.longest_name
        frames, take, on_turn = self._frames, self._take, self.on_turn
        while frames is not None:
            for frame in frames:
                take(parse_event(frame, flavour, longest_name))
                if self._frames is None:
                    return  # the event ended the connection
                if on_turn is not None:
                    self._turn_left -= 1
                    if not self._turn_left:
                        on_turn()
                        return
                if not self._has_room:
                    return
            frames = self._splitter.feed(self._held.popleft()) if self._held else None
            self._frames = frames
