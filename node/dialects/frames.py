"""Cuts what comes into frames, for dialects whose frames say their length in their head.

One rule: a length is looked at as soon as it is there, before anything more is kept.
Knows no dialect.
"""

from collections.abc import Callable, Iterator

# Given what came and where in it a frame begins: how many bytes the whole frame has.
Measure = Callable[[bytes, int], int]


class FrameSplitter:
    """Frames that begin with a head of `head_size` bytes, from which `measure` reads the
    whole length; it raises for one that may not be.

    What is kept between two calls is less than one frame.
    """

    __slots__ = ("_head_size", "_measure", "_needed", "_pending")

    def __init__(self, head_size: int, measure: Measure) -> None:
        self._head_size = head_size
        self._measure = measure
        self._pending = bytearray()
        self._needed = head_size  # with fewer bytes nothing new can be said

    def feed(self, data: bytes) -> Iterator[memoryview]:
        """Take bytes; gives each frame that is whole now, in order, as a view of them.

        Raises:
            RemoteProtocolError: as `measure` does, after the frames before.
        """
        pending = self._pending
        if pending:
            pending += data
            if len(pending) < self._needed:
                return
            data = bytes(pending)
            pending.clear()
        view, measure, head_size = memoryview(data), self._measure, self._head_size
        at, end = 0, len(data)
        needed = head_size
        while end - at >= head_size:
            size = measure(data, at)
            if end - at < size:
                needed = size
                break
            yield view[at : at + size]
            at += size
        self._pending += view[at:]
        self._needed = needed

    @property
    def pending_bytes(self) -> int:
        """What is kept of a frame that is not whole."""
        return len(self._pending)
