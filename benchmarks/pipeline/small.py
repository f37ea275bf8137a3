"""What most people try first: the three commands on small journals, each a process of its own."""

import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from benchmarks.pipeline.journals import make_journals
from parley._crypto.keyfile import save_auditor_key


def small(count: int, cores: int) -> dict[str, float]:
    """Seconds that each command takes with so many events; `again` has nothing new."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        (place / "journals").mkdir()
        save_auditor_key(place / "auditor.key", make_journals(place / "journals", count))
        run = ["run", "--journals", "journals", "--tables", "tables", "--auditor-key"]
        run += ["auditor.key", "--master", f"local[{cores}]"]
        report = ["report", "--tables", "tables", "--html", "report.html"]
        return {
            title: _timed(place, *command)
            for title, command in (("run", run), ("again", run), ("report", report))
        }


def _timed(place: Path, *command: str) -> float:
    began = perf_counter()
    arguments = [sys.executable, "-m", "parley", "pipeline", *command]
    subprocess.run(arguments, cwd=place, check=True, stdout=subprocess.DEVNULL)
    return perf_counter() - began
