"""`serve --console` and `parley console`: links that work once, and errors."""

import http.client
import json
import webbrowser
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from parley._node.cli.console import console_directory
from tests.node.cli.conftest import Parley
from tests.node.cli.processes import Processes


def enter(link: str) -> tuple[int, bool | None]:
    """Use a link: the status, and whether the session may act."""
    parts = urlsplit(link)
    connection = http.client.HTTPConnection(parts.netloc, timeout=10)
    try:
        headers = {"origin": f"http://{parts.netloc}", "content-type": "application/json"}
        said = json.dumps({"token": parts.fragment.removeprefix("token=")})
        connection.request("POST", "/enter", said, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read()).get("may_act")
    finally:
        connection.close()


@pytest.mark.process
def test_a_server_has_a_console_and_a_command_gives_links_to_it(
    processes: Processes, parley: Parley, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = str(tmp_path / "home")  # also the module of `parley`
    running = processes.start(
        "serve", "--json", "--console", "127.0.0.1:0", environment={"PARLEY_HOME": home}
    )
    told = running.event("console")
    ready = running.event("ready")
    assert told["link"].startswith(f"{told['url']}/#token=")
    assert enter(told["link"]) == (200, False)
    assert enter(told["link"])[0] == 401
    done = parley("console", "--act", "--json")
    assert (done.code, done.last["node_id"]) == (0, ready["node_id"])
    assert enter(done.last["link"]) == (200, True)
    port = str(urlsplit(told["url"]).port)
    done = parley("console", "--port", port)
    assert enter(done.out.strip()) == (200, False)
    assert parley("console", "--port", "1").code == 2
    opened: list[str] = []

    def browse(url: str) -> bool:
        opened.append(url)
        return True

    monkeypatch.setattr(webbrowser, "open", browse)
    done = parley("console", "--open", "--json")
    page = console_directory() / f"{port}.html"
    assert opened == [page.as_uri()]  # no token, which everybody here would see with `ps`
    assert page.stat().st_mode & 0o777 == 0o600
    assert page.read_text().count(done.last["link"]) == 2
    assert enter(done.last["link"]) == (200, False)
    assert running.stop().code == 0
    assert not list(console_directory().iterdir())


def test_where_none_runs_it_is_said(parley: Parley) -> None:
    console_directory().mkdir(parents=True)
    for name, text in (
        ("1.json", '{"url": "http://127.0.0.1:1", "node_id": "x", "secret": "y"}'),
        ("2.json", "{"),
    ):
        (console_directory() / name).write_text(text)
    done = parley("console")
    assert (done.code, "no console is running on this machine" in done.err) == (2, True)


def test_it_is_not_offered_to_others(parley: Parley) -> None:
    done = parley("serve", "--console", "192.0.2.1:0")
    assert (done.code, "192.0.2.1" in done.err) == (2, True)
