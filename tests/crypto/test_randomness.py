"""Tests of crypto/randomness.py, and that a fork shares no random state (security, row 23)."""

import pytest

from parley._crypto.randomness import random_bytes


@pytest.mark.parametrize("size", [0, 1, 32, 1000])
def test_size(size: int) -> None:
    assert len(random_bytes(size)) == size


def test_no_value_comes_twice() -> None:
    assert len({random_bytes(16) for _ in range(1000)}) == 1000
