"""Tests that are marked `alone` search or weigh all objects of their process.

They run only with `-m alone`, because the objects of all other tests would make them ten times as
slow: name their folder, so that the others are not even imported.
"""

import gc
from typing import Any

import pytest

_is_here = False


def configure(config: pytest.Config) -> None:
    """Note whether this process runs such tests."""
    global _is_here
    _is_here = str(config.getoption("markexpr")) == "alone"


def is_here() -> bool:
    """Whether this process runs such tests only."""
    return _is_here


def alive() -> list[Any]:
    """Return all objects of this process that the collector knows of, except garbage."""
    assert is_here(), "run it with `-m alone`: other tests have left objects in this process"
    gc.collect()
    return gc.get_objects()
