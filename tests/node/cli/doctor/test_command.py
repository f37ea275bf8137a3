"""`parley doctor`: alone, with a node, and where something is wrong."""

from pathlib import Path

import pytest

from tests.node.cli.conftest import Parley
from tests.node.cli.processes import Finished, Processes

UNUSED = "tcp://127.0.0.1:1"


def found(done: Finished) -> dict[str, str]:
    return {line["subject"]: line["level"] for line in done.lines if line["event"] == "finding"}


@pytest.mark.process
def test_alone(parley: Parley) -> None:
    done = parley("doctor", "--json")
    assert (done.code, done.err) == (0, "")
    assert done.lines[0]["event"] == "versions"
    assert done.lines[0]["parley"]
    levels = found(done)
    assert levels["algorithms"] == "ok"
    assert levels["home"] == "ok"
    assert done.last == {
        "event": "done",
        **{level: list(levels.values()).count(level) for level in ("ok", "note", "weak")},
        "problem": 0,
    }


def test_for_people(parley: Parley, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    done = parley("doctor", server, "--kex", "x25519")
    assert (done.code, done.err) == (0, "")
    for said in ("versions", "OpenSSL", "this machine", "this connection", "round trip"):
        assert said in done.out, said
    assert "x25519: a future quantum computer" in done.out
    assert "-> put x25519-mlkem768 first" in done.out
    assert server.partition("#")[2] in done.out
    assert done.out.splitlines()[-1].endswith(" weak, 0 problems")


def test_a_connection(parley: Parley, server: str) -> None:
    done = parley("doctor", server, "--json", "--count", "3", "--fresh")
    assert done.code == 0
    (met,) = (line for line in done.lines if line["event"] == "connection")
    assert met["node_id"] == server.partition("#")[2]
    assert (met["version"], met["role"], met["encrypted"]) == (1, "peer", True)
    assert met["suite"]["kex"] == "x25519-mlkem768"
    assert met["limits"]["max_payload"] == 2**20
    assert met["info"] == {}
    assert 0 < met["round_trip_seconds"] < 1
    assert 0 < met["handshake_seconds"] < 5
    levels = found(done)
    assert (levels["encryption"], levels["kex"], levels["trust"]) == ("ok", "ok", "ok")
    assert (levels["signing"], levels["identity"]) == ("note", "note")
    place = server.partition("#")[0]
    assert found(parley("doctor", place, "--trust", "first-use", "--json"))["trust"] == "note"
    assert found(parley("doctor", place, "--trust", "any", "--json"))["trust"] == "weak"


def test_a_connection_without_encryption(processes: Processes, parley: Parley) -> None:
    running, (address,) = processes.serve("--plaintext")
    done = parley("doctor", address, "--plaintext", "--json")
    assert (done.code, found(done)["encryption"]) == (0, "weak")
    assert "unknown (unencrypted)" in parley("doctor", address, "--plaintext").out
    assert running.stop().code == 0


@pytest.mark.process
def test_a_node_that_is_not_there(parley: Parley) -> None:
    done = parley("doctor", f"{UNUSED}", "--json")
    assert (done.code, done.last["name"]) == (3, "unreachable")
    assert found(done)["algorithms"] == "ok"  # findings of this machine were printed before
    assert parley("doctor", "nowhere").code == 2


def test_a_problem_is_the_exit_code(parley: Parley, tmp_path: Path, server: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "known_peers").write_text("")
    (home / "known_peers").chmod(0o666)
    for arguments in ([], [server]):
        done = parley("doctor", *arguments, "--json")
        assert (done.code, done.last["event"], done.last["problem"]) == (1, "done", 1)
        assert found(done)[f"file {home / 'known_peers'}"] == "problem"
    assert "chmod go-w" in parley("doctor").out


@pytest.mark.process
def test_dialects(parley: Parley, tmp_path: Path) -> None:
    file = tmp_path / "parley.toml"
    file.write_text("simproto.listen = ['tcp://127.0.0.1:7101']")
    done = parley("doctor", "--json", "--config", str(file))
    assert (done.code, found(done)["SimProto tcp://127.0.0.1:7101"]) == (0, "note")
    done = parley("doctor", "--json", "--dialect", "tcp://0.0.0.0:7102")
    assert (done.code, found(done)["dialect tcp://0.0.0.0:7102"]) == (1, "problem")
    assert found(done)["dialects"] == "ok"  # the settings have no dialect address
    assert parley("doctor", "--dialect", "here").code == 2
    assert "unencrypted" in parley("doctor", "--config", str(file)).out


def test_usage(parley: Parley) -> None:
    assert parley("doctor", "--count", "0").code == 2
    assert "ADDR" in parley("doctor", "--help").out
