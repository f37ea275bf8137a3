"""The stream keys of one epoch of a direction, as far as there is a secret for it.

One rule: a counter rises with what opens, so events are opened in the order of the chain;
behind a hole a few counters are tried. Knows no chain.
"""

from collections.abc import Mapping
from typing import Final

from crypto.errors import DecryptError
from crypto.registry import Suite
from crypto.streamkeys import StreamKey

# Behind a hole in the records, for a stream's next event.
TRIED_COUNTERS: Final = 64


class Lanes:
    """`secret` is the epoch's, None if nobody may have it; with `guess` events may be missing."""

    __slots__ = ("_counters", "_lanes", "_suite", "guess", "secret")

    def __init__(self, suite: Suite) -> None:
        self._suite = suite
        self.secret: bytes | None = None
        self.guess = False
        self.begin({})

    def begin(self, counters: Mapping[int, int]) -> None:
        """An epoch begins, or goes on with these counters of its streams."""
        self._counters = dict(counters)
        self._lanes: dict[bytes, StreamKey] = {}

    def keep(self, streams: Mapping[int, int]) -> None:
        """Free the keys of all other streams."""
        names = {stream.to_bytes(4, "big") for stream in streams}
        self._lanes = {name: lane for name, lane in self._lanes.items() if name in names}

    def decrypt(self, stream4: bytes, blob: bytes, form: bytes) -> bytes | None:
        """What an event of such a form (1 byte) holds; None without a key, or the right one."""
        if self.secret is None:
            return None
        lane = self._lanes.get(stream4) or self._lane(stream4, self.secret)
        aad = stream4 + form
        try:
            return lane.decrypt(blob, aad)
        except DecryptError:
            if not self.guess:
                return None
        first = lane.counter
        for counter in range(first + 1, first + TRIED_COUNTERS):
            lane.counter = counter
            try:
                return lane.decrypt(blob, aad)
            except DecryptError:
                continue
        lane.counter = first
        return None

    def _lane(self, stream4: bytes, secret: bytes) -> StreamKey:
        stream = int.from_bytes(stream4, "big")
        lane = self._lanes[stream4] = StreamKey(self._suite, secret, stream)
        lane.counter = self._counters.get(stream, 0)
        return lane
