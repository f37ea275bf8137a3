"""`parley serve` as a real process: where it listens, and how it ends."""

import socket
import stat
from pathlib import Path
from signal import SIGCONT, SIGHUP, SIGINT, SIGKILL, SIGSTOP, SIGTERM, Signals

import anyio
import pytest

from parley.dialects import NamedClient, SimProtoClient
from tests.node.cli.conftest import Parley
from tests.node.cli.processes import Processes, Running

# Who is killed is noticed by the end of the transport, and not when the session's time is up.
AT_ONCE = ("--resume", "0")


def test_three_listeners_serve_one_node(
    processes: Processes, parley: Parley, tmp_path: Path
) -> None:
    places = ["tcp://127.0.0.1:0", "tcp://[::1]:0", f"unix://{tmp_path}/socket"]
    running, addresses = processes.serve("--role", "server", listen=places)
    assert [address.rpartition(":")[0] for address in addresses[:2]] == [
        place.rpartition(":")[0] for place in places[:2]
    ]
    node_ids = {address.partition("#")[2] for address in addresses}
    assert len(node_ids) == 1
    for address in addresses:
        info = parley("call", address, "parley.info", "--role", "client", "--json").last["data"]
        assert {info["node_id"]} == node_ids
        assert info["role"] == "server"
    # From other processes too, at the same time.
    callers = [processes.start("call", address, "parley.echo", "hello") for address in addresses]
    for caller in callers:
        assert caller.finish() == (0, "hello\n", "")
    done = running.stop()
    assert (done.code, done.err) == (0, "")
    assert not (tmp_path / "socket").exists()


def test_without_options_it_listens_on_loopback(processes: Processes, parley: Parley) -> None:
    running = processes.start("serve")
    line = running.line()
    assert line.startswith("listening on tcp://127.0.0.1:")
    address = line.removeprefix("listening on ")
    assert parley("call", address, "parley.echo", "hello").out == "hello\n"
    done = running.stop()
    assert (done.code, done.err) == (0, "")
    assert done.out == f"{line}\nclosed on SIGTERM\n"


@pytest.mark.parametrize("number", [SIGINT, SIGTERM])
def test_a_signal_ends_it_with_close(processes: Processes, number: Signals) -> None:
    running, (address,) = processes.serve()
    visitor = processes.start("ping", address, "--count", "1000", "--interval", "0.02", "--json")
    visitor.event("pong")
    done = running.stop(number)
    assert (done.code, done.err) == (0, "")
    assert [line["event"] for line in done.lines] == ["ready", "done"]
    assert done.last["signal"] == number.name
    # The visitor got a Close.
    left = visitor.finish()
    assert (left.code, left.err) == (1, "")
    assert (left.last["event"], left.last["name"]) == ("error", "going-away")


def test_a_hangup_ends_nothing(processes: Processes, parley: Parley) -> None:
    running, (address,) = processes.serve(topics=True)
    running.send(SIGHUP)
    assert running.event("reloaded") == {"event": "reloaded", "changed": [], "restart": []}
    assert parley("call", address, "parley.echo", "hello").out == "hello\n"
    # Nor does it cut short how the node closes.
    caller = processes.start("call", address, "test.wait", "0.6")
    running.event("waiting")
    running.send(SIGTERM)
    while parley("call", address, "parley.echo", "x").code == 0:
        pass  # until that was noticed
    running.send(SIGHUP)
    done = running.finish()
    assert (done.code, done.last["event"]) == (0, "done")
    assert caller.finish() == (0, "late\n", "")
    reloaded, line = done.err.splitlines()
    assert reloaded.endswith("changed: none")
    assert line.endswith("ignored SIGHUP: the server is starting or closing")


def test_a_running_call_is_answered_before_the_end(processes: Processes) -> None:
    running, (address,) = processes.serve(topics=True)
    caller = processes.start("call", address, "test.wait", "0.6")
    running.event("waiting")
    done = running.stop()
    assert (done.code, done.last["event"]) == (0, "done")
    assert caller.finish() == (0, "late\n", "")


def test_a_visitor_that_hangs_does_not_keep_it(processes: Processes) -> None:
    running, (address,) = processes.serve()
    visitor = processes.start("ping", address, "--count", "1000", "--interval", "0.02", "--json")
    visitor.event("pong")
    visitor.send(SIGSTOP)
    assert running.stop().last["event"] == "done"
    visitor.send(SIGCONT)
    assert visitor.finish().last["event"] == "error"


def test_a_second_signal_does_not_wait(processes: Processes, parley: Parley) -> None:
    running, (address,) = processes.serve(topics=True)
    caller = processes.start("call", address, "test.wait", "60", "--json", *AT_ONCE)
    running.event("waiting")
    running.send(SIGTERM)
    while parley("call", address, "parley.echo", "x").code == 0:
        pass  # until the signal was noticed: a draining server refuses calls
    assert running.stop().code == -SIGTERM
    assert caller.finish().last["name"] == "connection-lost"


