"""Tests of crypto/randomness.py, and that a fork shares no random state (security, row 23)."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from crypto import random_bytes

# Everything that is drawn, in a process that has drawn before and its two children.
SCRIPT = """
import os
from crypto import KEX, SIGNING, Identity, random_bytes

def draw():
    yield random_bytes(32)
    for kex in KEX.values():
        key = kex.generate()
        share, secret = kex.respond(key.share)
        yield from (key.share, share, secret)
    for algorithm in SIGNING.values():
        yield algorithm.generate().public
    yield fixed.sign(b"hedged")

fixed = SIGNING["ml-dsa-65"].load(bytes(32))
list(draw())
for _ in range(2):
    if os.fork() == 0:
        print(*(value.hex() for value in draw()), flush=True)
        os._exit(0)
for _ in range(2):
    os.wait()
print(*(value.hex() for value in draw()), flush=True)
"""


@pytest.mark.parametrize("size", [0, 1, 32, 1000])
def test_size(size: int) -> None:
    assert len(random_bytes(size)) == size


def test_no_value_comes_twice() -> None:
    assert len({random_bytes(16) for _ in range(1000)}) == 1000


def test_fork_shares_no_random_state() -> None:
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=root, capture_output=True, text=True, check=True
    )
    lines = run.stdout.splitlines()
    assert len(lines) == 3
    counts = Counter(value for line in lines for value in line.split())
    assert len(counts) == 3 * len(lines[0].split())
    assert set(counts.values()) == {1}
