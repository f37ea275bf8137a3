"""Trust between two real processes: first use, changed IDs, required algorithms, network keys,
plaintext.
"""

from pathlib import Path
from signal import SIGTERM

from parley._crypto.registry import NAMES
from tests.node.cli.conftest import Parley
from tests.node.cli.processes import Processes, Running


def _secret(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    path.chmod(0o600)
    return str(path)


def _identity(parley: Parley, path: Path, *options: str) -> tuple[str, str]:
    node_id: str = parley("id", "new", str(path), *options, "--json").last["node_id"]
    return str(path), node_id


def test_first_use_then_a_changed_id(processes: Processes, parley: Parley, tmp_path: Path) -> None:
    place = f"unix://{tmp_path}/socket"
    old, old_id = _identity(parley, tmp_path / "old")
    new, new_id = _identity(parley, tmp_path / "new")

    def serve(identity: str) -> Running:
        return processes.serve("--identity", identity, listen=[place])[0]

    running = serve(old)
    trusting = ("--trust", "first-use")
    assert (
        processes.run("call", place, "parley.echo", "one").code == 4
    )  # there is no terminal to ask at
    assert processes.run("call", place, "parley.echo", "one", *trusting).out == "one\n"
    assert parley("call", place, "parley.echo", "two").out == "two\n"
    running.stop()
    known = (processes.home / "known_peers").read_text()
    assert known.startswith(old_id)
    assert known.count("\n") == 1

    running = serve(new)
    refused = processes.run("call", place, "parley.echo", "secret")
    assert (refused.code, refused.out) == (4, "")
    warning = refused.err.splitlines()
    assert warning[0] == f"parley: WARNING: THE ID BEHIND {place} HAS CHANGED"
    assert warning[2].startswith(f"    was   {old_id}  since 2")
    assert warning[3] == f"    is    {new_id}"
    mend = next(line.strip() for line in warning if line.startswith("    parley "))
    assert mend == f"parley peers forget {old_id}"
    assert (processes.home / "known_peers").read_text() == known
    last = parley("ping", place, "--json").last
    assert (last["event"], last["code"], last["exit"]) == ("error", -2, 4)
    assert (last["peer"], last["old_node_id"], last["new_node_id"]) == (place, old_id, new_id)
    assert (last["known_peers"], last["mend"]) == (str(processes.home / "known_peers"), mend)
    # Give --trust to accept the new node explicitly.
    assert parley("call", f"{place}#{new_id}", "parley.echo", "x").code == 0
    # Or run the command in the warning.
    assert processes.run(*mend.split()[1:]).code == 0
    assert processes.run("call", place, "parley.echo", "three", *trusting).out == "three\n"
    assert (processes.home / "known_peers").read_text().startswith(new_id)
    assert running.stop().code == 0


def test_a_server_that_knows_its_friends(
    processes: Processes, parley: Parley, tmp_path: Path
) -> None:
    friend, friend_id = _identity(parley, tmp_path / "friend")
    friends = tmp_path / "friends.txt"
    friends.write_text(f"{friend_id} 2026-01-01T00:00:00Z alice\n")
    running, (address,) = processes.serve("--trust", str(friends))
    asked = parley("call", address, "parley.info", "--identity", friend, "--json").last["data"]
    assert asked["caller"] == friend_id
    for command in (["call", address, "parley.echo", "x"], ["ping", address]):
        refused = parley(*command)
        assert refused == (4, "", "parley: authentication failed (authentication-failed)\n")
    log = running.stop().err
    assert log.count("trust policy 'known' refused") >= 1
    assert "Traceback" not in log


def test_a_friend_who_is_forgotten_is_gone(
    processes: Processes, parley: Parley, tmp_path: Path
) -> None:
    friend, friend_id = _identity(parley, tmp_path / "friend")
    other, other_id = _identity(parley, tmp_path / "other")
    friends = tmp_path / "friends.txt"
    friends.write_text("".join(f"{one} 2026-01-01T00:00:00Z -\n" for one in (friend_id, other_id)))
    running, (address,) = processes.serve("--trust", str(friends))
    listening = [
        processes.start("sub", address, "parley.clock", "--json", "--identity", identity)
        for identity in (friend, other)
    ]
    for each in listening:
        each.event("note")
    assert parley("peers", "forget", friend_id, "--known-peers", str(friends)).code == 0
    gone = listening[0].finish()
    assert gone.code == 4, gone
    listening[1].event("note")
    assert parley("call", address, "parley.echo", "x", "--identity", friend).code == 4
    assert parley("call", address, "parley.echo", "x", "--identity", other).code == 0
    listening[1].stop()
    log = running.stop().err
    assert f"ended: peer-not-trusted (trust policy 'known' refused {friend_id}: it is not in" in log


def test_network_keys(processes: Processes, parley: Parley, server: str, tmp_path: Path) -> None:
    right = _secret(tmp_path / "right", bytes(range(32)))
    as_hex = _secret(tmp_path / "hex", bytes(range(32)).hex().encode() + b"\n")
    wrong = _secret(tmp_path / "wrong", bytes(range(1, 33)))
    running, (address,) = processes.serve("--network-key", right)
    for key in (right, as_hex):
        assert parley("call", address, "parley.echo", "x", "--network-key", key).out == "x\n"
    for options in (["--network-key", wrong], []):
        done = parley("call", address, "parley.echo", "x", *options)
        assert (done.code, done.out) == (3, "")
        assert "it may use another network key" in done.err
        assert done.err.count("\n") == 1
    assert running.stop().code == 0
    # A node with a network key doesn't respond to nodes without it.
    assert parley("call", server, "parley.echo", "x", "--network-key", right).code != 0


def test_plaintext(processes: Processes, parley: Parley) -> None:
    running, (address,) = processes.serve("--plaintext")
    assert "#" not in address  # plaintext proves no identity
    assert processes.run("call", address, "parley.echo", "x", "--plaintext").out == "x\n"
    info = parley("call", address, "parley.info", "--plaintext", "--json")
    assert (info.lines[0]["encrypted"], info.lines[0]["node_id"]) == (False, None)
    assert info.last["data"]["caller"] is None
    assert info.last["data"]["suite"] is None
    pinged = parley("ping", address, "--plaintext", "--count", "1")
    assert pinged.out.startswith(f"{address}: ")
    # Neither side falls back to the other's kind.
    refused = parley("call", address, "parley.echo", "x")
    assert (refused.code, refused.out) == (1, "")
    assert not (processes.home / "known_peers").exists()
    assert running.stop().code == 0


def test_the_listener_prefers(processes: Processes, parley: Parley) -> None:
    running, (address,) = processes.serve(
        "--cipher", "chacha20-poly1305,aes-256-gcm", "--kex", "x25519,x25519-mlkem768"
    )
    suite = parley("call", address, "parley.info", "--json").last["data"]["suite"]
    assert suite["cipher"] == "chacha20-poly1305"
    # The caller's first kex came with a share: no round trip is spent on the other.
    assert suite["kex"] == "x25519-mlkem768"
    only = parley("call", address, "parley.info", "--cipher", "aes-256-gcm", "--json")
    assert only.last["data"]["suite"]["cipher"] == "aes-256-gcm"
    running.stop()


def test_a_floor_is_kept_by_both_sides(processes: Processes, parley: Parley, server: str) -> None:
    running, (address,) = processes.serve("--require", "x25519-mlkem768,sha512")
    suite = parley("call", address, "parley.info", "--json").last["data"]["suite"]
    assert (suite["kex"], suite["hash"]) == ("x25519-mlkem768", "sha512")
    for option, name in (("--kex", "x25519"), ("--hash", "sha256,blake2b-256")):
        done = parley("call", address, "parley.echo", "x", option, name)
        assert done == (
            1,
            "",
            f"parley: no common algorithm: {option[2:]} (no-common-algorithm)\n",
        )
    running.stop()
    # That server has an Ed25519 key alone.
    done = parley("call", server, "parley.echo", "x", "--require", "ml-dsa-65", "--fresh")
    assert done == (1, "", "parley: no common algorithm: signing (no-common-algorithm)\n")


def test_every_signing_algorithm(processes: Processes, parley: Parley, tmp_path: Path) -> None:
    names = NAMES["signing"]
    all_three, _ = _identity(parley, tmp_path / "key", "--algorithm", ",".join(names))
    running, (address,) = processes.serve("--identity", all_three)
    for name in names:
        suite = parley("call", address, "parley.info", "--signing", name, "--json").last["data"]
        assert suite["suite"]["signing"] == name
    running.stop()


def test_the_smaller_max_payload_holds(processes: Processes, parley: Parley) -> None:
    running, (address,) = processes.serve("--max-payload", "2048", "--sealing", "each")
    assert parley("call", address, "parley.echo", "x" * 1900).code == 0
    done = parley("call", address, "parley.echo", "x" * 2048)
    assert (done.code, done.out) == (1, "")  # refused here: the connection was not cut
    assert "2048" in done.err
    ended = running.stop()
    assert (ended.code, ended.err) == (0, "")


def test_large_payloads_by_agreement(processes: Processes, parley: Parley) -> None:
    size = 8 * 2**20
    options = ("--max-payload", str(2 * size))
    running, (address,) = processes.serve(*options)
    done = parley("call", address, "parley.echo", "-", *options, data=b"x" * size)
    assert (done.code, len(done.out), done.err) == (0, size + 1, "")
    assert running.stop(SIGTERM).code == 0
