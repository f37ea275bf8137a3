"""`parley find` and `parley serve --announce`: who is here."""

import ifaddr  # noqa: F401 - its import starts ldconfig, which no quick test may do
import pytest

from parley._crypto.identity import NodeId
from parley._node.cli import find as command
from parley._node.cli.exit_codes import Exit
from parley._node.discovery.announcement import FoundNode
from tests.node.cli.conftest import Parley, said
from tests.node.cli.processes import Processes

LOOK = ("find", "--interface", "127.0.0.1", "--seconds")


def test_a_node_that_is_announced_is_found(processes: Processes, parley: Parley) -> None:
    server = ("--accounts", "any")  # of a federation
    running, [address] = processes.serve("--announce", "--announce-name", "küche", *server)
    assert f"{address} küche (server)" in parley(*LOOK, "3").out.splitlines()
    found = parley(*LOOK, "3", "--json")
    node_id = address.partition("#")[2]
    expected = {"event": "node", "node_id": node_id, "name": "küche", "addresses": [address]}
    assert {**expected, "server": True} in found.lines
    assert found.last == {"event": "done", "count": len(found.lines) - 1}
    ready = running.stop().lines[1]
    assert ready["announced"] is True
    assert node_id not in parley(*LOOK, "0.4").out


def test_a_node_is_not_announced_unless_asked_for(processes: Processes, parley: Parley) -> None:
    running, [address] = processes.serve()
    assert address not in parley(*LOOK, "0.4").out
    assert running.stop().lines[0]["announced"] is False


def test_what_a_stranger_says_steers_no_terminal(
    parley: Parley, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = FoundNode(NodeId(bytes(32)), "\x1b[2J\nroot", ("tcp://192.0.2.7:1#x",), server=True)

    async def search(seconds: float, interfaces: tuple[str, ...]) -> list[FoundNode]:
        return [node]

    monkeypatch.setattr(command, "search", search)
    assert parley("find").out == "tcp://192.0.2.7:1#x \\x1b[2J\\nroot (server)\n"
    (line,) = said(parley("find", "--json"), "node")
    assert (line["name"], line["server"]) == (node.name, True)


def test_nobody_is_announced(parley: Parley, monkeypatch: pytest.MonkeyPatch) -> None:
    async def search(seconds: float, interfaces: tuple[str, ...]) -> list[FoundNode]:
        return []

    monkeypatch.setattr(command, "search", search)
    done = parley("find")
    assert (done.code, done.out, done.err) == (0, "", "no nodes found on the local network\n")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["find", "--seconds", "0"], Exit.USAGE, "invalid seconds 0"),
        (["find", "--interface", "lo"], Exit.USAGE, "expected an IPv4 address"),
        (["find", "--interface", "192.0.2.99"], Exit.UNREACHABLE, "not an address of this"),
        (["serve", "--announce-name", "x" * 64], Exit.USAGE, "longer than 63 bytes"),
    ],
)
def test_what_does_not_do(parley: Parley, arguments: list[str], code: int, message: str) -> None:
    done = parley(*arguments)
    assert (done.code, message in done.err) == (code, True)
