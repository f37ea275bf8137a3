"""Cuts what comes into frames, for dialects whose frames have their length in their head.

A length is checked as soon as it has come, before anything more is kept.
"""

from collections.abc import Callable, Iterator

# From what came and where in it a frame begins: the size of the whole frame in bytes.
Measure = Callable[[bytes, int], int]


class FrameSplitter:
    """Frames that begin with a head of `head_size` bytes, from which `measure` reads the
    whole length; it raises for one that is not allowed.

    Less than one frame is kept between two calls.
    """

    __slots__ = ("_head_size", "_measure", "_needed", "_pending")

    def __init__(self, head_size: int, measure: Measure) -> None:
        self._head_size = head_size
        self._measure = measure
        self._pending = bytearray()
        self._needed = head_size  # with fewer bytes there is nothing to do

    def feed(self, data: bytes) -> Iterator[memoryview]:
        """Take bytes; yields each frame that is now complete, in order, as a view of them.

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
        """How many bytes are kept of a frame that is not complete."""
        return len(self._pending)
