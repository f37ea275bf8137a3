"""The event relay of `parley serve` as a real process: clients at it, and its node's topic."""

import socket
from pathlib import Path
from signal import SIGINT
from uuid import UUID

import pytest

from parley._crypto.identity import NodeId
from tests.node.cli.conftest import Parley
from tests.node.cli.processes import Processes
from tests.reference.dialects.relay_raw import RelayRaw

HERE = ("--listen", "tcp://127.0.0.1:0")
ONE, TWO = b"\x11" * 16, b"\x22" * 16


def client(address: str, uuid: bytes) -> RelayRaw:
    """A client of the reference, let in."""
    if address.startswith("unix://"):
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(address.removeprefix("unix://"))
    else:
        host, port = address.removeprefix("tcp://").rsplit(":", 1)
        sock = socket.create_connection((host, int(port)))
    sock.settimeout(10)
    raw = RelayRaw(sock, uuid)
    raw.say_uuid()
    raw.settle()
    return raw


def test_clients_meet_over_tcp_and_unix(processes: Processes, tmp_path: Path) -> None:
    file = tmp_path / "parley.toml"
    file.write_text("[relay]\nfeedback = false\n[dialects.limits]\nclients = 2\n")
    places = ("--relay", "tcp://127.0.0.1:0", "--relay", f"unix://{tmp_path}/relay")
    running = processes.start("serve", *HERE, *places, "--config", str(file), "--json")
    ready = running.event("ready")
    one, two = (
        client(address, uuid) for address, uuid in zip(ready["relay"], (ONE, TWO), strict=True)
    )
    with one.sock, two.sock:
        one.send(b"\x33" * 16, b"to nobody")
        one.send(TWO, b"direct")
        assert two.read_message().payload == b"direct"
        two.broadcast(b"to all")
        assert one.read_message().payload == b"to all"
        host, port = ready["relay"][0].removeprefix("tcp://").rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=10) as third:
            assert third.recv(1) == b""
        running.send(SIGINT)
        assert (one.closed(), two.closed()) == (b"", b"")
    done = running.finish()
    assert (done.code, done.err.count("\n")) == (0, 1)
    assert "rejected a connection" in done.err
    assert done.last == {
        "event": "done",
        "signal": "SIGINT",
        "dropped": 0,
        "undeliverable": 1,
        "turned_away": 1,
    }
    assert not (tmp_path / "relay").exists()


def test_a_bridge_joins_two_nodes_and_a_relay(processes: Processes, parley: Parley) -> None:
    far = processes.start("pub", "news", "--wait", "1", "--json", "--fresh", typing=True)
    (source,) = far.event("ready")["addresses"]
    running = processes.start(
        *("serve", *HERE, "--relay", "tcp://127.0.0.1:0", "--bridge", "news", "--json"),
        *("--forward", f"news={source}", "--fresh"),
    )
    ready = running.event("ready")
    (near,) = ready["addresses"]
    reader = processes.start("sub", near, "news", "--count", "3", "--json")
    reader.event("subscribed")
    one = client(ready["relay"][0], ONE)
    with one.sock:
        one.broadcast(b"from the relay")
        assert reader.event("note")["data"] == "from the relay"
        assert parley("call", near, "news", "by a call").code == 0
        far.type("from afar\n")
        told = [one.read_message() for _ in range(2)]
    assert [message.payload for message in told] == [b"by a call", b"from afar"]
    uuid = NodeId.parse(ready["node_id"]).uuid
    assert {UUID(bytes=message.sender) for message in told} == {uuid}
    assert [reader.event("note")["data"] for _ in range(2)] == ["by a call", "from afar"]
    assert reader.finish().code == 0
    assert running.stop().code == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--relay", "tcp://0.0.0.0:0"], "--allow-insecure"),
        (["--relay", "nowhere"], "cannot use the address 'nowhere': expected tcp://"),
        (["--bridge", "news"], "cannot bridge the topic 'news'"),
        (["--relay", "tcp://127.0.0.1:0", "--bridge", ""], "cannot bridge the topic ''"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    parley: Parley, arguments: list[str], sentence: str
) -> None:
    done = parley("serve", *HERE, *arguments)
    assert (done.code, done.out) == (2, "")
    assert sentence in done.err
    assert done.err.count("\n") == 1


def test_settings_stand_below_options(processes: Processes, tmp_path: Path) -> None:
    file = tmp_path / "parley.toml"
    lines = ["[relay]", f'listen = ["unix://{tmp_path}/b"]', 'bridge = "news"']
    file.write_text("\n".join([*lines, "[dialects.limits]", "clients = 1"]))
    place = f"unix://{tmp_path}/a"
    running = processes.start("serve", *HERE, "--config", str(file), "--relay", place)
    assert running.line().startswith("listening on ")
    assert running.line() == f"relaying on {place}"
    one = client(f"unix://{tmp_path}/a", ONE)
    with one.sock:
        one.send(TWO)
        assert one.read_error()[0] == 5
    done = running.stop()
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("closed on SIGTERM\n")
