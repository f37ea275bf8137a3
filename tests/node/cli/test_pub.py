"""`parley pub` and `parley sub`: real processes that publish, subscribe, end and are ended."""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from signal import SIGINT, SIGKILL, SIGSTOP, SIGTERM, Signals

import pytest

from parley._crypto.identity import Identity
from parley._crypto.keyfile import save_identity
from tests.node.cli.conftest import Parley
from tests.node.cli.processes import PARLEY, Finished, Processes, Running


def publisher(
    processes: Processes, *args: str, data: bytes | None = None, listen: str = "tcp://127.0.0.1:0"
) -> tuple[Running, str]:
    """Start `parley pub --json` of the topic t; without `data` its input stays open."""
    arguments = ("pub", "t", "--listen", listen, "--json", *args)
    running = processes.start(*arguments, data=data, typing=data is None)
    addresses: Sequence[str] = running.event("ready")["addresses"]
    return running, addresses[0]


def notes(done: Finished) -> list[object]:
    return [line["data"] for line in done.lines if line["event"] == "note"]


def test_lines_come_as_they_are(processes: Processes, parley: Parley) -> None:
    data = "first\n\n  日本 ✓ \nlast".encode()
    running, address = publisher(processes, "--wait", "2", data=data)
    other = processes.start("sub", address, "t", "--json")
    done = parley("sub", address, "t")
    assert done == (0, "first\n\n  日本 ✓ \nlast\n", "")
    as_json = other.finish()
    assert [line["event"] for line in as_json.lines] == [
        *("connected", "subscribed"),
        *["note"] * 4,
        "done",
    ]
    assert as_json.lines[1] == {"event": "subscribed", "topic": "t", "data": None}
    assert [line["number"] for line in as_json.lines[2:-1]] == [1, 2, 3, 4]
    assert as_json.last == {"event": "done", "notes": 4, "lost": 0, "reason": "end"}
    published = running.finish()
    assert (published.code, published.err) == (0, "")
    assert published.last == {"event": "done", "notes": 4, "lost": 0}


def test_what_is_kept_is_there_for_who_comes_later(processes: Processes, parley: Parley) -> None:
    running, address = publisher(processes, "--keep", "2")
    first = processes.start("sub", address, "t", "--json")
    first.event("subscribed")
    for text in ("one", "two", "three"):
        running.type(f"{text}\n")
        first.event("note")
    assert parley("sub", address, "t", "--count", "2").out == "two\nthree\n"
    running.end_input()
    assert first.finish().last["notes"] == 3
    assert running.finish().code == 0


def test_people_are_told_the_address_on_standard_error(
    processes: Processes, parley: Parley, tmp_path: Path
) -> None:
    place = f"unix://{tmp_path}/socket"
    running = processes.start("pub", "--listen", place, "t", "--wait", "1", data=b"x\n")
    while not (tmp_path / "socket").exists():
        time.sleep(0.02)
    assert parley("sub", place, "t").out == "x\n"
    done = running.finish()
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith(f"listening on {place}#")


def test_a_note_goes_out_when_its_line_ends(processes: Processes) -> None:
    running, address = publisher(processes, "--wait", "1")
    reader = processes.start("sub", address, "t", "--json")
    reader.event("subscribed")
    for text in ("one", "two"):
        running.type(text)
        running.type("\n")
        assert reader.event("note")["data"] == text
    running.end_input()
    assert reader.finish().last["reason"] == "end"
    assert running.finish().code == 0


def test_values_as_json(processes: Processes, parley: Parley) -> None:
    lines = ['{"a": [1, 2.5, null]}', "", '"text"', "-0.0", "[NaN]"]
    running, address = publisher(
        processes, "--json-lines", "--wait", "1", data="\n".join(lines).encode()
    )
    done = parley("sub", address, "t", "--json")
    assert notes(done) == [{"a": [1, 2.5, None]}, "text", -0.0, ["nan"]]
    assert running.finish().last["notes"] == 4


def test_a_line_that_is_no_text_goes_as_bytes(processes: Processes, parley: Parley) -> None:
    running, address = publisher(processes, "--wait", "1", data=b"\xff\x00\n")
    assert parley("sub", address, "t").out == "ff00\n"
    assert running.finish().code == 0


