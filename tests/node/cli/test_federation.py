"""`parley federation` and `via://` addresses, with two server processes and an account at one of
them.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from parley._crypto.identity import Identity, NodeId
from parley._crypto.keyfile import save_identity
from tests.node.cli.conftest import Parley
from tests.node.cli.processes import Finished, Processes

pytestmark = pytest.mark.process


@dataclass
class Pair:
    """`west`, which is `server`, dials `east`, which is `other`; `key` has an account at `west`."""

    west: str
    key: Path
    server: NodeId
    other: NodeId


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """The two servers."""
    folder = tmp_path_factory.mktemp("federation")
    keys = {name: folder / f"{name}.key" for name in ("west", "east", "account")}
    ids = {}
    for name, path in keys.items():
        identity = Identity.create()
        save_identity(path, identity)
        ids[name] = identity.node_id
    made = Processes(folder)
    try:
        told = ("--identity", str(keys["east"]), "--member", str(ids["west"]))
        _, (east,) = made.serve(*told, "--export", "parley.echo")
        told = ("--identity", str(keys["west"]), "--link", east)
        _, (west,) = made.serve(*told, "--accounts", str(ids["account"]))
        yield Pair(west, keys["account"], ids["west"], ids["east"])
    finally:
        made.end()


def until_found(parley: Parley, pair: Pair) -> None:
    """Return once the west knows the way to the east: cards take a second."""
    for _ in range(50):
        if ask(parley, pair, "path", str(pair.other)).code == 0:
            return
        time.sleep(0.2)
    raise AssertionError("no way was found")


def ask(parley: Parley, pair: Pair, command: str, *more: str, key: Path | None = None) -> Finished:
    """What the west answers."""
    identity = ("--identity", str(key or pair.key))
    return parley("federation", command, pair.west, *more, *identity)


def test_what_a_server_knows(parley: Parley, pair: Pair) -> None:
    until_found(parley, pair)
    listed = ask(parley, pair, "list")
    assert (listed.code, listed.err) == (0, "")
    server, link, member = listed.out.splitlines()
    assert server == f"server  {pair.server}"
    assert link == f"link    {pair.other}  up, dialled by this server"
    assert member == (
        f"member  {pair.other}  1 hop; 1 link; forwards tunnels of no server; exports parley.echo"
    )
    *lines, last = ask(parley, pair, "list", "--json").lines[1:]
    assert [line["event"] for line in lines] == ["link", "server"]
    assert lines[1]["path"] == [str(pair.server), str(pair.other)]
    assert last["servers"] == 1

    path = ask(parley, pair, "path", str(pair.other))
    assert path.out == f"0  {pair.server}\n1  {pair.other}\n"
    check = ask(parley, pair, "check")
    assert (check.code, check.out) == (0, "no problems found\n")


def test_a_call_through_a_server(parley: Parley, pair: Pair) -> None:
    until_found(parley, pair)
    place = pair.west.replace("tcp://", "via://").replace("#", "/") + f"#{pair.other}"
    identity = ("--identity", str(pair.key))
    done = parley("call", place, "parley.echo", "hello", *identity)
    assert (done.code, done.out, done.err) == (0, "hello\n", "")
    refused = parley("call", place, "parley.info", *identity, "--json")
    assert (refused.last["code"], refused.last["name"]) == (20, "not-authorised")
    stranger = parley("call", place, "parley.echo", "hello", "--json")
    assert (stranger.code != 0, stranger.last["code"]) == (True, 20)


def test_who_is_not_told(parley: Parley, pair: Pair, tmp_path: Path) -> None:
    key = tmp_path / "stranger.key"
    save_identity(key, Identity.create())
    for command, more in (("list", ()), ("check", ()), ("path", (str(pair.other),))):
        done = ask(parley, pair, command, *more, "--json", key=key)
        assert (done.last["event"], done.last["code"]) == ("error", 20), command


def test_what_is_wrong(parley: Parley, pair: Pair) -> None:
    unknown = str(Identity.create().node_id)
    nowhere = ask(parley, pair, "path", unknown)
    assert (nowhere.code, nowhere.err) == (
        1,
        f"parley: cannot find a path to {unknown}: the server knows no path\n",
    )
    assert (
        ask(parley, pair, "path", "nobody").err
        == "parley: invalid node ID 'nobody': expected 52 base32 characters\n"
    )
