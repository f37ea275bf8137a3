"""`parley pipeline`: options and output of its commands. Their jobs are replaced here."""

import fcntl
import logging
import os
import signal
import socket
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from parley._node.cli import pipeline as commands
from parley._node.cli import spark_session as sessions
from parley._node.cli.spark_session import LOCK
from parley._node.errors import FileError
from parley._pipeline import jobs, spark
from parley._pipeline import local_cluster as local_clusters
from parley._pipeline import up_to_date as again
from parley._pipeline.errors import NoTablesError
from parley._pipeline.gold.cluster import GoldCluster
from parley._pipeline.gold.refresh import Outcome
from parley._pipeline.gold.store import GoldDirectory
from parley._pipeline.local_cluster import LocalCluster
from parley._pipeline.report import page as writing
from tests.node.cli.conftest import Parley

WHERE = ("--journals", "j", "--tables", "t")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the journals are, and the command runs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "j").mkdir()
    return tmp_path


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str | None, str | None, str]]:
    """Record the requested Spark sessions, which are not opened."""
    given: list[tuple[str | None, str | None, str]] = []

    @contextmanager
    def session(
        master: str | None, remote: str | None, memory: str, *, brief: bool = False
    ) -> Iterator[None]:
        given.append((master, remote, memory))
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # as PySpark's do
        yield
        signal.signal(signal.SIGINT, before)

    for module in (commands, sessions):
        monkeypatch.setattr(module, "spark_session", session)
    return given


def test_run_says_what_the_tables_hold(
    parley: Parley, monkeypatch: pytest.MonkeyPatch, asked: list[object]
) -> None:
    told: list[tuple[object, ...]] = []

    def run(*arguments: object, payloads: bool, stage: object) -> Outcome:
        told.append((*arguments, payloads))
        return Outcome(Counter(ok=1200, unsealed=3), Counter(gap=2))

    monkeypatch.setattr(jobs, "run", run)
    done = parley("pipeline", "run", *WHERE, "--master", "local[3]", "--no-payloads")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "1,203 events and notes (1,200 ok, 3 unsealed)",
        "2 findings: 2 gap",
        "payloads were not decrypted: give --auditor-key",
    ]
    last = parley("pipeline", "run", *WHERE, "--remote", "sc://somewhere", "--json").last
    assert (last["events"], last["kinds"], last["decrypted"]) == (1203, {"gap": 2}, False)
    assert told == [(None, "j", "t", [], False), (None, "j", "t", [], True)]
    assert asked == [("local[3]", None, "2g"), (None, "sc://somewhere", "2g")]


def test_a_run_with_nothing_new_starts_no_spark(
    parley: Parley, monkeypatch: pytest.MonkeyPatch, asked: list[object]
) -> None:
    outcomes = [Outcome(Counter(ok=7), Counter()), None]
    monkeypatch.setattr(again, "up_to_date_outcome", lambda *_: outcomes.pop(0))
    monkeypatch.setattr(jobs, "run", lambda *_, **options: Outcome(Counter(ok=8), Counter()))
    assert parley("pipeline", "run", *WHERE, "--json").last["events"] == 7
    assert asked == []
    assert parley("pipeline", "run", *WHERE, "--json").last["events"] == 8
    assert len(asked) == 1


