"""`parley bus backup` and `restore`, and what doctor reports of a file that was copied instead."""

import shutil
from pathlib import Path

import pytest

from parley._node.cli.doctor import settings_checks as doctor_bus
from parley._node.cli.doctor.settings_checks import check_contents
from tests.node.bus.sqlite.test_backup import make
from tests.node.cli.conftest import Parley, Publish


def test_a_backup_is_restored(parley: Parley, publish: Publish, tmp_path: Path) -> None:
    url, copy = f"sqlite:///{tmp_path}/bus.db", tmp_path / "copy.db"
    parley("bus", "publish", url, "shop.sold", "{}")
    done = parley("bus", "backup", url, str(copy), "--json")
    assert done.last == {"event": "done", "file": str(copy), "size": copy.stat().st_size}
    parley("bus", "publish", url, "shop.sold", "{}")
    kept = f"{tmp_path}/bus.db.before-restore"
    done = parley("bus", "restore", str(copy), url)
    assert done.out == (
        f"{tmp_path}/bus.db restored from {copy}\nthe former bus was renamed to {kept}\n"
    )
    for path, count in ((f"{tmp_path}/bus.db", 1), (kept, 2)):
        done = parley("bus", "tail", f"sqlite:///{path}", "shop.sold", "--json")
        assert done.last["count"] == count


@pytest.mark.parametrize(
    ("bus", "code"),
    [("redis://127.0.0.1:1/0", 2), ("tcp://127.0.0.1:1", 2), ("bus.db", 2), ("sqlite:///no.db", 6)],
)
def test_other_buses_are_refused(parley: Parley, tmp_path: Path, bus: str, code: int) -> None:
    done = parley("bus", "backup", bus, str(tmp_path / "copy.db"))
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("parley: ")


def test_doctor_reports_a_file_with_the_log_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, backup = make(tmp_path, 1_000)
    url = f"sqlite:///{path}"
    (found,) = check_contents(url)
    assert (str(found.level), found.text) == ("ok", "its contents are intact")
    monkeypatch.setattr(doctor_bus, "PATIENCE", -1.0)
    (found,) = check_contents(url)
    assert (str(found.level), "without finding damage" in found.text) == ("ok", True)
    monkeypatch.undo()
    shutil.copy(backup, path)
    (found,) = check_contents(url)
    assert str(found.level) == "problem"
    assert found.text.startswith(f"cannot use the bus {str(path)!r}: the file is damaged: ")
    assert found.mend == f"stop the node, then parley bus restore BACKUP {url}"
    assert list(check_contents(f"sqlite:///{tmp_path}/none.db")) == []
    assert list(check_contents("redis://127.0.0.1/0")) == []


@pytest.mark.process
def test_doctor_ends_with_a_problem(parley: Parley, tmp_path: Path) -> None:
    path, backup = make(tmp_path, 1_000)
    shutil.copy(backup, path)
    done = parley("doctor", "--bus", f"sqlite:///{path}", "--json")
    found = [line for line in done.lines if line.get("level") == "problem"]
    assert done.code == 1
    assert any("is damaged" in line["text"] for line in found)
