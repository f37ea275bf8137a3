"""Test that a fork shares no random state with its parent (security, row 23)."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

# All kinds of random values, in a process that has generated some before and in its two children.
SCRIPT = """
import os
from hashlib import sha256
from parley._crypto.randomness import random_bytes
from parley._crypto.registry import KEX, SIGNING

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
def show():
    print(*(sha256(value).hexdigest() for value in draw()), flush=True)

# One child after the other, since long lines of two at once would mix in the pipe; the
# parent draws nothing in between, so both start from the same state of it.
for _ in range(2):
    child = os.fork()
    if child == 0:
        show()
        os._exit(0)
    os.waitpid(child, 0)
show()
"""


@pytest.mark.process
def test_fork_shares_no_random_state() -> None:
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=root, capture_output=True, text=True, check=True
    )
    draws = [line.split() for line in run.stdout.splitlines()]
    assert [len(values) for values in draws] == [11, 11, 11]
    counts = Counter(value for values in draws for value in values)
    assert [value for value, count in counts.items() if count > 1] == []