@pytest.mark.parametrize(
    ("options", "data", "sentence"),
    [
        (["--json-lines"], b"1\n{\n2\n", "cannot publish line 2: not JSON"),
        (
            ["--json-lines"],
            b"1\n" + b"[" * 60_000 + b"\n",
            "cannot publish line 2: nested too deeply",
        ),
        (
            ["--json-lines"],
            b"1\n36893488147419103232\n",
            "cannot publish line 2: cannot encode an integer",
        ),
        (
            ["--max-payload", "1024"],
            b"1\n" + b"x" * 2_000,
            "cannot read line 2: it is longer than 960 bytes",
        ),
    ],
)
def test_what_came_before_a_bad_line_arrives(
    processes: Processes, parley: Parley, options: list[str], data: bytes, sentence: str
) -> None:
    running, address = publisher(processes, "--wait", "1", *options, data=data)
    assert parley("sub", address, "t").out == "1\n"
    done = running.finish()
    assert (done.code, done.last["name"]) == (6, "file")
    assert done.last["text"].startswith(sentence)


def test_count_ends_a_subscriber(processes: Processes, parley: Parley) -> None:
    running, address = publisher(processes, "--wait", "1", data=b"1\n2\n3\n4\n")
    done = parley("sub", address, "t", "--count", "2", "--json")
    assert (done.code, notes(done)) == (0, ["1", "2"])
    assert done.last == {"event": "done", "notes": 2, "lost": 0, "reason": "count"}
    assert running.finish().code == 0


def test_without_subscribers_it_ends_with_its_input(processes: Processes) -> None:
    done = processes.run("pub", "--listen", "tcp://127.0.0.1:0", "t", "--json", data=b"a\nb\n")
    assert (done.code, done.last["notes"]) == (0, 2)


def test_from_a_file(processes: Processes, parley: Parley, tmp_path: Path) -> None:
    source, place = tmp_path / "source", f"unix://{tmp_path}/socket"
    source.write_text("".join(f"{number}\n" for number in range(20_000)))
    pub = f"pub --listen {place} t --wait 1 --json < {source}"
    shell = f"exec {sys.executable} -m parley {pub}"
    running = processes.start(command=("sh", "-c", shell), cwd=Path(__file__).parents[3])
    running.event("ready")
    assert parley("sub", place, "t").out == source.read_text()
    assert running.finish().last == {"event": "done", "notes": 20_000, "lost": 0}


def test_the_clock_of_serve(processes: Processes, parley: Parley) -> None:
    _, (address,) = processes.serve()
    done = parley("sub", address, "parley.clock", "--count", "3", "--json")
    counts = [json.loads(json.dumps(note))["count"] for note in notes(done)]
    assert counts == list(range(counts[0], counts[0] + 3))


def test_a_topic_that_is_not_there(parley: Parley, server: str) -> None:
    assert parley("sub", server, "nope") == (
        5,
        "",
        "parley: topic not found (code 1, topic-not-found)\n",
    )


def test_nobody_answers(parley: Parley) -> None:
    assert parley("sub", "tcp://127.0.0.1:1", "t", "--trust", "any").code == 3


def test_somebody_else_answers(parley: Parley, server: str) -> None:
    place = server.partition("#")[0]
    assert parley("sub", f"{place}#{'a' * 52}", "t").code == 4


def test_data_and_data_json(parley: Parley) -> None:
    done = parley("sub", "tcp://127.0.0.1:1", "t", "--data", "x", "--data-json", "1")
    assert done == (
        2,
        "",
        "parley: cannot use --data with --data-json: they are the same data; leave one out\n",
    )


@pytest.mark.parametrize(
    ("option", "value"),
    [("patience", "inf"), ("patience", "nan"), ("buffer", "1"), ("slow", "x"), ("keep", "0")],
)
def test_options_of_pub_that_are_wrong(processes: Processes, option: str, value: str) -> None:
    assert processes.run("pub", "t", f"--{option}", value, data=b"").code == 2


