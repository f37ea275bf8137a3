"""Changes that a middle node makes to the bytes of an event: flips, cuts, insertions and removals.

Every byte of an event can be changed; a usual run reports which ones it leaves out.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from parley._node.protocol.frames import frame
from parley._node.protocol.limits import FRAME_HEADER_SIZE, HANDSHAKE_EVENT_SIZE
from tests import sampling
from tests.security.middle import Instead, Passing, Tamper
from tests.security.shapes import SMALL, Shape

Change = Callable[[bytes], bytes]

# With this option, every bit of every byte in every shape is flipped: about 300,000 handshakes.
FULL: Final = sampling.every_bit
# Events of at most this size (all but Proofs with ML-DSA) are flipped at every byte within
# `FLIP_STEP` runs with consecutive seeds. Both ends, and short events, are flipped in each run.
WHOLE: Final = 2048
FLIP_STEP: Final = 8
# A change of length shifts everything after it, so that a third of the positions is enough per run.
PLACE_STEP: Final = 3


@contextmanager
def doing(what: str) -> Iterator[None]:
    """Add a description of the change to a failure inside the block."""
    try:
        yield
    except BaseException as error:
        error.add_note(what)
        raise


def at(name: str, change: Change) -> Tamper:
    """Change the event of this name, and leave all others unchanged."""

    def tamper(passing: Passing) -> Instead:
        return Instead(change(passing.frame) if passing.name == name else passing.frame)

    return tamper


def places(shape: Shape, name: str) -> list[int]:
    """Return the positions in an event's frame at which it is cut, and bytes are inserted or
    removed.

    These are both ends, and further positions chosen by the seed of the run.
    """
    size = shape.sizes()[name]
    if FULL:
        return list(range(size))
    step = PLACE_STEP if size <= SMALL else max(shape.step, PLACE_STEP)
    some = range(sampling.seed % step, size, step)
    return sorted({*range(16), *some, *range(size - 8, size)})


def flipped(shape: Shape, name: str) -> list[int]:
    """Return the positions in an event's frame at which a bit is flipped."""
    size = shape.sizes()[name]
    if FULL or size <= SMALL:
        return list(range(size))
    if size > WHOLE:
        return places(shape, name)
    some = range(sampling.seed % FLIP_STEP, size, FLIP_STEP)
    return sorted({*range(16), *some, *range(size - 8, size)})


def flips(shape: Shape, name: str) -> Iterator[tuple[str, Tamper]]:
    """Flip a bit of each byte, including the frame's length; of a long event only some bytes."""
    for place in flipped(shape, name):
        for bit in sampling.bits(place):
            yield f"bit {bit} of byte {place} flipped", at(name, _flip(place, bit))


def _flip(place: int, bit: int) -> Change:
    return lambda data: data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


def shorter(shape: Shape, name: str) -> Iterator[tuple[str, Tamper]]:
    """Cut after each byte: as a whole shorter frame, or followed by silence."""
    for place in places(shape, name):
        silent = place < FRAME_HEADER_SIZE or bool((sampling.seed + place) % 2)
        if silent or FULL:
            yield f"{place} bytes and then silence", silence_after(name, place)
        if place >= FRAME_HEADER_SIZE and (not silent or FULL):
            yield f"cut to {place} bytes", at(name, _cut(place))


def _cut(place: int) -> Change:
    return lambda data: frame(data[FRAME_HEADER_SIZE:place])


def silence_after(name: str, size: int) -> Tamper:
    """Deliver only this many bytes of an event, and then block both directions."""
    silent = False

    def tamper(passing: Passing) -> Instead:
        nonlocal silent
        if passing.name == name:
            silent = True
            return Instead(passing.frame[:size])
        return Instead(b"" if silent else passing.frame)

    return tamper


def longer(shape: Shape, name: str) -> Iterator[tuple[str, Tamper]]:
    """Insert or remove a byte at each position, and append bytes at the end."""
    for place in places(shape, name):
        start = max(place, FRAME_HEADER_SIZE)
        if place % 2:
            yield f"byte {start} taken out", at(name, _without(start))
        else:
            yield f"a byte put in at {start}", at(name, _with(start, b"\x00"))
    for extra in (b"\x00", b"\xff", bytes(16), bytes(1000), bytes(HANDSHAKE_EVENT_SIZE)):
        yield f"{len(extra)} bytes at the end", at(name, _with(1 << 20, extra))
        yield f"{len(extra)} bytes behind the frame", at(name, behind_frame(extra))


def _without(place: int) -> Change:
    return lambda data: frame(data[FRAME_HEADER_SIZE:place] + data[place + 1 :])


def _with(place: int, extra: bytes) -> Change:
    return lambda data: frame(data[FRAME_HEADER_SIZE:place] + extra + data[place:])


def behind_frame(other: bytes) -> Change:
    """Append whole bytes after the frame."""
    return lambda data: data + other
