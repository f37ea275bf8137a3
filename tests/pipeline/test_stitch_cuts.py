"""The tables don't depend on how a journal is divided into batches; without Spark."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from parley._crypto.auditor import AuditorPrivateKey
from parley._node.apps.simulate import actors as stream_sender
from parley._node.apps.simulate.plan import Plan
from parley._node.apps.simulate.world import Keeping
from parley._node.journal import keys
from tests import sampling
from tests.node.apps.simulate.journals import run
from tests.pipeline.local_pipeline import Told, Walks, growing

KEY = AuditorPrivateKey.create()
SEGMENT_SIZE = 16_384
PLAN = Plan(nodes=3, minutes=0.02)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(metafunc.config.getoption("--seeds")))


@pytest.fixture
def journal(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That of one of three nodes, with sessions side by side, in segments of several blocks."""
    monkeypatch.setattr(keys, "BLOCK_SIZE", 4_096)
    monkeypatch.setattr(keys, "CHECKPOINT_PART", 3)
    monkeypatch.setattr(stream_sender, "KEY_RATE", 4)
    place = tmp_path / "journals"
    run(replace(PLAN, seed=seed), Keeping(place, KEY.public, SEGMENT_SIZE))
    sizes: Counter[str] = Counter()
    for path in place.glob("*.pjl"):
        sizes[path.name[:52]] += path.stat().st_size
    (node, _), *_ = sizes.most_common(1)
    journal = tmp_path / "journal"
    journal.mkdir()
    for path in place.glob(f"{node}*.pjl"):
        path.rename(journal / path.name)
    return journal


def assert_same(told: Told, whole: Told, where: str) -> None:
    assert told.findings == whole.findings, where
    assert told.sessions == whole.sessions, where
    assert told.events.equals(whole.events), where


def test_two_batches_say_what_one_says(journal: Path, tmp_path: Path) -> None:
    walks = Walks([KEY.private_bytes()])
    whole = walks.told_by([journal])
    assert whole.findings == []
    assert set(whole.statuses()) <= {"ok", "unsealed"}
    assert sum('"what": "end"' in row for row in whole.sessions) >= 2
    for number, place in enumerate(growing(journal, tmp_path / "growing")):
        if number % 2 != sampling.seed % 2:
            continue  # the seed of the run chooses half of the records
        assert_same(walks.told_by([place, journal]), whole, f"cut behind record {number}")


def test_a_batch_for_each_record_says_it_too(journal: Path, tmp_path: Path) -> None:
    walks = Walks([KEY.private_bytes()])
    whole = walks.told_by([journal])
    assert_same(walks.told_by(growing(journal, tmp_path / "growing")), whole, "at each record")
