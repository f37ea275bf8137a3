"""The time of each stage of the pipeline in one process, without Spark.

The journals are made by `parley simulate`. The stages are those of the tasks: reading segments,
auditing (decrypting and verifying), building rows, summarising, and writing Parquet files.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import process_time
from typing import TypeVar

import pyarrow as pa

from parley._crypto.keyfile import load_auditor_key
from parley._node.journal.segments import RANGE_SIZE
from parley._pipeline.audit_task import make_audit_task
from parley._pipeline.bronze_rows import NEEDED
from parley._pipeline.dated_files import event_files
from parley._pipeline.read_planner import Listing, whole_ranges
from parley._pipeline.schema import EVENT
from parley._pipeline.segment_reader import read_segment_range
from parley._pipeline.summarise import with_summaries

_Result = TypeVar("_Result")


def simulate_journals(directory: Path, minutes: float, nodes: int = 6, payload: int = 512) -> None:
    """Write the journals and the auditor's key: 7,000 records of 1.2 KB for a node and minute."""
    arguments = ["--journals", "journals", "--nodes", str(nodes), "--minutes", str(minutes)]
    arguments += ["--payload", str(payload)]
    subprocess.run(
        [sys.executable, "-m", "parley", "simulate", *arguments],
        cwd=directory,
        check=True,
        stdout=subprocess.DEVNULL,
    )


def stages(directory: Path) -> Iterator[tuple[str, float]]:
    """Yield the microseconds of processor time for each record, by stage; then the row count.

    `directory` contains `journals` and `auditor.key`. All rows are kept in memory.
    """
    key = load_auditor_key(directory / "auditor.key").private_bytes()
    listing = Listing.of(str(directory / "journals"))
    ranges = [one for file in listing.segments for one in whole_ranges(file, RANGE_SIZE)]
    read, batches = _timed(lambda: [list(read_segment_range(one)) for one in ranges])
    records = sum(batch.num_rows for group in batches for batch in group)
    yield "read", read / records * 1e6
    bronze = [[batch.select(NEEDED) for batch in group] for group in batches]
    audit = make_audit_task([key], payloads=True)
    took, rows = _timed(lambda: [row for group in bronze for row in audit(group)])
    yield "audit and rows", took / records * 1e6
    took, _ = _timed(lambda: list(with_summaries(rows, bytes(16))))
    yield "summaries", took / records * 1e6
    took, _ = _timed(lambda: _write(rows))
    yield "events to Parquet", took / records * 1e6
    yield "records", records
    yield "rows", sum(batch.num_rows for batch in rows)


def _write(rows: Sequence[pa.RecordBatch]) -> None:
    with tempfile.TemporaryDirectory() as name, event_files(Path(name), "events") as files:
        for batch in rows:
            if batch.num_rows and batch.column("part")[0].as_py() == EVENT:
                files.write(batch)


def _timed(work: Callable[[], _Result]) -> tuple[float, _Result]:
    began = process_time()
    done = work()
    return process_time() - began, done
