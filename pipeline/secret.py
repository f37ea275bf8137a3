"""The secret of the checksums by which both ends are compared: drawn once, kept with the tables.

ROOT/checks/      one row, 16 bytes
"""

from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException

from parley._crypto.randomness import random_bytes
from parley._pipeline.summary.checks import KEY_SIZE
from parley._pipeline.tables import FILES, Tables, local_directory

_NAME: Final = "checks"


def check_key(tables: Tables) -> bytes:
    """The secret, drawn now if nobody has; a batch of these tables is in bronze already."""
    root = local_directory(tables.root)
    if root is not None and (root / "bronze").is_dir():
        return local_check_key(root)
    path = f"{tables.root}/{_NAME}"
    try:
        return bytes(tables.spark.read.parquet(path).collect()[0]["key"])
    except AnalysisException:
        tables.spark.createDataFrame(_drawn()).coalesce(1).write.parquet(path)
    return bytes(tables.spark.read.parquet(path).collect()[0]["key"])


def local_check_key(root: Path) -> bytes:
    """The same where the tables are in a directory of this machine."""
    path = root / _NAME / "part.parquet"
    for file in sorted(path.parent.glob(FILES)):
        try:
            key: bytes = pq.ParquetFile(file).read().column("key")[0].as_py()
        except pa.ArrowInvalid:
            continue  # a power cut left it empty; blocks of another secret's sums are not alike
        return key
    path.parent.mkdir(mode=0o700, exist_ok=True)
    hidden = path.with_name("_part.parquet")
    drawn = _drawn()
    pq.write_table(drawn, hidden)
    hidden.rename(path)
    return bytes(drawn.column("key")[0].as_py())


def _drawn() -> pa.Table:
    return pa.table({"key": pa.array([random_bytes(KEY_SIZE)], pa.binary())})
