"""What a node in the middle does to an event byte by byte: flips, cuts, more bytes, fewer.

Every place of an event can be reached, and a usual run says which it leaves out.
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

# With it, every bit of every byte in every shape: some 300,000 handshakes.
FULL: Final = sampling.every_bit
# An event of at most so many bytes (all but Proofs with ML-DSA) is flipped at every one within
# `FLIP_STEP` runs of consecutive seeds, and a short one or both ends in each run.
WHOLE: Final = 2048
FLIP_STEP: Final = 8
# A change of length moves all that follows, so that a third of the places is enough for one run.
PLACE_STEP: Final = 3


@contextmanager
def doing(what: str) -> Iterator[None]:
    """A failure inside says what was done."""
    try:
        yield
    except BaseException as error:
        error.add_note(what)
        raise


def at(name: str, change: Change) -> Tamper:
    """Change the event of this name, and leave all others alone."""

    def tamper(passing: Passing) -> Instead:
        return Instead(change(passing.frame) if passing.name == name else passing.frame)

    return tamper


def places(shape: Shape, name: str) -> list[int]:
    """The places in an event's frame where it is cut, and where bytes are put in or taken out:
    both ends, and others that the seed of the run chooses."""
    size = shape.sizes()[name]
    if FULL:
        return list(range(size))
    step = PLACE_STEP if size <= SMALL else max(shape.step, PLACE_STEP)
    some = range(sampling.seed % step, size, step)
    return sorted({*range(16), *some, *range(size - 8, size)})


def flipped(shape: Shape, name: str) -> list[int]:
    """The places of an event's frame at which a bit is flipped."""
    size = shape.sizes()[name]
    if FULL or size <= SMALL:
        return list(range(size))
    if size > WHOLE:
        return places(shape, name)
    some = range(sampling.seed % FLIP_STEP, size, FLIP_STEP)
    return sorted({*range(16), *some, *range(size - 8, size)})


def flips(shape: Shape, name: str) -> Iterator[tuple[str, Tamper]]:
    """A bit of each byte, those of the frame's length among them; of a long event some bytes."""
    for place in flipped(shape, name):
        for bit in sampling.bits(place):
            yield f"bit {bit} of byte {place} flipped", at(name, _flip(place, bit))


def _flip(place: int, bit: int) -> Change:
    return lambda data: data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


def shorter(shape: Shape, name: str) -> Iterator[tuple[str, Tamper]]:
    """Cut after each byte: as a whole frame of fewer bytes, or with silence afterwards."""
    for place in places(shape, name):
        silent = place < FRAME_HEADER_SIZE or bool((sampling.seed + place) % 2)
        if silent or FULL:
            yield f"{place} bytes and then silence", silence_after(name, place)
        if place >= FRAME_HEADER_SIZE and (not silent or FULL):
            yield f"cut to {place} bytes", at(name, _cut(place))


def _cut(place: int) -> Change:
    return lambda data: frame(data[FRAME_HEADER_SIZE:place])


def silence_after(name: str, size: int) -> Tamper:
    """Of an event only so many bytes pass, and then nothing more, either way."""
    silent = False

    def tamper(passing: Passing) -> Instead:
        nonlocal silent
        if passing.name == name:
            silent = True
            return Instead(passing.frame[:size])
        return Instead(b"" if silent else passing.frame)

    return tamper


def longer(shape: Shape, name: str) -> Iterator[tuple[str, Tamper]]:
    """A byte put in or taken out at each place, and more bytes at the end."""
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
    """Whole bytes behind the frame."""
    return lambda data: data + other
