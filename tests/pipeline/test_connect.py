"""Over Spark Connect: a real server of this machine, and a client that has no Java."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import sleep

import pyspark
import pytest

from parley._crypto.keyfile import save_auditor_key
from parley._node.journal.audit.rows import STATUS_AT
from parley._node.journal.segments import CLOSED
from parley._pipeline.spark import find_java, shim_home
from tests.node.journal.memory_journal import AUDITOR, RecordedPair, audit_of
from tests.pipeline.conftest import JAVA_OPTIONS

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.jvm]

HOME = Path(pyspark.__file__).parent
SETTINGS = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
}


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of a server, by PySpark's own script."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {**SETTINGS, "spark.connect.grpc.binding.port": str(port)}
    arguments = [part for pair in settings.items() for part in ("--conf", "=".join(pair))]
    environment = {
        **os.environ,
        "JAVA_HOME": str(shim_home(find_java())),
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOG_DIR": str(tmp_path),
        "SPARK_PID_DIR": str(tmp_path),
        "PYSPARK_PYTHON": sys.executable,
    }
    script = str(HOME / "sbin" / "start-connect-server.sh")
    with (tmp_path / "server").open("wb") as said:
        run = subprocess.Popen(
            [
                script,
                "--wait",
                "--master",
                "local[2]",
                "--driver-java-options",
                JAVA_OPTIONS,
                *arguments,
            ],
            cwd=tmp_path,
            env=environment,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        try:
            while not _answers(port):
                assert run.poll() is None, (tmp_path / "server").read_text()
                sleep(0.2)  # the test's own time-out bounds it
            yield f"sc://127.0.0.1:{port}"
        finally:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()


@pytest.mark.timeout(240)
def test_all_of_it_runs_on_a_connect_server(server: str, tmp_path: Path) -> None:
    recorded = RecordedPair()
    for number in range(40):
        recorded.pair.a.core.send(1, 0, 64, 1, b"%d" % number, lbm=False)
        recorded.pump()
    recorded.end()
    (tmp_path / "journals").mkdir()
    rows = Counter[str]()
    for journal in recorded.journals:
        rows.update(row[STATUS_AT] for row in audit_of(journal.segments, AUDITOR).take_events())
        for stem, data in journal.segments.items():
            (tmp_path / "journals" / (stem + CLOSED)).write_bytes(data)
    save_auditor_key(tmp_path / "auditor.key", AUDITOR)
    options = {"journals": "journals", "tables": "tables", "auditor-key": "auditor.key"}
    arguments = ["run", "--remote", server, "--json"]
    arguments += [f"--{name}={tmp_path / place}" for name, place in options.items()]
    run = subprocess.run(
        [sys.executable, "-m", "parley", "pipeline", *arguments],
        env={**os.environ, "PATH": "/proc/nowhere", "JAVA_HOME": "/proc/nowhere"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr + (tmp_path / "server").read_text()
    done = json.loads(run.stdout.splitlines()[-1])
    assert (done["statuses"], done["decrypted"]) == (dict(rows), True)
    assert set(done["kinds"]) <= {"unsealed"}
