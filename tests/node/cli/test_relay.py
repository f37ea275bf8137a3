"""`parley relay` as a real process: clients at it, and a node that bridges it."""

import socket
from pathlib import Path
from signal import SIGINT
from uuid import UUID

import pytest

from crypto.identity import NodeId
from tests.node.cli.conftest import Parley
from tests.node.cli.processes import Processes
from tests.reference.dialects.relay_raw import RelayRaw

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
    places = ("--listen", "tcp://127.0.0.1:0", "--listen", f"unix://{tmp_path}/relay")
    running = processes.start("relay", *places, "--no-feedback", "--clients", "2", "--json")
    ready = running.event("ready")
    assert set(ready) == {"event", "addresses"}
    one, two = (
        client(address, uuid) for address, uuid in zip(ready["addresses"], (ONE, TWO), strict=True)
    )
    with one.sock, two.sock:
        one.send(b"\x33" * 16, b"to nobody")
        one.send(TWO, b"direct")
        assert two.read_message().payload == b"direct"
        two.broadcast(b"to all")
        assert one.read_message().payload == b"to all"
        host, port = ready["addresses"][0].removeprefix("tcp://").rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=10) as third:
            assert third.recv(1) == b""
        running.send(SIGINT)
        assert (one.closed(), two.closed()) == (b"", b"")
    done = running.finish()
    assert (done.code, done.err.count("\n")) == (0, 1)
    assert "turned away" in done.err
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
        *("relay", "--bridge", f"news={source}", "--node", "tcp://127.0.0.1:0", "--json"),
        "--fresh",
    )
    ready = running.event("ready")
    assert ready["topic"] == "news"
    (near,) = ready["node_addresses"]
    reader = processes.start("sub", near, "news", "--count", "3", "--json")
    reader.event("subscribed")
    one = client(ready["addresses"][0], ONE)
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
        (["--listen", "tcp://0.0.0.0:0"], "--allow-insecure"),
        (["--listen", "nowhere"], "cannot use the address 'nowhere': it must start with"),
        (["--node", "tcp://127.0.0.1:0"], "cannot use --node tcp://127.0.0.1:0 without --bridge"),
        (["--bridge", "=tcp://127.0.0.1:1"], "TOPIC=ADDR"),
        (["--bridge", ""], "cannot use --bridge '': the topic is empty"),
        (["--clients", "0"], "clients is 0"),
        (["--longest-frame", "63"], "longest_frame is 63"),
        (["--write-buffer", "1"], "write_buffer is 1"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    parley: Parley, arguments: list[str], sentence: str
) -> None:
    done = parley("relay", *arguments)
    assert (done.code, done.out) == (2, "")
    assert sentence in done.err
    assert done.err.count("\n") == 1


def test_settings_stand_below_options(processes: Processes, tmp_path: Path) -> None:
    file = tmp_path / "parley.toml"
    lines = ["[relay]", f'listen = ["unix://{tmp_path}/a"]', "feedback = false"]
    file.write_text("\n".join([*lines, "[relay.limits]", "clients = 1"]))
    running = processes.start("relay", "--config", str(file), "--feedback")
    assert running.line() == f"relaying on unix://{tmp_path}/a"
    one = client(f"unix://{tmp_path}/a", ONE)
    with one.sock:
        one.send(TWO)
        assert one.read_error()[0] == 5
    done = running.stop()
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("closed on SIGTERM\n")
