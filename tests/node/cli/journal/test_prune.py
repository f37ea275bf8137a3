"""`parley journal prune`: limits and output. The tests of the journal cover which segments are
removed.
"""

import shutil
from pathlib import Path

from tests.node.cli.conftest import Parley


def test_by_size(parley: Parley, journals: Path) -> None:
    before = {path.name for path in journals.iterdir()}
    size = sum(path.stat().st_size for path in journals.iterdir())
    arguments = ("journal", "prune", str(journals), "--max-size", f"{size - 1}B", "--json")
    tried = parley(*arguments, "--dry-run")
    assert {path.name for path in journals.iterdir()} == before
    done = parley(*arguments)
    assert (tried.lines[:-1], tried.last["dry_run"]) == (done.lines[:-1], True)
    (removed,) = done.lines[:-1]
    assert before - {path.name for path in journals.iterdir()} == {removed["file"]}
    assert removed["file"].startswith(removed["node_id"])
    expected = {"event": "done", "files": 1, "size": removed["size"], "dry_run": False}
    assert done.last == expected
    assert parley(*arguments).last["files"] == 0


def test_by_age(parley: Parley, journals: Path, tmp_path: Path) -> None:
    # These journals are of 2027, and so not old yet.
    kept = parley("journal", "prune", str(journals), "--older-than", "0s")
    assert (kept.code, kept.out) == (0, "0 files, 0 bytes removed\n")
    shutil.copytree(journals, tmp_path / "copy")
    done = parley("journal", "prune", str(tmp_path / "copy"), "--max-size", "0B")
    assert "4 files, " in done.out
    assert list((tmp_path / "copy").glob("*.pjl")) == []


def test_usage(parley: Parley, journals: Path, tmp_path: Path) -> None:
    for arguments in ([], ["--max-size", "much"], ["--older-than", "30"]):
        assert parley("journal", "prune", str(journals), *arguments).code == 2
    assert parley("journal", "prune", str(tmp_path / "none"), "--max-size", "1GB").code == 6
