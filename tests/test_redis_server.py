"""The redis-server of tests keeps its data over restarts and leaves no files behind."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.redis_server import PROGRAM, RedisServer

STARTER = """
import os, signal, sys
from tests.redis_server import RedisServer
with RedisServer() as server:
    print(server.pid, server.port, server.directory, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def gone(pid: int) -> bool:
    """Whether a process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except OSError:
        return True


def test_fixture_is_marked_and_empty(redis_url: str, request: pytest.FixtureRequest) -> None:
    assert redis_url.startswith("redis://127.0.0.1:")
    assert request.node.get_closest_marker("redis") is not None
    server: RedisServer = request.getfixturevalue("redis_server")
    assert server.command("DBSIZE") == b":0"
    assert server.command("SET", "a", "b") == b"+OK"


def test_a_stopped_server_has_kept_all_and_a_closed_one_nothing(redis_server: RedisServer) -> None:
    with RedisServer(appendfsync="always") as server:
        pid, port = server.pid, server.port
        assert server.command("SET", "a", "1") == b"+OK"
        server.kill()
        assert gone(pid)
        assert not server.running
        server.kill()
        server.start()
        assert server.command("STRLEN", "a") == b":1"
        server.restart()
        assert server.port == port
        assert server.command("STRLEN", "a") == b":1"
        pid, directory = server.pid, server.directory
        assert Path(server.unix_url.removeprefix("unix://")).is_socket()
    assert gone(pid)
    assert not directory.exists()
    server.close()
    with pytest.raises(RuntimeError, match="does not run"):
        assert server.pid


def test_nothing_is_left_of_a_process_that_was_killed(redis_server: RedisServer) -> None:
    starter = subprocess.run(
        [sys.executable, "-c", STARTER], stdout=subprocess.PIPE, check=False, text=True
    )
    assert starter.returncode == -signal.SIGKILL
    pid, port, directory = starter.stdout.split()
    for _ in range(500):
        if gone(int(pid)) and not os.path.exists(directory):
            break
        time.sleep(0.01)
    assert gone(int(pid))
    assert not os.path.exists(directory)
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(port))) != 0


def test_errors_say_what_is_wrong(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RuntimeError, match="did not start"), RedisServer("--no-such-option", "1"):
        pass
    monkeypatch.setattr("tests.redis_server.redis_program", lambda: None)
    with pytest.raises(RuntimeError, match=f"no {PROGRAM}"):
        RedisServer().__enter__()