def test_a_publisher_that_is_killed_and_comes_back(processes: Processes, tmp_path: Path) -> None:
    """Only a real process can show the effects of SIGKILL."""
    save_identity(tmp_path / "key", Identity.create())
    args = ("--identity", str(tmp_path / "key"), "--wait", "2")
    running, address = publisher(processes, *args, "--keep", "9")
    place, _, _ = address.partition("#")
    # One is for people; both know the publisher by its id, or by which one answered first.
    reader = processes.start("sub", address, "t", "--json")
    people = processes.start("sub", place, "t", "--trust", "first-use")
    reader.event("subscribed")
    running.type("one\n")
    assert (reader.event("note")["data"], people.line()) == ("one", "one")

    running.stop(SIGKILL)
    assert "transport" in reader.event("suspended")["text"]
    running, _ = publisher(processes, *args, "--keep", "9", listen=place)
    connected = reader.event("connected")
    assert connected["node_id"] == address.partition("#")[2]
    assert connected["seconds"] > 0
    assert reader.event("subscribed") == {
        "event": "subscribed",
        "topic": "t",
        "data": None,
        "recovered": False,  # it is another start of the topic
    }
    running.type("two\n")
    assert (reader.event("note")["data"], people.line()) == ("two", "two")
    running.stop(SIGTERM)

    assert "going away" in reader.event("disconnected")["text"]
    running, _ = publisher(processes, *args, listen=place)
    assert reader.event("subscribed")["recovered"] is False
    running.type("three\n")
    assert (reader.event("note"), people.line()) == (
        {"event": "note", "number": 3, "data": "three"},
        "three",
    )
    running.end_input()
    assert reader.finish().last == {"event": "done", "notes": 3, "lost": 0, "reason": "end"}
    told = people.finish()
    assert (told.code, told.out) == (0, "one\ntwo\nthree\n")
    assert "connection lost: " in told.err
    assert told.err.count(" s, in a new session\n") == 2
    assert told.err.count("resubscribed: some notes may be missing\n") == 2


def test_another_publisher_at_the_same_place(processes: Processes) -> None:
    running, address = publisher(processes)
    reader = processes.start("sub", address, "t", "--json")
    reader.event("subscribed")
    running.stop(SIGTERM)
    reader.event("disconnected")
    publisher(processes, "--fresh", listen=address.partition("#")[0])
    done = reader.finish()
    assert (done.code, done.last["name"]) == (4, "peer-not-trusted")


@pytest.mark.parametrize(
    ("number", "name"), [(SIGKILL, "connection-lost"), (SIGTERM, "going-away")]
)
def test_a_subscriber_without_patience(processes: Processes, number: Signals, name: str) -> None:
    running, address = publisher(processes)
    reader = processes.start("sub", address, "t", "--json", "--give-up-after", "0")
    reader.event("subscribed")
    running.stop(number)
    done = reader.finish()
    assert (done.code, done.last["name"]) == (1, name)


def test_a_subscriber_that_gives_up(processes: Processes) -> None:
    running, address = publisher(processes, "--wait", "1")
    reader = processes.start("sub", address, "t", "--give-up-after", "1")
    running.type("one\n")
    assert reader.line() == "one"
    running.stop(SIGTERM)
    done = reader.finish()
    assert done.code == 3
    assert "nothing is listening there; retrying in " in done.err


@pytest.mark.parametrize(("number", "code"), [(SIGINT, 130), (SIGTERM, 143)])
def test_a_publisher_that_is_interrupted(processes: Processes, number: Signals, code: int) -> None:
    running, address = publisher(processes)
    reader = processes.start("sub", address, "t", "--json")
    reader.event("subscribed")
    began = time.monotonic()  # noqa: TID251  # a test's own clock
    done = running.stop(number)
    assert time.monotonic() - began < 5  # noqa: TID251  # no read keeps it
    assert (done.code, done.last["name"]) == (code, "interrupted")
    assert "going-away" in reader.event("disconnected")["text"]


def test_a_publisher_that_waits_is_interrupted(processes: Processes) -> None:
    running, _ = publisher(processes, "--wait", "1", data=b"x\n")
    assert running.stop(SIGINT).code == 130


