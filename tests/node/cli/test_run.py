"""Commands as real processes: how they end by signals, and with odd standard files."""

import shlex
import subprocess
from pathlib import Path
from signal import SIGINT, SIGTERM, Signals

import pytest

from parley._crypto.identity import Identity
from parley._crypto.keyfile import PassphraseCost, save_identity
from tests.node.cli.processes import PARLEY, Processes


@pytest.mark.parametrize("number", [SIGINT, SIGTERM])
def test_a_signal_ends_a_call_with_close(processes: Processes, number: Signals) -> None:
    running, (address,) = processes.serve("--log-level", "info", topics=True)
    caller = processes.start("call", address, "test.wait", "60", "--json")
    running.event("waiting")
    done = caller.stop(number)
    assert (done.code, done.err) == (128 + number, "")
    assert (done.last["event"], done.last["code"]) == ("error", 128 + number)
    assert done.last["text"] == f"interrupted by {number.name}"
    running.event("cancelled")
    ended = running.stop().err
    assert "going-away" in ended
    assert "connection-lost" not in ended


def test_a_signal_ends_a_ping(processes: Processes, server: str) -> None:
    running = processes.start("ping", server, "--count", "1000", "--interval", "0.02")
    running.line()
    done = running.stop(SIGINT)
    assert (done.code, done.err) == (130, "parley: interrupted by SIGINT\n")


def _shell(processes: Processes, line: str) -> "subprocess.CompletedProcess[bytes]":
    """Run a line of sh in which $P is parley."""
    return subprocess.run(
        ["/bin/sh", "-c", f"P={shlex.quote(shlex.join(PARLEY))}; {line}"],
        capture_output=True,
        cwd=processes.directory,
        timeout=30,
        check=False,
    )


def test_a_reader_that_never_came(processes: Processes, server: str) -> None:
    done = _shell(processes, f"$P call '{server}' parley.echo x | true")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize("json", ["", "--json"])
def test_a_reader_that_leaves_ends_the_command(
    processes: Processes, server: str, json: str
) -> None:
    line = f"{{ $P ping '{server}' --count 1000 {json}; echo $? >&2; }} | head -n 1"
    done = _shell(processes, line)
    assert done.stdout.count(b"\n") == 1
    assert done.stderr == b"141\n"  # as other programs, which SIGPIPE ends


@pytest.mark.parametrize(
    "command",
    [
        "sub '{server}' parley.clock",
        "topics '{server}'",
        "errors",
        "serve --help",
        "bus tail sqlite:///{bus} auth.x",
        "bus consume sqlite:///{bus} auth.x --group g",
        "chat --listen tcp://127.0.0.1:0 --json",
    ],
)
def test_a_closed_pipe_is_quiet(processes: Processes, server: str, command: str) -> None:
    bus = processes.directory / "bus.db"
    many = "".join(f'{{"n": {number}}}\n' for number in range(5_000)).encode()
    publishing = ("bus", "publish", f"sqlite:///{bus}", "auth.x", "--json-lines")
    if "{bus}" in command:
        assert processes.run(*publishing, data=many).code == 0
    line = command.format(server=server, bus=bus)
    done = _shell(processes, f"{{ $P {line} </dev/null; echo $? >&2; }} | head -n 1 >/dev/null")
    assert done.stderr in (b"141\n", b"0\n")


def test_a_full_disk_does_not_hide_what_was_stored(processes: Processes) -> None:
    publish = f"$P bus publish sqlite:///{processes.directory}/bus.db auth.x"
    lines = "printf '{}\\n{}\\n' | "
    for command, count in (
        (f"{publish} '{{}}'", "1 event stored, the last is "),
        (f"{lines}{publish} --json-lines", "2 events stored, the last is "),
        (
            f"$P bus trim sqlite:///{processes.directory}/bus.db auth.x --max-length 1",
            "2 events removed",
        ),
    ):
        done = _shell(processes, f"{command} > /dev/full")
        assert done.returncode == 6
        assert done.stderr.count(b"\n") == 1
        assert f"; {count}".encode() in done.stderr
        assert b"No space left on device" in done.stderr


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("", b"the call was made and answered: do not repeat the command"),
        ("--raw", b"the call was made and answered: do not repeat the command"),
        ("--json", b""),  # the first line is about the connection, before the call
    ],
)
def test_a_full_disk_is_told(processes: Processes, server: str, option: str, said: bytes) -> None:
    done = _shell(processes, f"$P call '{server}' parley.echo x {option} > /dev/full")
    reason = b"No space left on device"
    full = b"cannot write to standard output: " + reason + b"; " + said
    text = full if said else b"cannot write to standard output: " + reason
    assert (done.returncode, done.stderr) == (6, b"parley: " + text + b"\n")


def test_closed_standard_files(processes: Processes, server: str) -> None:
    call = f"$P call '{server}' parley.echo"
    assert _shell(processes, f"{call} x <&- >&- 2>&-").returncode == 0
    place = server.partition("#")[0]
    line = f"PARLEY_HOME={processes.home} $P call {place} parley.echo x --trust first-use 2>&-"
    stranger = _shell(processes, line)
    assert (stranger.returncode, stranger.stdout) == (0, b"x\n")  # not who was met
    failed = _shell(processes, "$P call tcp://127.0.0.1:1 parley.echo x 2>&-")
    assert (failed.returncode, failed.stdout) == (3, b"")
    closed = _shell(processes, f"{call} - <&-")
    assert (closed.returncode, closed.stdout) == (6, b"")
    assert closed.stderr == (
        b"parley: cannot read DATA '-' from standard input: it is closed; redirect a file to it\n"
    )


def test_a_terminal_without_the_letters(processes: Processes, server: str) -> None:
    call = f"PYTHONIOENCODING=ascii $P call '{server}'"
    assert _shell(processes, f"{call} parley.echo é").stdout == b"\\xe9\n"


def test_bytes_through_a_pipe(processes: Processes, server: str) -> None:
    done = _shell(processes, f"printf '\\377\\000' | $P call '{server}' parley.echo -")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"ff00\n", b"")
    answered = processes.run("call", server, "parley.echo", "-", data="日本\n".encode() * 10_000)
    assert answered.out == "日本\n" * 10_000 + "\n"


def test_an_input_without_end_is_too_large(processes: Processes, server: str) -> None:
    done = _shell(processes, f"$P call '{server}' parley.echo - < /dev/zero")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"1048576" in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_a_passphrase_by_a_pipe(processes: Processes) -> None:
    key = processes.directory / "key"
    save_identity(key, Identity.create(), b"secret", cost=PassphraseCost(1, 8))
    line = f"echo secret | $P id show {shlex.quote(str(key))} --passphrase-file /dev/stdin"
    shown = _shell(processes, line)
    assert (shown.returncode, shown.stderr) == (0, b"")
    assert b"with passphrase" in shown.stdout


def test_the_directory_of_the_user_is_not_imported_from(
    processes: Processes, tmp_path: Path
) -> None:
    for name in ("json.py", "node.py", "crypto.py"):
        (tmp_path / name).write_text("raise SystemExit('imported from here')")
    code = "import sys; sys.path.pop(0); from parley._node.cli.main import main; main()"
    command = [PARLEY[0], "-c", code]  # as the installed script does
    done = processes.start("demo", "--json", command=command, cwd=tmp_path).finish()
    assert (done.code, done.err) == (0, "")
    assert done.last["event"] == "done"
