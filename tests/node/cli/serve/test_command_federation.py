"""`parley serve` with the options of a federation: calls to the servers and through them."""

from pathlib import Path

import pytest

from parley._crypto.identity import Identity
from parley._crypto.keyfile import save_identity
from parley._node.cli.exit_codes import Exit
from tests.node.cli.conftest import Parley
from tests.node.cli.processes import Processes


def key(path: Path) -> tuple[str, str]:
    """A key file, and its node id."""
    identity = Identity.create()
    save_identity(path, identity)
    return str(path), str(identity.node_id)


def test_two_servers_and_an_account(processes: Processes, parley: Parley, tmp_path: Path) -> None:
    (ours, one), (theirs, other), (mine, client) = (key(tmp_path / name) for name in "abc")
    first = processes.start(
        *("serve", "--json", "--identity", ours, "--member", other, "--accounts", client)
    )
    told = first.event("federation")
    assert (told["links"], told["members"], told["accounts"]) == ([], [other], [client])
    (address,) = first.event("ready")["addresses"]
    second = processes.start(
        *("serve", "--json", "--identity", theirs, "--listen", f"unix://{tmp_path}/socket"),
        *("--link", address, "--carry", one, "--export", "parley.i*", "--follow", "news"),
    )
    told = second.event("federation")
    assert {name: told[name] for name in ("links", "members", "carry", "exports", "follow")} == {
        "links": [address],
        "members": [one],
        "carry": [one],
        "exports": ["parley.i*"],
        "follow": ["news"],
    }
    second.event("ready")
    as_client = ("--identity", mine, "--json")
    path = None
    while path is None:
        ask = ("call", address, "parley.federation.path", "--data-json", f'["{other}"]')
        path = parley(*ask, *as_client).last["data"]["path"]
    assert path == [one, other]
    listed = parley("call", address, "parley.federation.list", *as_client).last["data"]
    (link,), (server,) = listed["links"], listed["servers"]
    assert (link["node_id"], link["up"], link["kept"]) == (other, True, False)
    assert (server["node_id"], server["exports"], server["path"]) == (other, ["parley.i*"], path)
    assert parley("call", address, "parley.federation.check", *as_client).last["data"] == []
    via = f"via://{address.partition('#')[0].removeprefix('tcp://')}/{one}#{other}"
    info = parley("call", via, "parley.info", *as_client).last["data"]
    assert (info["node_id"], info["caller"]) == (other, client)
    assert parley("call", via, "parley.echo", *as_client).last["name"] == "not-authorised"
    # Unknown peers get no information.
    for name in ("list", "path", "check"):
        done = parley("call", address, f"parley.federation.{name}", "--json")
        assert done.last["name"] == "not-authorised"
    for running in (second, first):
        done = running.stop()
        assert (done.code, done.err) == (0, "")


def test_a_server_says_what_part_it_takes(processes: Processes, tmp_path: Path) -> None:
    _, node_id = key(tmp_path / "a")
    file = tmp_path / "parley.toml"
    file.write_text(f'[federation]\nmembers = ["{node_id}"]\naccounts = "any"\n')
    running = processes.start("serve", "--config", str(file))
    assert running.line() == "member of a federation: 0 links, 1 member"
    running.line()
    assert running.stop().code == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--link", "tcp://127.0.0.1:1"), "has no node ID"),
        (("--member", "bob"), "'bob', which is not a node ID"),
        (("--carry", "bob"), "'bob', which is not a node ID"),
        (("--export", ""), "invalid export"),
        (("--accounts", "some"), "'some', which is not a node ID"),
    ],
)
def test_what_is_no_option(parley: Parley, options: tuple[str, ...], said: str) -> None:
    done = parley("serve", *options)
    assert done.code == Exit.USAGE
    assert said in done.err
