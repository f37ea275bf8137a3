"""`parley run` in processes: signals, journal and restarts."""

import signal
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from parley._crypto.auditor import AuditorPrivateKey
from parley._node.cli.serve.autoreload import without_reload
from tests.node.cli.conftest import Parley
from tests.node.cli.processes import Processes

APP = """
def app(node):
    @node.on_call("version")
    def version(call):
        "Which one it is."
        return VERSION
"""


def write(directory: Path, version: int) -> Path:
    file = directory / "shop.py"
    file.write_text(f"VERSION = {version}\n{APP}")
    return file


def read(url: str) -> bytes:
    """Return the text of `/metrics`."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=10)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read()
    finally:
        connection.close()


def test_an_application_is_served(processes: Processes, parley: Parley, tmp_path: Path) -> None:
    write(tmp_path, 1)
    key = AuditorPrivateKey.create().public.text
    settings = tmp_path / "parley.toml"
    settings.write_text("[node]\nmax_connections = 100\n")
    asked = ("--json", "--config", str(settings), "--metrics", "127.0.0.1:0", "--access-log")
    keeping = ("--journal", str(tmp_path / "journal"), "--auditor", key)
    running = processes.start(
        *("run", "shop:app", "--console", "127.0.0.1:0", *asked, *keeping),
        environment={"PARLEY_HOME": str(tmp_path / "home")},  # also the module of `parley`
    )
    assert b"parley_connections_limit 100.0\n" in read(running.event("metrics")["url"])
    console = running.event("console")["url"]
    assert parley("console", "--json").last["url"] == console
    (address,) = running.event("ready")["addresses"]
    assert parley("call", address, "version").out == "1\n"
    assert parley("topics", address).out.splitlines()[-2:] == [
        "  version",
        "      Which one it is.",
    ]
    assert parley("call", address, "parley.echo").code == 5  # that is of `serve`
    settings.write_text("[node]\nmax_connections = 50\n")
    running.send(signal.SIGHUP)
    assert running.event("reloaded")["changed"] == ["node.max_connections"]
    ended = running.stop(signal.SIGINT)
    assert ended.code == 0
    assert "parley.echo" in ended.err  # the access log records refused calls
    assert list((tmp_path / "journal").iterdir())


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_it_restarts_when_a_file_changes(
    processes: Processes, parley: Parley, tmp_path: Path, loop: str
) -> None:
    write(tmp_path, 1).write_text("VERSION = = 1\n")  # it is being written
    packages = tmp_path / "env" / "lib" / "site-packages"
    packages.mkdir(parents=True)
    place = tmp_path / "etc"
    place.mkdir()
    settings = place / "parley.toml"
    settings.touch()
    running = processes.start(
        *("run", "shop", "--reload", "--json", "--loop", loop, "--config", str(settings))
    )
    assert running.event("error")["name"] == "usage"
    assert running.event("ended")["exit"] == 2
    for name in ("notes.txt", "env/lib/site-packages/a.py", "etc/other.toml"):
        (tmp_path / name).touch()
    write(tmp_path, 2)
    assert running.event("reloading")["changed"] == ["shop.py"]
    (address,) = running.event("ready")["addresses"]
    assert parley("call", address, "version").out == "2\n"
    (place / "new").touch()
    (place / "new").replace(settings)  # as an editor does
    assert running.event("reloading")["changed"] == ["etc/parley.toml"]
    (address,) = running.event("ready")["addresses"]
    ended = running.stop(signal.SIGINT)
    assert ended.code == 0
    assert '"event": "done", "signal": "SIGINT"' in ended.out
    assert parley("call", address, "version").code == 3


def test_a_directory_that_cannot_be_watched_is_an_error(parley: Parley, tmp_path: Path) -> None:
    write(tmp_path, 1)
    done = parley("run", "shop", "--reload", "--reload-dir", str(tmp_path / "missing"))
    assert done.code == 6
    assert "cannot watch" in done.err
    assert "--reload-dir" in done.err


def test_what_it_runs_is_the_same_command() -> None:
    given = [
        "run",
        "a:b",
        "--reload",
        "--reload-dir",
        "x",
        "--reload-dir=y",
        "--json",
        "--",
        "--reload",
    ]
    assert without_reload(given) == ["run", "a:b", "--json", "--", "--reload"]
