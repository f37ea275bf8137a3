"""How the time of a whole run grows with the rows of its tables, and falls with cores.

Each measurement is one `parley pipeline run` of new tables in its own process, with the start of
Java, an auditor's key, and gold. A cluster is the one of `parley pipeline cluster`, which runs
before the measurement begins.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from benchmarks.machine import machine
from benchmarks.pipeline.journals import make_journals
from parley._crypto.keyfile import save_auditor_key
from parley._pipeline.local_cluster import local_cluster

SIZES: Final = (10_000, 100_000, 1_000_000, 3_000_000)
# Masters of the measurement by cores, and the number of rows in it.
LOCAL: Final = "local[2]"
CLUSTERS: Final = {"cluster, 1 worker": 1, "cluster, 2 workers": 2}
MASTERS: Final = ("local[1]", LOCAL, *CLUSTERS)
ROWS_BY_CORES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Measurement:
    """The seconds of one run."""

    master: str
    rows: int
    seconds: float

    @property
    def rate(self) -> float:
        """Return the rows per second."""
        return self.rows / self.seconds


def planned(sizes: Sequence[int]) -> list[tuple[int, list[str]]]:
    """Return the masters for each size, beginning with the smallest."""
    by_cores = min(ROWS_BY_CORES, max(sizes))
    some = sorted({*sizes, by_cores})
    return [(rows, list(MASTERS) if rows == by_cores else [LOCAL]) for rows in some]


def read_results(file: Path) -> list[Measurement]:
    """Read the measurements of a file; one that was cut off while it was written is left out."""
    found = []
    for line in file.read_text().splitlines() if file.exists() else []:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if "master" in row:
            found.append(Measurement(row["master"], row["rows"], row["seconds"]))
    return found


def measure(sizes: Sequence[int], file: Path | None) -> Iterator[Measurement]:
    """Make the measurements that `file` lacks, append each to it, and yield all.

    A file of another machine's results, or of another build's, is refused with a ValueError.
    """
    known = {(one.master, one.rows): one for one in read_results(file)} if file else {}
    if file is not None:
        _begin(file)
    for rows, masters in planned(sizes):
        left = [master for master in masters if (master, rows) not in known]
        yield from (known[master, rows] for master in masters if master not in left)
        if not left:
            continue
        with tempfile.TemporaryDirectory() as name:
            place = Path(name)
            (place / "journals").mkdir()
            print(f"scale: making journals of {rows:,} events", file=sys.stderr, flush=True)
            save_auditor_key(place / "auditor.key", make_journals(place / "journals", rows))
            for master in left:
                print(f"scale: {rows:,} rows on {master}", file=sys.stderr, flush=True)
                done = Measurement(master, rows, _run(place, master, rows))
                if file is not None:
                    with file.open("a") as results:
                        print(json.dumps(asdict(done)), file=results)
                yield done


def _begin(file: Path) -> None:
    lines = file.read_text().splitlines() if file.exists() else []
    if not lines:
        file.write_text(json.dumps({"machine": machine()}) + "\n")
    elif json.loads(lines[0]) != {"machine": machine()}:
        raise ValueError(f"cannot continue {file}: it was measured on another machine or build")


def _run(place: Path, master: str, rows: int) -> float:
    with tempfile.TemporaryDirectory(dir=place) as tables, _started(master) as (url, environment):
        arguments = ["run", "--journals", "journals", "--tables", tables, "--master", url]
        arguments += ["--auditor-key", "auditor.key", "--json"]
        began = perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "parley", "pipeline", *arguments],
            cwd=place,
            env={**os.environ, **environment},
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        seconds = perf_counter() - began
    last: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    statuses = last["statuses"]
    # The session itself has a few events more.
    if statuses.get("ok", 0) < rows or set(statuses) != {"ok"}:
        raise ValueError(f"wrong tables of {rows:,} events: {statuses}")
    return seconds


@contextmanager
def _started(master: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the URL of a master, and the environment of programs that use it."""
    if master not in CLUSTERS:
        yield master, {}
        return
    with (
        tempfile.TemporaryDirectory(prefix="parley-cluster-") as name,
        local_cluster(Path(name), workers=CLUSTERS[master]) as cluster,
    ):
        yield cluster.master, {"SPARK_CONF_DIR": str(cluster.configuration)}
