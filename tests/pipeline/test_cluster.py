"""On a standalone cluster: a master and two workers, which are processes of this machine."""

import json
import os
import shutil
import signal
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import sleep

import psutil
import pytest
from pyspark.sql import SparkSession

from parley._crypto.keyfile import save_auditor_key
from parley._node.errors import UnreachableError
from parley._node.journal.segments import CLOSED
from parley._pipeline.jobs import run as run_job
from parley._pipeline.local_cluster import local_cluster
from tests.node.journal.memory_journal import AUDITOR, RecordedPair
from tests.pipeline.conftest import JAVA_OPTIONS
from tests.pipeline.table_rows import rows_of

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.jvm,
    pytest.mark.timeout(240),
]

COMMAND = [sys.executable, "-m", "parley", "pipeline"]


@dataclass(frozen=True)
class Cluster:
    """The cluster that `parley pipeline cluster` started."""

    master: str
    configuration: Path
    pids: dict[str, int]

    def environment(self, place: Path, **more: str) -> dict[str, str]:
        """Return the environment of a program that uses it and logs its events to `place`."""
        settings = {
            **more,
            "spark.executor.extraJavaOptions": JAVA_OPTIONS,
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": str(place / "log"),
        }
        (place / "log").mkdir()
        shutil.copytree(self.configuration, place / "conf")
        with (place / "conf" / "spark-defaults.conf").open("a") as file:
            file.writelines(f"{name} {value}\n" for name, value in settings.items())
        return {**os.environ, "SPARK_CONF_DIR": str(place / "conf")}

    def secret(self) -> str:
        """Return the secret of Spark's processes."""
        text = (self.configuration / "spark-defaults.conf").read_text()
        return dict(line.split() for line in text.splitlines())["spark.authenticate.secret"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """The command; when it ends, its processes and files are gone."""
    with subprocess.Popen(
        [*COMMAND, "cluster", "--json"], stdout=subprocess.PIPE, text=True
    ) as command:
        try:
            assert command.stdout is not None
            started = json.loads(command.stdout.readline())
            assert started["event"] == "started", started
            made = Cluster(started["master"], Path(started["configuration"]), started["pids"])
            before = _tree(command.pid)
            yield made
            left = {*before, *_tree(command.pid)} - {psutil.Process(command.pid)}
        finally:
            command.send_signal(signal.SIGTERM)
            command.wait()
        assert command.returncode == 0
        _, alive = psutil.wait_procs(left, 10)
        assert alive == []
        assert not made.configuration.parent.exists()


@pytest.fixture(scope="module")
def journals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both journals of a session, and the auditor's key next to them."""
    place = tmp_path_factory.mktemp("cluster")
    recorded = RecordedPair()
    for number in range(40):
        recorded.pair.a.core.send(1, 0, 64, 1, b"%d" % number, lbm=False)
        recorded.pump()
    recorded.end()
    (place / "journals").mkdir()
    for journal in recorded.journals:
        for stem, data in journal.segments.items():
            (place / "journals" / (stem + CLOSED)).write_bytes(data)
    save_auditor_key(place / "auditor.key", AUDITOR)
    return place


@pytest.fixture(scope="module")
def local(spark: SparkSession, journals: Path) -> dict[str, list[str]]:
    """The rows of the tables that Spark makes in one process."""
    tables = journals / "local"
    run_job(spark, str(journals / "journals"), str(tables), [AUDITOR.private_bytes()])
    rows = rows_of(tables)
    assert (
        sum(len(rows[name]) for name in rows if name.startswith("silver/batch=0/part=event")) > 40
    )
    return rows


def _run(
    cluster: Cluster, journals: Path, place: Path, environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    """Start a run with relative paths, and the secret of the local tables' checksums."""
    (place / "tables").mkdir()
    shutil.copytree(journals / "local" / "checks", place / "tables" / "checks")
    (place / "journals").symlink_to(journals / "journals")
    arguments = ["run", "--journals", "journals", "--tables", "tables", "--master", cluster.master]
    arguments += ["--auditor-key", str(journals / "auditor.key")]
    with (place / "errors").open("wb") as errors:
        return subprocess.Popen([*COMMAND, *arguments], cwd=place, env=environment, stderr=errors)


def _tree(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def _visible_to_others(running: int, cluster: Cluster) -> str:
    """Return the command lines of a run's processes, and of the cluster's."""
    lines = []
    for process in [*_tree(running), *(one for pid in cluster.pids.values() for one in _tree(pid))]:
        try:
            lines.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return "\n".join(lines)


def test_tables_are_those_of_one_process_and_no_key_is_visible(
    cluster: Cluster, journals: Path, local: dict[str, list[str]], tmp_path: Path
) -> None:
    running = _run(cluster, journals, tmp_path, cluster.environment(tmp_path))
    seen = ""
    while running.poll() is None:
        seen += _visible_to_others(running.pid, cluster)
        sleep(0.2)
    assert running.returncode == 0, (tmp_path / "errors").read_text()
    assert rows_of(tmp_path / "tables") == local
    assert "CoarseGrainedExecutorBackend" in seen
    key = AUDITOR.private_bytes()
    texts = {cluster.secret(), key.hex(), b64encode(key).decode().rstrip("="), repr(key)[2:-1]}
    assert not any(text in seen for text in texts)
    logs = [
        *(tmp_path / "log").rglob("*"),
        *cluster.configuration.parent.glob("worker-*/**/std*"),
        *cluster.configuration.parent.glob("*.log"),
    ]
    found = [path.read_bytes() for path in logs if path.is_file()]
    assert any(b"SparkListenerJobEnd" in data for data in found)
    for secret in (key, *(text.encode() for text in texts)):
        assert not any(secret in data for data in found)


def test_only_this_machine_can_connect(cluster: Cluster) -> None:
    listening = [
        connection.laddr.ip
        for pid in cluster.pids.values()
        for connection in psutil.Process(pid).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(listening) == 2 * len(cluster.pids)
    assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}
    assert cluster.configuration.parent.stat().st_mode & 0o077 == 0


def test_a_worker_without_the_package_is_named(
    cluster: Cluster, journals: Path, local: object, tmp_path: Path
) -> None:
    bare = tmp_path / "python"
    # Only executors have this variable.
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" ${{SPARK_EXECUTOR_DIRS:+-S}} "$@"\n')
    bare.chmod(0o755)
    environment = cluster.environment(tmp_path, **{"spark.task.maxFailures": "1"})
    environment["PYSPARK_PYTHON"] = str(bare)
    running = _run(cluster, journals, tmp_path, environment)
    assert running.wait() == 1
    error = (tmp_path / "errors").read_text()
    last = error.splitlines()[-1]
    assert last.startswith("parley: cannot ingest the journals in 'journals': ")
    assert "a worker lacks Parley or its dependencies; install parley-node[pipeline] there" in last
    assert "No module named" in last


def test_a_worker_that_dies_changes_nothing(
    cluster: Cluster, journals: Path, local: dict[str, list[str]], tmp_path: Path
) -> None:
    running = _run(cluster, journals, tmp_path, cluster.environment(tmp_path))
    while not (tmp_path / "tables" / "_checkpoint" / "offsets" / "0").exists():
        assert running.poll() is None, (tmp_path / "errors").read_text()
        sleep(0.05)
    os.kill(cluster.pids["worker 1"], signal.SIGKILL)
    assert running.wait() == 0, (tmp_path / "errors").read_text()
    assert rows_of(tmp_path / "tables") == local


def test_a_start_that_fails_leaves_no_process(tmp_path: Path) -> None:
    before = set(_tree(os.getpid()))
    with (
        pytest.raises(UnreachableError, match="the worker 1 ended early"),
        local_cluster(tmp_path, workers=1, memory="nonsense"),
    ):
        pass
    assert [one for one in _tree(os.getpid()) if one not in before] == []


def test_a_start_can_be_given_up(tmp_path: Path) -> None:
    before = set(_tree(os.getpid()))
    with (
        pytest.raises(UnreachableError, match="it was interrupted"),
        local_cluster(tmp_path, stopped=lambda: True),
    ):
        pass
    assert [one for one in _tree(os.getpid()) if one not in before] == []
