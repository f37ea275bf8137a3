"""Tests of tests/fuzz/script.py: any bytes are a script, and a script has its bytes."""

from random import Random  # noqa: TID251  # tests may

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.script import (
    LARGE_ASYNC_IDS,
    LARGE_STREAMS,
    MOST_STEPS,
    Kind,
    Step,
    mutate,
    parse,
    serialise,
)

BYTE = st.integers(0, 255)
STEPS = st.builds(
    Step,
    st.sampled_from(Kind),
    st.integers(0, 239) | st.sampled_from(LARGE_STREAMS),
    st.integers(0, 239) | st.sampled_from(LARGE_ASYNC_IDS),
    BYTE,
    BYTE,
    st.binary(max_size=20),
    st.booleans(),
)


@given(st.lists(STEPS, max_size=6))
def test_a_script_has_its_bytes(steps: list[Step]) -> None:
    assert parse(serialise(steps)) == steps


@given(st.binary(max_size=100))
def test_any_bytes_are_a_script(data: bytes) -> None:
    steps = parse(data)
    assert bool(steps) == bool(data)
    assert sum(len(step.payload) for step in steps) <= len(data)


def test_a_script_has_an_end() -> None:
    assert len(parse(bytes(7 * 1000))) == MOST_STEPS


def test_a_number_without_a_place() -> None:
    with pytest.raises(ValueError, match="not in tuple"):
        serialise([Step(Kind.EVENT, 1000)])


def changed(data: bytes, max_size: int) -> bytes:
    """As the fuzzer does: more bytes, or others."""
    return (data + b"more")[:max_size]


@given(st.lists(STEPS, max_size=4), st.integers(0, 2**32 - 1), st.binary(min_size=1, max_size=2))
def test_a_mutated_script_is_one_that_fits(steps: list[Step], seed: int, first: bytes) -> None:
    data = first + serialise(steps)
    mutated = mutate(data, 64, seed, changed, len(first))
    assert len(mutated) <= 64
    assert mutate(data, 64, seed, changed, len(first)) == mutated


def test_mutations_reach_heads_payloads_and_order() -> None:
    steps = [Step(Kind.EVENT, 1, 2, 3, 4, b"abc"), Step(Kind.ACTION, 5, payload=b"de")]
    data = b"\0" + serialise(steps)
    random = Random(1)
    made = [parse(mutate(data, 200, random.randrange(2**32), changed)[1:]) for _ in range(300)]
    assert any(len(script) == 1 for script in made)
    assert any(len(script) > 2 for script in made)
    assert any(script[0] == steps[1] for script in made if script)
    assert any(script[0].payload == b"abcmore" for script in made if script)
    assert any(script[0].category not in (3, 0) for script in made if script)