def test_a_subscriber_that_is_interrupted(processes: Processes) -> None:
    running, address = publisher(processes)
    reader = processes.start("sub", address, "t", "--json")
    reader.event("subscribed")
    assert reader.stop(SIGINT).code == 130
    running.end_input()
    assert running.finish().code == 0


def test_a_reader_that_left_ends_a_subscriber(processes: Processes) -> None:
    running, address = publisher(processes, "--wait", "1")
    reader = processes.start("sub", address, "t")
    running.type("one\n")
    assert reader.line() == "one"
    assert reader.process.stdout is not None
    reader.process.stdout.close()
    running.type("two\n")
    assert reader.process.wait(20) == 141
    running.end_input()
    assert running.finish().code == 0


def test_a_slow_subscriber_loses_its_subscription(processes: Processes) -> None:
    running, address = publisher(
        processes, "--wait", "1", "--buffer", "20000", "--patience", "0.05"
    )
    reader = processes.start("sub", address, "t", "--json")
    reader.event("subscribed")
    # It prints into a full pipe, and stops reading its input.
    for number in range(400):
        running.type(f"{number} " + "x" * 10_000 + "\n")
    running.end_input()
    published = running.finish()
    assert published.code == 0
    assert published.last["lost"] > 0
    done = reader.finish()
    assert (done.code, done.last["name"], done.last["code"]) == (1, "slow-consumer", 33)
    assert "notes were not read in time" in done.last["text"]


def test_a_slow_subscriber_loses_its_oldest_notes(processes: Processes) -> None:
    running, address = publisher(
        processes,
        *("--wait", "1", "--buffer", "20000", "--patience", "0"),
        *("--slow", "drop-oldest"),
    )
    reader = processes.start("sub", address, "t", "--json")
    reader.event("subscribed")
    for number in range(400):
        running.type(f"{number} " + "x" * 10_000 + "\n")
    running.end_input()
    done = reader.finish()
    assert done.code == 0
    numbers = [int(str(note).split()[0]) for note in notes(done)]
    assert numbers == sorted(set(numbers))
    lost = sum(line["count"] for line in done.lines if line["event"] == "lost")
    assert lost == done.last["lost"] == 400 - len(numbers) > 0
    assert numbers[-1] == 399
    assert running.finish().last["lost"] == lost


def test_a_subscriber_that_hangs_does_not_keep_the_others(processes: Processes) -> None:
    running, address = publisher(
        processes, "--wait", "2", "--buffer", "20000", "--patience", "0.05"
    )
    readers = [processes.start("sub", address, "t", "--json") for _ in range(2)]
    for reader in readers:
        reader.event("subscribed")
    readers[0].send(SIGSTOP)
    for number in range(400):
        running.type(f"{number} " + "x" * 10_000 + "\n")
        readers[1].event("note")
    running.end_input()
    assert readers[1].finish().last["notes"] == 400
    readers[0].send(SIGKILL)
    assert running.finish().code == 0


def test_standard_files_stay_blocking(processes: Processes) -> None:
    """They are shared with a shell, and no output may be lost."""
    reading, writing = os.pipe()
    try:
        child = subprocess.Popen(
            [*PARLEY, "pub", "t", "--json"], stdin=reading, stdout=subprocess.PIPE
        )
        try:
            assert child.stdout is not None
            assert json.loads(child.stdout.readline())["event"] == "ready"
            os.write(writing, b"one\n")
            while select.select([reading], [], [], 0)[0]:
                time.sleep(0.01)  # until it has read that, and waits for more
            assert os.get_blocking(reading)
            os.close(writing)
            writing = -1
            assert json.loads(child.stdout.readline())["event"] == "done"
        finally:
            child.kill()
            child.wait()
            if child.stdout is not None:
                child.stdout.close()
    finally:
        os.close(reading)
        if writing >= 0:
            os.close(writing)


def test_uvloop_would_not_leave_them_so(parley: Parley) -> None:
    done = parley("sub", "tcp://127.0.0.1:1", "t", "--uvloop")
    assert (done.code, done.out) == (2, "")
    assert "cannot use --uvloop with this command" in done.err
