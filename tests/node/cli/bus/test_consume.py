"""`parley bus consume`: events printed or given to a command, and acknowledged after that."""

import json
import os
import shlex
import sqlite3
import sys
from contextlib import closing
from fcntl import LOCK_EX, LOCK_NB, flock
from functools import partial
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGKILL, SIGTERM, Signals

import anyio
import pytest

from parley._node.cli.bus import consume as execute
from tests.node.cli.conftest import NAME, Parley, Publish, said
from tests.node.cli.processes import Processes
from tests.node.network import eventually

GROUP = ("--group", "mailer")
CHILD = """
import fcntl, pathlib, signal, sys, time
directory = pathlib.Path(sys.argv[1])

def end(*rest):
    time.sleep(0.2)
    (directory / "ended").write_text("SIGTERM")
    sys.exit()

lock = open(directory / "lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGINT, signal.SIG_IGN)
print("begun", flush=True)
time.sleep(60)
"""


def left(parley: Parley, bus: str) -> tuple[int, int]:
    """Lag and pending of the group."""
    (line,) = said(parley("bus", "groups", bus, NAME, *GROUP, "--json"), "group")
    return line["lag"], line["pending"]


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_events_are_printed_and_acknowledged(
    parley: Parley, bus: str, publish: Publish, loop: str
) -> None:
    ids = publish(3)
    consume = ("bus", "consume", bus, NAME, *GROUP, "--loop", loop)
    done = parley(*consume, "--count", "2")
    assert (done.code, done.err) == (0, "")
    assert done.out == f'{ids[0]}\t{{"n": 1}}\n{ids[1]}\t{{"n": 2}}\n'
    assert sum(left(parley, bus)) == 1  # it was fetched with the others, and given back
    done = parley(*consume, "--idle", "0.1s", "--json")
    (event,) = said(done, "event")
    assert event.pop("published_at").endswith("Z")
    assert event == {
        "event": "event",
        "id": ids[2],
        "name": NAME,
        "data": {"n": 3},
        "idempotency_key": None,
        "version": 1,
        "group": "mailer",
        "attempt": 1,
    }
    assert done.last == {"event": "done", "acknowledged": 1, "failed": 0, "reason": "idle"}
    assert left(parley, bus) == (0, 0)


def test_where_a_new_group_begins(parley: Parley, bus: str, publish: Publish) -> None:
    ids = publish(3)
    for start, count in (("new", 0), (ids[2], 1), ("1h", 3)):
        done = parley(
            *("bus", "consume", bus, NAME, "--group", start.replace("-", ""), "--start", start),
            *("--idle", "0.05s", "--json"),
        )
        assert done.last["acknowledged"] == count, start


@pytest.mark.process
def test_a_command_gets_each_event(
    parley: Parley, bus: str, publish: Publish, tmp_path: Path
) -> None:
    ids = publish(2)
    file = tmp_path / "got"
    done = parley(
        *("bus", "consume", bus, NAME, *GROUP, "--json", "--count", "2"),
        *("--exec", f"cat >> {shlex.quote(str(file))}"),
    )
    assert (done.code, done.last["acknowledged"]) == (0, 2)
    got = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(event["id"], event["data"], event["attempt"]) for event in got] == [
        (ids[0], {"n": 1}, 1),
        (ids[1], {"n": 2}, 1),
    ]
    assert [line["exit_code"] for line in said(done, "event")] == [0, 0]
    assert left(parley, bus) == (0, 0)


@pytest.mark.process
def test_a_command_that_fails_is_tried_again_until_the_event_dies(
    parley: Parley, bus: str, publish: Publish
) -> None:
    (id,) = publish(1)
    consume = ("bus", "consume", bus, NAME, *GROUP, "--exec", "exit 3", "--retry-delay", "0s")
    done = parley(*consume, "--max-attempts", "2", "--idle", "0.3s", "--json")
    assert done.code == 0
    events = said(done, "event")
    assert [(line["attempt"], line["exit_code"]) for line in events] == [(1, 3), (2, 3)]
    assert done.last == {"event": "done", "acknowledged": 0, "failed": 2, "reason": "idle"}
    (letter,) = said(parley("bus", "dlq", "list", bus, NAME, "--json"), "dead-letter")
    assert (letter["event_id"], letter["group"], letter["attempts"]) == (id, "mailer", 2)
    assert "the command exited with 3" in letter["history"][0]["error"]


@pytest.mark.process
def test_no_delay_is_longer_than_five_minutes(parley: Parley, bus: str, publish: Publish) -> None:
    publish(1)
    consume = ("bus", "consume", bus, NAME, *GROUP, "--count", "1", "--retry-delay", "1h")
    assert parley(*consume, "--exec", "exit 3").code == 0
    with closing(sqlite3.connect(bus.removeprefix("sqlite:///"))) as file:
        (delay,) = file.execute("SELECT due - at FROM pending").fetchone()
    assert 299 < delay <= 300


@pytest.mark.process
def test_people_are_told_of_failures(parley: Parley, bus: str, publish: Publish) -> None:
    (id,) = publish(1)
    consume = ("bus", "consume", bus, NAME, *GROUP, "--count", "1", "--retry-delay", "0s")
    done = parley(*consume, "--exec", "kill -9 $$")
    assert (done.code, done.out) == (0, "")
    assert done.err == f"{id} (attempt 1): the command exited with 137\n"
    done = parley("bus", "consume", bus, NAME, *GROUP, "--count", "1")
    assert done.out == f'{id}\t{{"n": 1}}\tattempt 2\n'


