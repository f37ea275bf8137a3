"""Commands of the pipeline whose Java ends: with them, or before them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.node.network import PATIENCE

pytestmark = [pytest.mark.spark, pytest.mark.jvm, pytest.mark.timeout(180)]

WORKING = """
import os, signal
from pyspark import SparkContext
from parley._node.cli.spark_session import spark_session
from parley._node.errors import UnreachableError

try:
    with spark_session("local[1]", None, "512m") as spark:
        assert spark.range(3).count() == 3
        os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)
        spark.range(3).count()
except UnreachableError as error:
    print(error)
"""


def test_a_java_that_is_killed_is_told_in_a_sentence() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WORKING], capture_output=True, text=True, timeout=170, check=True
    )
    assert done.stdout.startswith("cannot continue with Spark: its Java process ended early (")
    assert "Traceback" not in done.stderr


def test_whoever_interrupts_its_start_leaves_no_java(tmp_path: Path) -> None:
    (tmp_path / "journals").mkdir()
    command = ("pipeline", "run", "--journals", "journals", "--tables", "tables")
    running = subprocess.Popen(
        [sys.executable, "-m", "parley", *command],
        cwd=tmp_path,
        env={**os.environ, "PARLEY_HOME": str(tmp_path / "home")},
        stderr=subprocess.PIPE,
        text=True,
    )
    starting: list[psutil.Process] = []
    while not any(process.name() == "java" for process in starting):
        assert running.poll() is None
        starting = psutil.Process(running.pid).children()
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 130
    assert said == "parley: interrupted by SIGINT\n"
    _, alive = psutil.wait_procs(starting, PATIENCE)
    assert alive == []
