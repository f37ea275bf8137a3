"""Files of bronze as tasks take them; without Spark."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parley._pipeline import silver as module
from parley._pipeline.bronze_rows import NEEDED
from parley._pipeline.schema import BRONZE_ARROW
from parley._pipeline.silver import audit_files, group_bronze_files, read_file


def write(path: Path, rows: int, size: int = 100) -> str:
    """A file of bronze with bodies of `size` bytes, the offset being the row's number."""
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {field.name: pa.nulls(rows, field.type) for field in BRONZE_ARROW}
    columns["offset"] = pa.array(range(rows), pa.int64())
    columns["body"] = pa.array([bytes(size)] * rows, pa.binary())
    pq.write_table(pa.table(columns), path, compression="none", use_dictionary=False)
    return str(path)


def test_small_files_are_taken_together_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [write(tmp_path / f"date=2026-11-2{n % 2}/part-{n}.parquet", 10) for n in range(5)]
    write(tmp_path / "date=2026-11-20/.part-9.parquet.crc", 1)
    (tmp_path / "_SUCCESS").touch()
    ordered = [files[0], files[2], files[4], files[1], files[3]]
    assert group_bronze_files(tmp_path) == [ordered]
    size = Path(files[0]).stat().st_size
    for sizes, tasks, wanted in (
        ((2 * size, 9 * size), 16, [2, 2, 1]),
        ((1, 2 * size), 1, [2, 2, 1]),
        ((1, 9 * size), 2, [2, 2, 1]),
        ((1, 1), 16, [1, 1, 1, 1, 1]),
    ):
        monkeypatch.setattr(module, "TASK_SIZES", sizes)
        monkeypatch.setattr(module, "TASKS", tasks)
        groups = group_bronze_files(tmp_path)
        assert [len(group) for group in groups] == wanted
        assert [path for group in groups for path in group] == ordered
    assert group_bronze_files(tmp_path / "none") == []


def test_a_file_is_read_in_pieces_of_about_a_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "some.parquet", 1_000, size=1_000)
    (whole,) = read_file(path)
    assert set(whole.schema.names) == set(NEEDED)
    monkeypatch.setattr(module, "PIECE_SIZE", 200_000)
    pieces = list(read_file(path))
    offsets = [row for piece in pieces for row in piece.column("offset").to_pylist()]
    assert offsets == [*range(1_000)]
    assert 100 < pieces[0].num_rows < 200
    # A row of any size is read, and rows are read together.
    monkeypatch.setattr(module, "PIECE_SIZE", 1)
    assert next(read_file(path)).num_rows == module.LEAST_ROWS
    assert list(read_file(write(tmp_path / "none.parquet", 0))) == []


def test_each_file_is_a_walk_of_its_own(tmp_path: Path) -> None:
    files = [write(tmp_path / f"{n}.parquet", n) for n in (1, 2, 3)]
    walks: list[int] = []

    def walk(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        walks.append(sum(batch.num_rows for batch in batches))
        return iter(())

    run = audit_files(walk, [files[:2], files[2:]])
    numbers = pa.RecordBatch.from_arrays([pa.array([1, 0])], names=["id"])
    assert list(run([numbers])) == []
    assert walks == [3, 1, 2]
