"""The same work as silver's, without Spark: a pool of processes, Parquet in, Parquet out.

It reads the files that bronze has, walks them with the same function and writes the same
columns, so that what is left between the two is Spark. Its processes live as long as Spark's,
and have imported what they need.
"""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from time import sleep

import pyarrow.parquet as pq

from parley._pipeline.audit_task import make_audit_task
from parley._pipeline.schema import WALKED_ARROW
from parley._pipeline.silver import read_file


@contextmanager
def plain_pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """A pool whose processes are all there."""
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        list(pool.map(sleep, [1.0] * processes))
        yield pool


def audit_files(pool: ProcessPoolExecutor, bronze: Path, out: Path, private_key: bytes) -> int:
    """Walk all files of bronze; returns how many rows were written."""
    files = sorted(bronze.rglob("*.parquet"))
    out.mkdir()
    jobs = [
        pool.submit(_walk_file, path, out / f"{number}.parquet", private_key)
        for number, path in enumerate(files)
    ]
    return sum(job.result() for job in jobs)


def _walk_file(path: Path, out: Path, private_key: bytes) -> int:
    count = 0
    walk = make_audit_task([private_key], payloads=True, check_key=bytes(16))
    with pq.ParquetWriter(out, WALKED_ARROW, compression="snappy") as writer:
        for batch in walk(read_file(str(path))):
            writer.write_batch(batch)
            count += batch.num_rows
    return count