def test_a_caller_that_is_killed_is_noticed(processes: Processes) -> None:
    running, (address,) = processes.serve(topics=True)
    caller = processes.start("call", address, "test.wait", "60", *AT_ONCE)
    running.event("waiting")
    caller.send(SIGKILL)
    running.event("cancelled")  # its handler was cancelled
    assert caller.finish().code == -SIGKILL
    done = running.stop()
    assert done.code == 0
    assert "connection-lost" in done.err


def test_a_server_that_is_killed_is_noticed(processes: Processes) -> None:
    running, (address,) = processes.serve(topics=True)
    callers = [
        processes.start("call", address, "test.wait", "60", "--json", *AT_ONCE),
        processes.start(
            "ping", address, "--count", "1000", "--interval", "0.02", "--json", *AT_ONCE
        ),
    ]
    running.event("waiting")
    callers[1].event("pong")
    running.stop(SIGKILL)
    for caller in callers:
        done = caller.finish()
        assert done.code == 1
        assert (done.last["event"], done.last["code"]) == ("error", -1)
        assert done.last["text"] == "the connection was lost (connection-lost)"


def test_a_port_in_use(processes: Processes, parley: Parley, server: str) -> None:
    place = server.partition("#")[0]
    sentence = f"cannot listen on {place}: the address is in use"
    # Also for the second address: the server doesn't announce anything before all are open.
    for listen in (["--listen", place], ["--listen", "tcp://127.0.0.1:0", "--listen", place]):
        done = parley("serve", *listen)
        assert done == (3, "", f"parley: {sentence}\n")
        last = parley("serve", *listen, "--json").last
        assert (last["event"], last["code"], last["text"]) == ("error", 3, sentence)
    assert parley("call", server, "parley.echo", "x").out == "x\n"


def test_a_socket_that_is_served_is_not_taken_over(
    processes: Processes, parley: Parley, tmp_path: Path
) -> None:
    place = f"unix://{tmp_path}/socket"
    running, (address,) = processes.serve(listen=[place])
    assert stat.S_ISSOCK((tmp_path / "socket").stat().st_mode)
    assert parley("serve", "--listen", place).code == 3
    assert parley("call", address, "parley.echo", "x").out == "x\n"
    running.stop(SIGKILL)
    # What the dead one left behind is.
    again, (address,) = processes.serve(listen=[place])
    assert parley("call", address, "parley.echo", "x").out == "x\n"
    assert again.stop().code == 0


@pytest.mark.parametrize(
    ("place", "code"),
    [
        ("127.0.0.1:0", 2),
        ("tcp://127.0.0.1", 2),
        ("tcp://192.0.2.1:4000", 3),  # a documentation address (RFC 5737)
        ("unix:///proc/nonexistent/socket", 3),
        ("unix://relative", 2),
        ("unix:///" + "x" * 200, 2),
    ],
)
def test_where_nothing_can_listen(parley: Parley, place: str, code: int) -> None:
    done = parley("serve", "--listen", place)
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("parley: ")
    assert done.err.count("\n") == 1


def test_a_file_in_the_way_is_left_alone(parley: Parley, tmp_path: Path) -> None:
    file = tmp_path / "dear"
    file.write_text("dear")
    done = parley("serve", "--listen", f"unix://{file}")
    assert done.code == 3
    assert file.read_text() == "dear"


