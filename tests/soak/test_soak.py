"""A few seconds of a long run on each backend, in the way of `python -m tests.soak`."""

import json

import pytest

from tests.soak.plan import BACKENDS, Plan
from tests.soak.run import run

SEED = 20
KINDS = (
    "calls",
    "items",
    "events",
    "bytes there",
    "bytes back",
    "notes of feed",
    "notes of ticker",
)


@pytest.mark.slow
@pytest.mark.xdist_group("soak")  # one after another: each keeps two cores busy
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_promise_is_kept(backend: str, soak_seconds: float) -> None:
    progress: list[str] = []
    report = run(Plan(seconds=soak_seconds, seed=SEED, backend=backend), progress.append)
    assert report.violations == [], "\n".join([*progress, *report.lines()])
    # A run in which nothing was done, or nothing was cut, would promise little.
    assert min(report.came[kind] for kind in KINDS) > 100
    assert min(report.notes.values()) > 100
    assert report.cuts
    assert report.missed
    assert report.connections > report.at_rest == report.graceful // 2 == 3
    assert set(report.ended) == {"-1"}
    assert json.loads(json.dumps(report.data()))["kept"] is True
