"""`parley journal export`: rows in Parquet files, as the audit gives them."""

import stat
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from parley._node.cli.journal import parquet
from parley._node.journal.audit.rows import EVENT_COLUMNS
from parley._pipeline.schema import EVENTS, WALKED_ARROW
from tests.node.cli.conftest import Parley
from tests.node.cli.journal.conftest import theft
from tests.node.protocol.pair import ALICE, BOB


@pytest.mark.slow
def test_rows_and_columns(
    parley: Parley, journals: Path, key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "GROUP_ROWS", 7)
    out = tmp_path / "new" / "tables"
    arguments = ("journal", "export", str(journals), "--to", "parquet", "--out", str(out))
    done = parley(*arguments, "--auditor-key", str(key), "--json")
    assert done.code == 0
    names = ("events", "sessions", "tunnels", "statements", "findings")
    assert done.last["files"] == {
        str(out / f"{name}.parquet"): pq.read_metadata(out / f"{name}.parquet").num_rows
        for name in names
    }
    assert sorted(path.name for path in out.iterdir()) == sorted(f"{n}.parquet" for n in names)
    assert {stat.S_IMODE(path.stat().st_mode) for path in out.iterdir()} == {0o600}
    table = pq.read_table(out / "events.parquet")
    expected = [{"time_ns": "time"}.get(name, name) for name in EVENT_COLUMNS]
    assert table.column_names == [*expected, "date"]
    rows = table.to_pylist()
    assert {row["journal"] for row in rows} == {ALICE.node_id.text, BOB.node_id.text}
    sent = [row for row in rows if row["type"] == "application" and row["direction"] == "sent"]
    assert [row["payload"] for row in sent] == [b"%d" % number for number in range(20)] * 2
    assert rows[0]["time"].date() == rows[0]["date"] == datetime(2027, 1, 15, tzinfo=UTC).date()
    assert pq.read_table(out / "sessions.parquet").num_rows >= 8
    assert pq.read_table(out / "findings.parquet").num_rows == 0
    (tunnel,) = pq.read_table(out / "tunnels.parquet").to_pylist()
    assert (tunnel["journal"], tunnel["forward"]) == (ALICE.node_id.text, 300)
    assert (tunnel["ended"] - tunnel["began"]).total_seconds() == 1
    again = parley(*arguments)
    assert (again.code, "already" in again.err) == (6, True)


def test_files_go_into_a_directory_here_unless_told(
    parley: Parley, journals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert parley("journal", "export", str(journals.resolve()), "--to", "parquet").code == 0
    assert (tmp_path / "journal-rows" / "events.parquet").is_file()


def test_without_payloads(parley: Parley, journals: Path, key: Path, tmp_path: Path) -> None:
    arguments = ("journal", "export", str(journals), "--out", str(tmp_path / "out"))
    assert parley(*arguments, "--auditor-key", str(key), "--no-payloads").code == 0
    rows = pq.read_table(tmp_path / "out" / "events.parquet").to_pylist()
    assert {row["payload"] for row in rows} == {None}
    assert {row["payload_size"] for row in rows} > {1, 2}


def test_what_fails_leaves_no_file(
    parley: Parley, journals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def add(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(parquet.ParquetFiles, "add", add)
    arguments = ("journal", "export", str(journals), "--out", str(tmp_path / "out"))
    assert parley(*arguments).code == 6
    assert list((tmp_path / "out").iterdir()) == []


def test_the_columns_are_those_of_the_pipeline() -> None:
    ours = parquet.schema(EVENT_COLUMNS)
    assert ours.names == EVENTS.fieldNames()
    assert {name: ours.field(name).type for name in ours.names} == {
        name: WALKED_ARROW.field(name).type for name in ours.names
    }


def test_numbers_that_no_column_holds() -> None:
    kind = parquet.schema(EVENT_COLUMNS).field("place").type
    assert parquet.arrow_array([1, None, 2**64 - 1], kind).to_pylist() == [1, None, 2**63 - 1]


def test_the_extra_is_named(
    parley: Parley, journals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "parley._node.cli.journal.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    done = parley("journal", "export", str(journals), "--out", str(tmp_path / "out"))
    assert (done.code, "needs the extra 'pipeline'" in done.err) == (2, True)


def test_export_writes_statements(
    parley: Parley, presented: Path, key: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    arguments = ("journal", "export", str(presented), "--out", str(out))
    assert parley(*arguments, "--auditor-key", str(key)).code == 0
    rows = pq.read_table(out / "statements.parquet").to_pylist()
    assert {row["status"] for row in rows} == {"ok"}
    assert {row["direction"] for row in rows} == {"sent", "received"}
    assert {row["made_ms"] for row in rows} == {theft().made_ms}
    assert all(row["time"].date() == row["date"] for row in rows)
