"""Scripts: inputs of the targets that lead a whole conversation, step by step.

Any bytes are a script, so that whatever a fuzzer makes is worth running. A step
is a head of seven bytes and a payload: an event of the other side's, or an action. Knows
bytes only.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from random import Random  # noqa: TID251  # tests may
from struct import Struct
from typing import Final

# kind, stream, async id, category, subcategory, size of the payload
_HEAD: Final = Struct(">BBBBBH")
# What does not fit in the head's bytes: 240 and up stand for these.
_FIRST_LARGE: Final = 240
LARGE_STREAMS: Final = (240, 255, 256, 65_535, 65_536, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1)
LARGE_ASYNC_IDS: Final = (240, 255, 256, 32_768, 65_534, 65_535)
# More steps than this only take time.
MOST_STEPS: Final = 64


class Kind(IntEnum):
    """What a step is; the lowest bits of its first byte."""

    EVENT = 0  # unsealed
    SEALED = 1
    ACTION = 2  # The category selects the action, stream and subcategory its details.
    RAW = 3  # the payload is fed as it is


_HELD: Final = 4  # Its output is fed together with the output of the next step.


@dataclass(frozen=True, slots=True)
class Step:
    """One step. `held`: it is fed together with the next."""

    kind: Kind
    stream: int = 0
    async_id: int = 0
    category: int = 0
    subcategory: int = 0
    payload: bytes = b""
    held: bool = False


def parse(data: bytes) -> list[Step]:
    """Yield the steps of a script; missing bytes at its end count as zero, or as absent."""
    steps: list[Step] = []
    position = 0
    while position < len(data) and len(steps) < MOST_STEPS:
        head = data[position : position + _HEAD.size].ljust(_HEAD.size, b"\0")
        kind, stream, async_id, category, subcategory, size = _HEAD.unpack(head)
        position += _HEAD.size
        payload = data[position : position + size]
        position += size
        steps.append(
            Step(
                Kind(kind & 3),
                _large(stream, LARGE_STREAMS),
                _large(async_id, LARGE_ASYNC_IDS),
                category,
                subcategory,
                payload,
                bool(kind & _HELD),
            )
        )
    return steps


def serialise(steps: Iterable[Step]) -> bytes:
    """The bytes of a script.

    Raises:
        ValueError: a number has no place in a head.
    """
    return b"".join(_serialised(step) for step in steps)


def _large(number: int, table: tuple[int, ...]) -> int:
    return number if number < _FIRST_LARGE else table[(number - _FIRST_LARGE) % len(table)]


def _small(number: int, table: tuple[int, ...]) -> int:
    return number if number < _FIRST_LARGE else _FIRST_LARGE + table.index(number)


def _serialised(step: Step) -> bytes:
    return (
        _HEAD.pack(
            step.kind | _HELD * step.held,
            _small(step.stream, LARGE_STREAMS),
            _small(step.async_id, LARGE_ASYNC_IDS),
            step.category,
            step.subcategory,
            len(step.payload),
        )
        + step.payload
    )


# Mutation: whole steps are moved about, and one step's head or payload is changed.


def mutate(
    data: bytes,
    max_size: int,
    seed: int,
    change: Callable[[bytes, int], bytes],
    settings: int = 1,
) -> bytes:
    """A script near `data` (its first `settings` bytes pick the setting); `change` alters
    some bytes."""
    random = Random(seed)
    pieces = list(_pieces(data[settings:]))
    if not pieces or random.random() < 0.1:
        return change(data, max_size)
    setting = data[:settings] if random.random() < 0.9 else random.randbytes(settings)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        _change_one(pieces, random, max_size, change)
    return (setting + b"".join(map(b"".join, pieces)))[:max_size]


def _pieces(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Heads and payloads."""
    position = 0
    while len(data) - position >= _HEAD.size:
        head = data[position : position + _HEAD.size]
        position += _HEAD.size
        size = int.from_bytes(head[-2:])
        yield head, data[position : position + size]
        position += size


def _change_one(
    pieces: list[tuple[bytes, bytes]],
    random: Random,
    max_size: int,
    change: Callable[[bytes, int], bytes],
) -> None:
    place = random.randrange(len(pieces))
    head, payload = pieces[place]
    what = random.random()
    if what < 0.35 and payload:
        changed = change(payload, min(max_size, 0xFFFF))
        pieces[place] = head[:-2] + len(changed).to_bytes(2), changed
    elif what < 0.65:
        at = random.randrange(_HEAD.size - 2)
        near = (head[at] + random.choice((-2, -1, 1, 2))) % 256
        value = random.choice((near, near, random.randrange(8), random.randrange(256)))
        pieces[place] = head[:at] + bytes([value]) + head[at + 1 :], payload
    elif what < 0.75 and len(pieces) > 1:
        del pieces[place]
    elif what < 0.9:
        pieces.insert(random.randrange(len(pieces) + 1), pieces[place])
    else:
        other = random.randrange(len(pieces))
        pieces[place], pieces[other] = pieces[other], pieces[place]
