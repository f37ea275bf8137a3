"""Names that a shell completes: heard before, or asked for now, of nodes that are known."""

import json
import os
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pytest

from parley._crypto.identity import Identity, NodeId
from parley._node.cli.completion import offered_names
from parley._node.cli.completion.offered_names import (
    FRESH,
    MOST_NAMES,
    MOST_NODES,
    calls,
    load_names,
    store_names,
    topics,
)
from parley._node.cli.topics import Offer, known_offers
from parley._node.errors import ParleyError
from parley._node.trust.known_peers import KnownPeers, default_known_peers
from tests.node.cli.conftest import Parley
from tests.node.cli.processes import Processes

THERE = "tcp://127.0.0.1:7000"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home that is not made yet."""
    monkeypatch.setenv("PARLEY_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def silent() -> Iterator[str]:
    """A known node's address that accepts connections but never responds."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"tcp://127.0.0.1:{listener.getsockname()[1]}#{Identity.create().node_id}"


def offered(kind: str, incomplete: str = "", **params: Any) -> list[tuple[str, str]]:
    """Return the completions after these words."""
    ctx = click.Context(click.Command("c"))
    ctx.params.update(params)
    complete = {"call": calls, "topic": topics}[kind]
    found = complete(ctx, click.Argument(["topic"]), incomplete)
    return [each for each in found if each[0].startswith(incomplete)]


def names(kind: str, incomplete: str = "", **params: Any) -> list[str]:
    return [name for name, _ in offered(kind, incomplete, **params)]


def call(*found: str) -> list[Offer]:
    return [Offer(kind="call", name=name) for name in found]


def test_names_of_a_known_node_are_asked_for(parley: Parley, server: str) -> None:
    assert names("call", "parley.", address=server) == [
        "parley.echo",
        "parley.info",
        "parley.topics",
    ]
    assert names("topic", address=server) == ["parley.clock"]
    assert names("call", "test.n", address=server, timeout=30.0) == ["test.nested"]


def test_so_are_those_of_one_s_own_node(processes: Processes) -> None:
    _, (address,) = processes.serve()
    assert names("topic", address=address) == ["parley.clock"]


def test_nobody_is_met_for_the_first_time(parley: Parley, server: str) -> None:
    place, _, node_id = server.partition("#")
    with pytest.raises(ParleyError, match="no node is known there"):
        known_offers(place, {}, 5)
    with pytest.raises(ParleyError, match="no node is known there"):
        known_offers(place, {"trust": "any"}, 5)
    assert not default_known_peers().exists()
    KnownPeers(default_known_peers()).add(NodeId.parse(node_id), place, datetime.now(UTC))
    assert "parley.echo" in [one.name for one in known_offers(place, {"trust": "first-use"}, 5)]


def test_a_node_that_says_nothing_is_not_waited_for(
    silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_names(silent, call("old"))
    os.utime(next((default_known_peers().parent / "topics").iterdir()), (0, 0))
    monkeypatch.setattr(offered_names, "ANSWER", 0.05)
    assert names("call", address=silent) == ["old"]
    assert names("call", address="nowhere") == names("call", address=None) == names("call") == []


def test_what_does_not_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[float] = []
    asking: list[threading.Thread] = []
    end = threading.Event()

    def stuck(*_: object) -> None:
        asking.append(threading.current_thread())
        end.wait(30)

    monkeypatch.setattr(offered_names, "_ask", stuck)
    monkeypatch.setattr(offered_names, "PATIENCE", 0.01)
    monkeypatch.setattr(offered_names, "exit_after", left.append)
    assert names("call", address=THERE) == []
    assert left == [offered_names.LEAVE]
    end.set()
    asking[0].join(30)
    assert not asking[0].is_alive()


def test_names_that_were_heard_are_not_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offered_names, "_ask", lambda *_: pytest.fail("it was asked"))
    store_names(
        THERE, [*call("a", "$(reboot)", "b c"), Offer(kind="topic", name="t", doc="One.\nTwo")]
    )
    assert names("call", address=THERE) == ["a"]
    assert offered("topic", address=THERE) == [("t", "One.")]
    assert load_names(THERE)[1] < FRESH


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (r"\$(touch x)", "touch x"),
        ("[/x] [bold]", "/x bold"),
        ("\x1b]0;owned\x07", "0owned"),
        ("Größe: 1,5 MB", "Größe: 1,5 MB"),
        ("\u202eabc`'\"\\", "abc"),
        ("x" * 100, "x" * 80),
    ],
)
def test_descriptions_keep_an_allow_list_of_characters(home: Path, said: str, kept: str) -> None:
    store_names(THERE, [Offer(kind="call", name="a", doc=said)])
    (file,) = (home / "topics").iterdir()
    assert json.loads(file.read_text()) == {"call": [["a", kept]]}
    file.write_text(
        json.dumps({"call": [["a", said], ["-a", "b"], ["$(a)", "b"]], "x": [["a", ""]]})
    )
    assert load_names(THERE)[0] == {"call": [("a", kept)], "topic": []}


def test_what_is_kept_has_limits(home: Path) -> None:
    store_names(THERE, call(*(f"n{number}" for number in range(MOST_NAMES + 1))))
    assert len(load_names(THERE)[0]["call"]) == MOST_NAMES
    for number in range(MOST_NODES + 1):
        store_names(f"{THERE}{number}", call("a"))
    kept = home / "topics"
    assert len(list(kept.iterdir())) == MOST_NODES
    assert (kept.stat().st_mode & 0o777, home.stat().st_mode & 0o777) == (0o700, 0o700)
    assert {file.stat().st_mode & 0o777 for file in kept.iterdir()} == {0o600}
    store_names("tcp://" + "x" * 300, call("a"))
    assert load_names("tcp://" + "x" * 300)[0] == {}


@pytest.mark.parametrize("text", ["", "[]", '{"call": 1}', '{"call": [[1, 2]]}', "x" * 300_000])
def test_a_file_that_cannot_be_used_offers_nothing(home: Path, text: str) -> None:
    store_names(THERE, call("a"))
    next((home / "topics").iterdir()).write_text(text)
    assert load_names(THERE)[0] == {}


def test_a_place_that_cannot_be_written_to_is_no_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PARLEY_HOME", str(tmp_path / "file"))
    store_names(THERE, call("a"))
    assert load_names(THERE)[0] == {}
