"""A nats-server for one measurement, with TLS and certificates on both sides."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.process import ChildError

PROGRAM: Final = "nats-server"
# Seconds that it may take to listen and to end, and between two looks at whether it listens.
PATIENCE: Final = 10.0
LOOK: Final = 0.01

_SETTINGS: Final = """
listen: "127.0.0.1:-1"
ports_file_dir: "{where}"
tls {{
  cert_file: "{where}/server.crt"
  key_file: "{where}/server.key"
  ca_file: "{where}/ca.crt"
  verify: true
}}
"""


@contextmanager
def running_server(where: Path, *, one_core: bool) -> Iterator[int]:
    """One that listens, with the certificates of a directory; its process.

    Raises:
        ChildError: it does not start.
    """
    (where / "nats.conf").write_text(_SETTINGS.format(where=where))
    process = subprocess.Popen(
        [PROGRAM, "-c", where / "nats.conf", "-l", where / "nats.log"],
        preexec_fn=_on_last_core if one_core and hasattr(os, "sched_setaffinity") else None,
    )
    try:
        end = time.perf_counter() + PATIENCE
        while _ports(where) is None:
            if process.poll() is not None or time.perf_counter() > end:
                raise ChildError(f"{PROGRAM} does not listen")
            time.sleep(LOOK)
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _on_last_core() -> None:
    """As its clients; it uses as many cores as it has when it begins."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def address(where: Path) -> str:
    """Where it listens.

    Raises:
        ChildError: it does not.
    """
    text = _ports(where)
    if text is None:
        raise ChildError(f"no {PROGRAM} listens")
    return text


def _ports(where: Path) -> str | None:
    """Return the ports that the server has written; None until they are complete."""
    for path in where.glob("*.ports"):
        try:
            return str(json.loads(path.read_text())["nats"][0])
        except ValueError:
            return None
    return None


def version() -> str:
    """Return the program's reported version, such as `2.9.10`."""
    said = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True)
    return said.stdout.split()[-1].removeprefix("v")


def is_installed() -> bool:
    """Whether there is such a program."""
    return shutil.which(PROGRAM) is not None