def test_small_journals_are_those_of_at_most_so_many_bytes(
    monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    monkeypatch.setattr(sessions, "_SMALL", 10)
    for name, size in (("a", 6), ("b", 4)):
        (place / "j" / name).write_bytes(bytes(size))
    assert sessions.are_journals_small("j")
    assert sessions.are_journals_small("[j]")
    (place / "j" / "c").write_bytes(b"1")
    assert not sessions.are_journals_small("j")
    assert not sessions.are_journals_small((place / "j").as_uri())
    assert sessions.are_journals_small("not there")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_follow_ends_on_the_first_signal(
    parley: Parley, monkeypatch: pytest.MonkeyPatch, asked: list[object], number: signal.Signals
) -> None:
    before = signal.getsignal(number)

    def follow(
        *arguments: object,
        stopped: Callable[[], bool],
        refreshed: Callable[[], None],
        during: Callable[[str], AbstractContextManager[None]],
        **options: object,
    ) -> None:
        assert options == {"payloads": True, "every": 0.5, "refresh_every": 60.0}
        assert not stopped()
        signal.raise_signal(number)
        assert stopped()
        with during("refreshing the gold tables"):
            refreshed()

    monkeypatch.setattr(jobs, "follow", follow)
    done = parley("pipeline", "follow", *WHERE, "--every", "0.5", "--json")
    assert (done.code, done.err) == (0, "")
    assert [line["event"] for line in done.lines] == ["following", "refreshed", "done"]
    assert signal.getsignal(number) == before


def test_report_writes_a_page_or_says_why_not(
    parley: Parley, monkeypatch: pytest.MonkeyPatch, asked: list[object], tmp_path: Path
) -> None:
    given: list[dict[str, object]] = []

    def write_report(
        store: GoldDirectory | GoldCluster,
        path: Path,
        stage: Callable[[str], None],
        **options: object,
    ) -> None:
        given.append(options)
        if isinstance(store, GoldCluster):
            raise NoTablesError("there are no tables")
        path.write_text("a page")

    monkeypatch.setattr(writing, "write_report", write_report)
    page = tmp_path / "page.html"
    (tmp_path / "t" / "gold").mkdir(parents=True)
    last = parley("pipeline", "report", "--tables", "t", "--html", str(page), "--json").last
    assert (last["html"], last["size"]) == (str(page), 6)
    assert given == [{"names": {}, "rows": 2_000, "without_events": False}]
    assert asked == []  # local tables need no Spark
    done = parley("pipeline", "report", "--tables", "none", "--html", str(page))
    assert (done.code, done.err) == (1, "parley: there are no tables\n")
    assert len(asked) == 1
    done = parley("pipeline", "report", "--tables", "t", "--html", str(tmp_path / "a" / "b"))
    assert (done.code, done.err) == (
        6,
        f"parley: cannot write the page '{tmp_path / 'a' / 'b'}': the directory {tmp_path / 'a'} "
        "does not exist\n",
    )


def test_tables_are_for_their_owner_and_journals_must_be_there(
    parley: Parley, monkeypatch: pytest.MonkeyPatch, asked: list[object], place: Path
) -> None:
    monkeypatch.setattr(jobs, "run", lambda *_, **options: Outcome(Counter(), Counter()))
    assert parley("pipeline", "run", "--journals", "[jk]", "--tables", "a/t").code == 0
    assert stat.S_IMODE((place / "a" / "t").stat().st_mode) == 0o700
    # What a server sees is not looked for here.
    elsewhere = ("pipeline", "run", "--journals", "none", "--tables", "none")
    assert parley(*elsewhere, "--remote", "sc://somewhere").code == 0
    done = parley(*elsewhere)
    assert (done.code, done.err) == (
        6,
        "parley: cannot read journals in 'none': the directory does not exist\n",
    )
    assert not (place / "none").exists()


def test_a_server_that_is_not_there_is_said_at_once(parley: Parley) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    done = parley("pipeline", "run", *WHERE, "--remote", f"sc://127.0.0.1:{port}/;user_id=me")
    assert done.code == 3
    assert done.err.startswith(f"parley: cannot connect to the Spark server at 127.0.0.1:{port}: ")
    for wrong in ("http://127.0.0.1:1", "sc://", "sc://host:port", "127.0.0.1:15002"):
        done = parley("pipeline", "run", *WHERE, "--remote", wrong)
        assert (done.code, done.err) == (
            2,
            f"parley: invalid --remote {wrong!r}: expected sc://HOST:PORT\n",
        )
    done = parley("pipeline", "run", *WHERE, "--remote", "sc://somewhere", "--master", "local")
    assert done.code == 2
    assert done.err.startswith("parley: cannot use --master local with --remote sc://somewhere: ")


def test_a_master_that_does_not_answer_is_named(parley: Parley) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    master = f"spark://127.0.0.1:{port}"
    done = parley("pipeline", "run", *WHERE, "--master", master)
    assert done.code == 3
    assert done.err.startswith(f"parley: cannot connect to the Spark master at {master}: ")
    for wrong in ("spark://", "spark://host", "spark://host:port"):
        done = parley("pipeline", "run", *WHERE, "--master", wrong)
        assert (done.code, done.err) == (
            2,
            f"parley: invalid --master {wrong!r}: expected spark://HOST:PORT\n",
        )


@pytest.mark.process
@pytest.mark.parametrize("last", ["worker 1", "master"])
def test_a_cluster_runs_until_a_signal_or_the_end_of_its_master(
    parley: Parley, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    given: list[object] = []

    @contextmanager
    def cluster(directory: Path, **options: object) -> Iterator[object]:
        stopped = options.pop("stopped")
        assert directory.stat().st_mode & 0o077 == 0
        given.append(options)
        ended = subprocess.Popen([sys.executable, "-c", ""])
        ended.wait()
        if last != "master":
            signal.raise_signal(signal.SIGTERM)
            assert callable(stopped)
            assert stopped()
        yield LocalCluster("spark://here:1", "http://here/", directory / "conf", {last: ended})

    monkeypatch.setattr(local_clusters, "local_cluster", cluster)
    done = parley("pipeline", "cluster", "--workers", "3", "--memory", "2g")
    assert given == [{"workers": 3, "cores": 1, "memory": "2g"}]
    assert "  parley pipeline run --master spark://here:1 --journals .. --tables .." in done.out
    if last == "master":
        assert done.code == 3
        assert done.err == "parley: cannot continue the Spark cluster: its master has ended\n"
    else:
        assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize("command", ["run", "follow"])
def test_one_command_at_a_time_writes_tables(
    parley: Parley,
    monkeypatch: pytest.MonkeyPatch,
    asked: list[object],
    place: Path,
    command: str,
) -> None:
    monkeypatch.setattr(jobs, command, lambda *_, **options: Outcome(Counter(), Counter()))
    assert parley("pipeline", command, *WHERE).code == 0
    with (place / "t" / LOCK).open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        done = parley("pipeline", command, *WHERE)
        assert (done.code, done.err) == (
            6,
            "parley: cannot write the tables in 't': another command is writing them; try again "
            "when it has ended\n",
        )
        assert len(asked) == 1  # no Java was started for it
        uri = (place / "t").as_uri()
        assert parley("pipeline", command, "--journals", "j", "--tables", uri).code == 6
        assert parley("pipeline", command, *WHERE, "--remote", "sc://somewhere").code == 0
    assert parley("pipeline", command, *WHERE).code == 0


def test_what_does_not_go_together_or_is_not_there(
    parley: Parley, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = parley("pipeline", "run", *WHERE, "--master", "local", "--remote", "sc://somewhere")
    assert done.code == 2
    assert done.err.startswith("parley: cannot use --master local with --remote sc://somewhere: ")
    monkeypatch.setitem(sys.modules, "pyspark.errors", None)
    done = parley("pipeline", "run", *WHERE)
    assert done.code == 2
    assert "needs the extra 'pipeline': pip install 'parley-node[pipeline]'" in done.err


def test_follow_waits_for_journals_that_are_not_there_yet(
    parley: Parley, monkeypatch: pytest.MonkeyPatch, asked: list[object], place: Path
) -> None:
    looks = 0

    def sleep(seconds: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            (place / "later").mkdir()

    monkeypatch.setattr(commands, "sleep", sleep)
    monkeypatch.setattr(jobs, "follow", lambda *_, **options: None)
    arguments = ("pipeline", "follow", "--journals", "later", "--tables", "t", "--json")
    done = parley(*arguments)
    assert (done.code, looks, len(asked)) == (0, 3, 1)
    assert [line["event"] for line in done.lines] == ["waiting", "following", "done"]
    (place / "later").rmdir()
    monkeypatch.setattr(commands, "sleep", lambda _: signal.raise_signal(signal.SIGTERM))
    done = parley(*arguments)
    assert (done.code, len(asked)) == (0, 1)
    assert [line["event"] for line in done.lines] == ["waiting", "done"]


@pytest.mark.parametrize("logger", ["root", "py4j.java_gateway"])  # it uses both
def test_ctrl_c_while_spark_starts_is_a_sentence(
    parley: Parley,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    logger: str,
) -> None:
    def interrupted(**_: object) -> None:
        of_py4j = (logger, logging.ERROR, "site-packages/py4j/java_gateway.py", 1_070)
        record = logging.LogRecord(*of_py4j, "KeyboardInterrupt", (), None)
        logging.getLogger(None if logger == "root" else logger).handle(record)
        raise KeyboardInterrupt

    monkeypatch.setattr(spark, "open_session", interrupted)
    done = parley("pipeline", "run", *WHERE)
    assert (done.code, done.err) == (130, "parley: interrupted by SIGINT\n")
    assert not caplog.records
    assert not any(handler.filters for handler in logging.getLogger().handlers)


@pytest.mark.process
def test_a_java_that_does_not_start_is_a_sentence(place: Path) -> None:
    """In a separate process, because each process can start Java only once."""
    java = place / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'no room' >&2\nexit 1\n")
    java.chmod(0o755)
    (place / "java" / "release").write_text('JAVA_VERSION="17.0.1"\n')
    environment = os.environ | {"JAVA_HOME": str(place / "java"), "XDG_CACHE_HOME": str(place)}
    command = [sys.executable, "-m", "parley", "pipeline", "run", *WHERE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert "no room" in done.stderr
    assert done.stderr.endswith(
        "check that --memory 2g is a valid size and available on this machine\n"
    )
    assert "JAVA_GATEWAY_EXITED" not in done.stderr


def test_rebuild_removes_the_tables_first(
    parley: Parley, monkeypatch: pytest.MonkeyPatch, asked: list[object], place: Path
) -> None:
    for name in ("bronze", "silver", "stitched", "gold", "_checkpoint", "checks"):
        (place / "t" / name).mkdir(parents=True)
    found: list[list[str]] = []

    def run(*_: object, **options: object) -> Outcome:
        found.append(sorted(path.name for path in (place / "t").iterdir()))
        return Outcome(Counter(), Counter())

    monkeypatch.setattr(jobs, "run", run)
    assert parley("pipeline", "run", *WHERE, "--rebuild").code == 0
    assert found == [[LOCK, "checks"]]
    done = parley("pipeline", "run", *WHERE, "--rebuild", "--remote", "sc://somewhere")
    assert done.code == 2
    assert done.err.startswith("parley: cannot remove the tables in 't': --rebuild requires")


def test_tables_without_their_checkpoint_are_not_continued(
    parley: Parley, asked: list[object], place: Path
) -> None:
    (place / "t" / "silver" / "batch=0").mkdir(parents=True)
    done = parley("pipeline", "run", *WHERE)
    assert done.code == 1
    assert "their checkpoint is missing; make them again from the journals with" in done.err
    assert asked == []


def test_an_error_of_reading_is_not_one_of_writing(
    parley: Parley, monkeypatch: pytest.MonkeyPatch, asked: list[object], place: Path
) -> None:
    def damaged(*_: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied", "t/silver/batch=0")

    (place / "t" / "gold").mkdir(parents=True)
    monkeypatch.setattr(writing, "read_all_gold", damaged)
    done = parley("pipeline", "report", "--tables", "t", "--html", "page.html")
    assert done.err == "parley: cannot use 't/silver/batch=0': Permission denied\n"


def test_a_report_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "page.html").mkdir()
    with pytest.raises(FileError, match=r"^cannot write '.*page.html': Is a directory; choose"):
        writing._to_file(tmp_path / "page.html", "a page")
    assert [path.name for path in tmp_path.glob("*.html*")] == ["page.html"]
