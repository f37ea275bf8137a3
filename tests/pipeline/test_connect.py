"""Over Spark Connect: a real server of this machine, and a client that has no Java."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from pipeline.java import find_java, shim_home
from tests.pipeline.conftest import JAVA_OPTIONS
from tests.pipeline.segments import make_segment

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.slow]

HOME = Path(pyspark.__file__).parent
SETTINGS = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
}


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
            yield f"sc://127.0.0.1:{port}"
        finally:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()


@pytest.mark.timeout(240)
def test_source_and_bronze_run_on_a_connect_server(server: str, tmp_path: Path) -> None:
    segments = [make_segment(number) for number in range(2)]
    for made in segments:
        made.write(tmp_path / "journals")
    arguments = [str(tmp_path / "journals"), str(tmp_path / "tables"), "--remote", server]
    run = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.ingesting", *arguments],
        env={**os.environ, "PATH": "/nowhere", "JAVA_HOME": "/nowhere"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr + (tmp_path / "server").read_text()
    home, rows = run.stdout.split()
    assert home != ""
    assert int(rows) == sum(len(made.offsets) for made in segments)
    counted = sorted(path.name for path in (tmp_path / "tables" / "counts").iterdir())
    assert counted == ["batch=0", "batch=1"]