@pytest.mark.process
def test_a_command_need_not_read(parley: Parley, bus: str) -> None:
    data = json.dumps({"text": "x" * 500_000})
    data_lines = data.encode()
    assert parley("bus", "publish", bus, NAME, "--json-lines", data=data_lines).code == 0
    done = parley("bus", "consume", bus, NAME, *GROUP, "--count", "1", "--exec", "true", "--json")
    assert done.last["acknowledged"] == 1


def test_a_consumer_that_is_killed_loses_nothing(
    processes: Processes, parley: Parley, bus: str, publish: Publish
) -> None:
    (id,) = publish(1)
    consume = ("bus", "consume", bus, NAME, *GROUP, "--consumer", "one")
    # It outlives us by a moment at most.
    waits = "echo begun; while kill -0 $PPID 2>/dev/null; do sleep 0.05; done"
    running = processes.start(*consume, "--exec", waits)
    assert running.line() == "begun"
    running.send(SIGKILL)
    running.process.wait(20)
    # One of the same name finds it at once; it was begun, so that counts.
    done = parley(*consume, "--count", "1")
    assert done.out == f'{id}\t{{"n": 1}}\tattempt 2\n'
    assert left(parley, bus) == (0, 0)


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
@pytest.mark.parametrize("signal", [SIGINT, SIGTERM, SIGHUP])
def test_an_interrupted_command_ends_with_all_its_processes(
    processes: Processes,
    parley: Parley,
    bus: str,
    publish: Publish,
    tmp_path: Path,
    signal: Signals,
    loop: str,
) -> None:
    (id,) = publish(1)
    # The child holds a lock, and reports when it gets SIGTERM, later than the shell.
    child = tmp_path / "child.py"
    child.write_text(CHILD)
    command = shlex.join([sys.executable, str(child), str(tmp_path)])
    consume = ("bus", "consume", bus, NAME, *GROUP)
    running = processes.start(*consume, "--loop", loop, "--exec", f"{command} & wait")
    assert running.line() == "begun"
    running.send(signal)
    assert running.process.wait(20) == 128 + signal
    assert (tmp_path / "ended").read_text() == "SIGTERM"
    with (tmp_path / "lock").open() as lock:
        flock(lock, LOCK_EX | LOCK_NB)
    done = parley(*consume, "--count", "1")
    assert done.out == f'{id}\t{{"n": 1}}\tattempt 2\n'


@pytest.mark.anyio
@pytest.mark.process
async def test_a_command_that_ignores_sigterm_is_killed(
    anyio_backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execute, "GRACE", 0.1)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    command = f"exec 3>{shlex.quote(str(pipe))}; trap '' TERM; (echo begun >&3; sleep 60); sleep 60"
    try:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(execute.execute, command, {"n": 1}, to_stderr=True))
                await eventually(lambda: bool(_read(reader)))
                tasks.cancel_scope.cancel()
            # No process has the other end open.
            await eventually(lambda: _read(reader) == b"")
    finally:
        os.close(reader)


def _read(pipe: int) -> bytes | None:
    """Return the content of a pipe: empty if no process has its other end open, None if one may
    write.
    """
    try:
        return os.read(pipe, 100)
    except BlockingIOError:
        return None


def test_a_reader_that_left_leaves_the_rest(
    processes: Processes, parley: Parley, bus: str, publish: Publish
) -> None:
    publish(1)
    running = processes.start("bus", "consume", bus, NAME, *GROUP)
    assert running.line().endswith('{"n": 1}')
    assert running.process.stdout is not None
    running.process.stdout.close()
    publish(1)
    assert running.process.wait(20) == 141  # SIGPIPE
    done = parley("bus", "consume", bus, NAME, *GROUP, "--count", "1", "--json")
    assert said(done, "event")[0]["attempt"] == 2


def test_options_that_are_wrong(parley: Parley, bus: str, publish: Publish) -> None:
    publish(1)
    for option in (
        ("--start", "x"),
        ("--idle", "5"),
        ("--retry-delay", "-1s"),
        ("--reclaim-after", "0s"),
        ("--group", "a b"),
        ("--batch", "0"),
        ("--max-attempts", "0"),
        ("--consumer", "a b"),
        ("--uvloop",),
    ):
        done = parley("bus", "consume", bus, NAME, *GROUP, "--count", "1", *option)
        assert (done.code, done.out) == (2, ""), option
    assert parley("bus", "groups", bus, NAME, "--json").last["groups"] == 0


def test_looking_for_a_file_makes_none(parley: Parley, bus: str, tmp_path: Path) -> None:
    for command in (("consume", *GROUP), ("tail",), ("groups",), ("trim", "--max-length", "1")):
        done = parley("bus", command[0], bus, NAME, *command[1:])
        assert (done.code, done.err) == (
            6,
            f"parley: cannot open the bus '{tmp_path}/bus.db': the file does not exist; check "
            "the path, or publish an event to create it\n",
        )
    assert list(tmp_path.glob("bus*")) == []