def test_strangers_are_logged_in_one_line_and_do_no_harm(
    processes: Processes, parley: Parley
) -> None:
    running, (address,) = processes.serve()
    port = int(address.partition("#")[0].rpartition(":")[2])
    for greeting in (b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\1\0", b"\xff" * 64):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as stranger:
            stranger.sendall(greeting)
            while stranger.recv(1024):
                pass
    assert parley("call", address, "parley.echo", "x").out == "x\n"
    done = running.stop()
    assert done.code == 0
    assert len(done.err.splitlines()) == 3
    assert "Traceback" not in done.err


def test_a_log_level_opens_the_log(processes: Processes, parley: Parley) -> None:
    running, (address,) = processes.serve("--log-level", "INFO")
    assert parley("call", address, "parley.echo", "x").code == 0
    done = running.stop()
    assert "INFO" in done.err
    assert "aes-256-gcm" in done.err
    assert [line["event"] for line in done.lines] == ["ready", "done"]


def test_a_reader_that_left_does_no_harm(processes: Processes, parley: Parley) -> None:
    running, (address,) = processes.serve()
    stdout = running.process.stdout
    assert stdout is not None
    stdout.close()
    assert parley("call", address, "parley.echo", "x").out == "x\n"
    running.send(SIGTERM)
    assert running.process.wait(20) == 0


def test_settings_from_a_file_and_variables(
    processes: Processes, parley: Parley, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "parley.toml"
    file.write_text(
        f"""
        [node]
        role = "client"
        [node.algorithms]
        cipher = ["chacha20-poly1305"]
        [serve]
        listen = ["unix://{tmp_path}/socket"]
        """
    )
    monkeypatch.setenv("PARLEY_NODE_ALGORITHMS_KEX", "x25519")
    monkeypatch.setenv("PARLEY_NODE_ROLE", "peer")
    running = processes.start("serve", "--config", str(file), "--role", "server", "--json")
    (address,) = running.event("ready")["addresses"]
    assert address.startswith(f"unix://{tmp_path}/socket#")
    monkeypatch.undo()
    info = parley("call", address, "parley.info", "--json").last["data"]
    assert info["role"] == "server"
    assert info["suite"]["kex"] == "x25519"
    assert info["suite"]["cipher"] == "chacha20-poly1305"
    assert running.stop().code == 0


# Other dialects, and topics of other nodes.


def test_dialects_and_a_topic_of_another_node(
    processes: Processes, parley: Parley, tmp_path: Path
) -> None:
    publisher = processes.start("pub", "news", "--wait", "1", "--json", typing=True)
    (source,) = publisher.event("ready")["addresses"]
    running = processes.start(
        *("serve", "--json", "--forward", f"news={source}", "--named-flavour", "typed"),
        *("--loop", "trio", "--fresh"),
        *("--simproto", "tcp://127.0.0.1:0", "--simproto", f"unix://{tmp_path}/simproto"),
        *("--named", "tcp://127.0.0.1:0"),
    )
    ready = running.event("ready")
    assert ready["simproto"][1] == f"unix://{tmp_path}/simproto"
    # One set of handlers and topics for all.
    heard, asked = anyio.run(listen_to, ready["simproto"][0], publisher)
    assert (heard, asked) == (b"from afar", b"echo")
    (named,) = ready["named"]
    assert anyio.run(greet, named)
    publisher.end_input()
    assert publisher.finish().last["notes"] == 1
    done = running.stop()
    assert done.code == 0
    assert "topic 'news' of" in done.err  # that it ended is said
    assert not (tmp_path / "simproto").exists()


async def listen_to(address: str, publisher: Running) -> tuple[object, object]:
    """A note of `news`, and what a call is answered, in SimProto."""
    with anyio.fail_after(20):
        async with SimProtoClient(address) as client, client.subscribe("news") as notes:
            publisher.type("from afar\n")
            return await anext(aiter(notes)), await client.call("parley.echo", b"echo")


async def greet(address: str) -> bool:
    """Connect in the other flavour of named events, and be let in."""
    async with NamedClient(address, flavour="typed") as client:
        await client.emit("nobody", "listens")
        return True


def test_dialects_are_told_to_people_too(processes: Processes) -> None:
    running = processes.start(
        *("serve", "--named", "tcp://127.0.0.1:0", "--simproto", "tcp://127.0.0.1:0"),
        *("--forward", f"a b=tcp://127.0.0.1:1#{'a' * 52}", "--trust", "any"),
    )
    running.line()
    for start in ("speaking SimProto on tcp://", "speaking named events (plain) on tcp://"):
        assert running.line().startswith(start)
    assert running.stop().code == 0


def test_others_are_let_in_only_if_that_is_said(
    processes: Processes, parley: Parley, tmp_path: Path
) -> None:
    for dialect in ("simproto", "named"):
        done = parley("serve", f"--{dialect}", "tcp://0.0.0.0:0")
        assert (done.code, done.out) == (2, "")
        assert "this protocol is not encrypted" in done.err
        assert "--allow-insecure" in done.err
    file = tmp_path / "parley.toml"
    file.write_text("dialects.allow_insecure = true\n[named]\nlisten = ['tcp://0.0.0.0:0']\n")
    running = processes.start(
        *("serve", "--json", "--config", str(file)),
        *("--simproto", "tcp://0.0.0.0:0", "--allow-insecure"),
    )
    ready = running.event("ready")
    for dialect in ("simproto", "named"):
        assert ready[dialect][0].startswith("tcp://0.0.0.0:")
    assert running.stop().code == 0


@pytest.mark.parametrize(
    ("toml", "arguments", "text"),
    [
        ("", ("--simproto", "here"), "cannot use the address 'here': expected tcp://"),
        (
            "",
            ("--named-flavour", "new"),
            "expected plain or typed; correct --named-flavour",
        ),
        ("", ("--forward", "news"), "invalid forward 'news': expected TOPIC=ADDR"),
        ("", ("--forward", "parley.clock=tcp://[::1]:1"), "every node publishes its own clock"),
        (
            "serve.forward = ['t=tcp://[::1]:1']",
            ("--trust", "./no"),
            "cannot read the known peers in",
        ),
        (
            "dialects.limits.clients = 0",
            (),
            "dialects.limits.clients to 0: expected int",
        ),
        ("node.role = 'boss'", (), "cannot set node.role to 'boss'"),
        ("node.rolle = 'peer'", (), "(did you mean node.role?)"),
        ("serve.clock_interval = 1", (), "it has a fixed value now; remove it"),
        ("", ("--listen", "here"), "cannot use the address 'here': expected tcp://"),
        (None, (), "does not exist"),
    ],
)
def test_wrong_settings_end_it_at_once(
    parley: Parley, tmp_path: Path, toml: str | None, arguments: tuple[str, ...], text: str
) -> None:
    file = tmp_path / "parley.toml"
    if toml is not None:
        file.write_text(toml)
    done = parley("serve", "--config", str(file), *arguments)
    assert done.code == (6 if "known peers" in text else 2)
    assert text in done.err
