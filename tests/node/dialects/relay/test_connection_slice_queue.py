"""The queue of a client: in order, and within its memory limit."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from parley._node.dialects.relay.connection import SliceQueue
from parley._node.protocol.memory_budget import MemoryBudget

WRITE_BUFFER = 1 << 20


@given(
    st.lists(
        st.one_of(
            st.tuples(st.lists(st.binary(min_size=1, max_size=600), min_size=1), st.booleans()),
            st.integers(1, 2_000),
        ),
        max_size=30,
    )
)
def test_copying_preserves_all_data(steps: list) -> None:  # type: ignore[type-arg]  # of hypothesis
    slices, put, taken = SliceQueue(1_024, MemoryBudget(1 << 30)), b"", b""
    for step in steps:
        if isinstance(step, int):
            taken += slices.take(step)
        else:
            parts, views = step
            held = 5_000 if views else sum(map(len, parts))
            slices.extend([memoryview(part) if views else part for part in parts], held)
            put += b"".join(parts)
        assert slices.size == len(put) - len(taken)
    while slices.count:
        taken += slices.take(100)
    assert taken == put


def held_by(size: int, buffer_size: int, total: int) -> int:
    """Return the memory used by slices, each of its own buffer, once `total` bytes are queued."""
    tracemalloc.start()
    try:
        slices = SliceQueue(WRITE_BUFFER, MemoryBudget(1 << 30))
        peak = 0
        while slices.size < total:
            buffer = bytes(buffer_size)
            slices.extend([memoryview(buffer)[:size]], buffer_size)
            del buffer
            peak = max(peak, tracemalloc.get_traced_memory()[0])
        return peak
    finally:
        tracemalloc.stop()


def test_small_slices_do_not_keep_their_buffers() -> None:
    # 1,024 buffers of 64 KiB would be 64 MiB.
    assert held_by(64, 65_536, 65_536) < 2 * WRITE_BUFFER


def test_whole_buffers_are_not_copied() -> None:
    # Copies would use the memory twice while copying.
    assert held_by(60_000, 65_536, WRITE_BUFFER) < 1.3 * WRITE_BUFFER


def test_the_slices_themselves_are_counted() -> None:
    slices = SliceQueue(WRITE_BUFFER, MemoryBudget(1 << 30))
    buffer = bytes(65_536)
    view = memoryview(buffer)
    for at in range(0, len(buffer), 8):
        slices.extend([view[at : at + 8]], 8)
    assert slices.size == len(buffer)
    assert slices.count < WRITE_BUFFER // 2 // 200 + 4  # not the 8,192 that were queued


def test_written_slices_do_not_cause_copies() -> None:
    slices = SliceQueue(WRITE_BUFFER, MemoryBudget(1 << 30))
    piece = memoryview(bytes(65_536))[:100]
    for _ in range(100):
        slices.extend([piece], 65_536)
        assert slices.count == 1  # without a copy, it is this very slice
        assert slices._queue[0] is piece
        slices.take(1_000)


def test_a_cleared_queue_is_empty() -> None:
    slices = SliceQueue(1_024, MemoryBudget(1 << 30))
    slices.extend([b"x"] * 3, 300)
    slices.clear()
    assert (slices.size, slices.count, slices.take(10)) == (0, 0, b"")
    slices.extend([b"y"], 1)
    assert slices.take(10) == b"y"
