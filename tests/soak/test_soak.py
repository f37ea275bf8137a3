"""A few seconds of a long run on each backend, like `python -m tests.soak`."""

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


@pytest.mark.parametrize(("backend", "resume"), [*zip(BACKENDS, (30.0, 0.0, 30.0), strict=True)])
def test_every_promise_is_kept(backend: str, resume: float, soak_seconds: float) -> None:
    progress: list[str] = []
    plan = Plan(seconds=soak_seconds, seed=SEED, backend=backend, resume=resume)
    report = run(plan, progress.append)
    assert report.violations == [], "\n".join([*progress, str(report.data())])
    # A run without work or cuts would prove little.
    assert min(report.came[kind] for kind in KINDS) > 100
    assert min(report.notes.values()) > 100
    assert report.cuts
    assert report.missed
    assert report.at_rest == report.graceful // 2 == 3
    if resume:
        assert (report.connections, report.ended) == (3, {})
        assert report.resumes
    else:
        assert report.connections > 3
        assert set(report.ended) == {"-1"}
    assert json.loads(json.dumps(report.data()))["kept"] is True
