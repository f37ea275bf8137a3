"""`parley context`, and commands that use the address of a context."""

from pathlib import Path
from threading import Thread

import pytest

from parley._crypto.auditor import AuditorKey
from parley._crypto.identity import Identity
from parley._crypto.keyfile import save_identity
from parley._node.cli import context_file
from parley._node.cli.completion.suggestions import contexts, places
from parley._node.cli.context_file import Context, Contexts, resolve_address
from parley._node.errors import ConfigError, FileError
from parley._node.trust.known_peers import KnownPeers, default_known_peers
from tests.node.cli.completion.test_suggestions import ALICE, NOW, offered
from tests.node.cli.conftest import Parley, said

PLACE = "tcp://127.0.0.1:1"
HOME = Context(address=PLACE)


def auditor() -> str:
    """A key of an auditor."""
    return AuditorKey(bytes(range(1, 33))).text


# The file.


def test_what_is_written_is_read(tmp_path: Path) -> None:
    full = Context(address=PLACE, identity='/a "b" \\é', trust="known", auditor="x" * 1_024)
    file = Contexts(tmp_path / "made" / "contexts.toml")
    assert (dict(file.all()), file.in_use) == ({}, None)
    file.add("full.1", full)
    file.add("home", HOME, use=True)
    again = Contexts(file.path)
    assert dict(again.all()) == {"full.1": full, "home": HOME}
    assert again.in_use == "home"
    assert again.find("full.1") == full
    assert file.path.stat().st_mode & 0o777 == 0o600


def test_names_and_their_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context_file, "MOST_CONTEXTS", 2)
    file = Contexts(tmp_path / "contexts.toml")
    for name in ("", "-x", ".x", "a b", "a/b", "@a", "é", "x" * 65):
        with pytest.raises(ConfigError, match=r"invalid context name "):
            file.add(name, HOME)
    file.add("x" * 64, HOME)
    with pytest.raises(ConfigError, match="give --force to replace it"):
        file.add("x" * 64, HOME)
    file.add("b", HOME)
    with pytest.raises(ConfigError, match="there are 2 contexts already"):
        file.add("c", HOME)
    file.add("b", Context(trust="any"), force=True)
    assert file.find("b") == Context(trust="any")
    for value in ("", "x" * 1_025, "a\nb"):
        with pytest.raises(ConfigError, match="expected one line of 1 to 1,024 characters"):
            file.add("b", Context(address=value), force=True)
    assert list(file.all()) == ["x" * 64, "b"]


def test_the_one_in_use(tmp_path: Path) -> None:
    file = Contexts(tmp_path / "contexts.toml")
    file.add("a", HOME, use=True)
    file.add("b", HOME)
    assert file.in_use == "a"
    file.use("b")
    for change in (file.use, file.remove, file.find):
        with pytest.raises(ConfigError, match="cannot find the context 'c' in"):
            change("c")
    file.remove("a")
    assert file.in_use == "b"
    file.remove("b")
    left = Contexts(file.path)
    assert (dict(left.all()), left.in_use) == ({}, None)


@pytest.mark.parametrize(
    "content",
    [
        b"\xff",
        b"in_use = ",
        b'in_use = "x"',
        b"contexts = 1",
        b"more = 1",
        b"[contexts.a]\naddress = 1",
        b'[contexts.a]\nport = "1"',
        b'[contexts."a b"]',
        b"#" * 3_000,
    ],
)
def test_a_broken_file_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setattr(context_file, "MAX_FILE_SIZE", 2_999)
    path = tmp_path / "contexts.toml"
    path.write_bytes(content)
    for attempt in (Contexts(path).all, lambda: Contexts(path).add("a", HOME)):
        with pytest.raises(FileError, match=r"cannot read .*contexts\.toml': "):
            attempt()
    assert path.read_bytes() == content


def test_several_that_write_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "contexts.toml"
    names = [f"n{number}" for number in range(8)]
    threads = [Thread(target=Contexts(path).add, args=(name, HOME)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(Contexts(path).all()) == names


# The commands.


def test_the_commands(parley: Parley, tmp_path: Path) -> None:
    assert (
        parley("context", "list").out
        == f"no contexts in {Contexts().path}; add one with: parley context add NAME ADDR\n"
    )
    save_identity(tmp_path / "key", Identity.create())
    done = parley(
        *("context", "add", "shop", PLACE, "--identity", str(tmp_path / "key")),
        *("--trust", "friends.txt", "--auditor", auditor(), "--use"),
    )
    assert done == (0, "added shop, now selected\n", "")
    assert parley("context", "add", "home", "unix:///run/home").out == "added home\n"
    assert parley("context", "list").out == f"* shop  {PLACE}\n  home  unix:///run/home\n"
    listed = said(parley("context", "list", "--json"), "context")
    assert listed[0] == {
        "event": "context",
        "name": "shop",
        "address": PLACE,
        "identity": str(tmp_path / "key"),
        "trust": str(Path("friends.txt").absolute()),
        "auditor": auditor(),
        "in_use": True,
    }
    shown = parley("context", "show").out.splitlines()
    assert shown[0] == "name      shop (selected)"
    assert shown[2] == f"identity  {tmp_path / 'key'}"
    assert parley("context", "use", "home").out == "selected home\n"
    assert parley("context", "show", "--json").last["name"] == "home"
    assert parley("context", "remove", "home").out == "removed home\n"
    contexts = tmp_path / "home" / "contexts.toml"
    assert parley("context", "show").err == (
        f"parley: cannot show the selected context: none is selected in '{contexts}'; give "
        "NAME, or select one with: parley "
        "context use NAME\n"
    )
    assert parley("context", "use", "shop").code == 0
    assert parley("context", "use").out == "no context is selected\n"
    assert parley("context", "show", "shop", "--json").last["in_use"] is False


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (
            ["x", "localhost:1"],
            2,
            "cannot use the address 'localhost:1': expected tcp://",
        ),
        (["x", "--identity", "/proc/nonexistent/key"], 6, "cannot open the key file"),
        (["x", "--trust", "anyone"], 2, "invalid trust 'anyone'"),
        (
            ["x", "--auditor", "me"],
            2,
            "cannot read the auditor's key 'me': expected parley-auditor-",
        ),
        (
            ["x"],
            2,
            "cannot add an empty context; give an address, --identity, --trust or --auditor",
        ),
        (["a b", PLACE], 2, "invalid context name 'a b': "),
    ],
)
def test_a_wrong_context_is_not_added(
    parley: Parley, arguments: list[str], code: int, sentence: str
) -> None:
    done = parley("context", "add", *arguments)
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith(f"parley: {sentence}")
    assert not Contexts().path.exists()


# Where commands go.


def test_an_address_that_is_left_out_or_named(
    parley: Parley, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = ("call", "parley.echo", "hi")
    assert parley(*call).code == 2  # no context is selected
    assert parley("ping").err == "parley: Missing argument 'ADDR'.\n"
    assert parley("context", "add", "home", server).code == 0
    for command in (
        ("call", "@home", "parley.echo", "hi"),
        ("call", "--context", "home", "parley.echo", "hi"),
        ("call", "parley.echo", "hi", "--context=home"),
        ("call", server, "parley.echo", "hi"),
    ):
        assert parley(*command).out == "hi\n", command
    monkeypatch.setenv("PARLEY_CONTEXT", "home")
    assert parley(*call).out == "hi\n"
    monkeypatch.delenv("PARLEY_CONTEXT")
    assert parley("context", "use", "home").code == 0
    assert parley(*call).out == "hi\n"
    assert parley("call", "@", "parley.echo", "hi").out == "hi\n"
    assert parley("ping", "--count", "1").code == 0
    assert parley("sub", "parley.clock", "--count", "1").code == 0


def test_the_key_and_the_trust_of_a_context(parley: Parley, server: str, tmp_path: Path) -> None:
    identity = Identity.create()
    save_identity(tmp_path / "key", identity)
    place = server.partition("#")[0]
    (tmp_path / "nobody.txt").write_text("")
    add = ("context", "add", "shop", place, "--identity", str(tmp_path / "key"), "--use")
    assert parley(*add, "--trust", str(tmp_path / "nobody.txt")).code == 0
    info = ("call", "parley.info", "--json")
    refused = parley(*info)
    assert (refused.code, refused.last["name"]) == (4, "peer-not-trusted")
    assert parley(*info, "--trust", "any").last["data"]["caller"] == str(identity.node_id)
    fresh = parley(*info, "--trust", "any", "--fresh").last["data"]["caller"]
    assert fresh != str(identity.node_id)
    # With an explicit address, the other values of the context don't apply either.
    told = parley("call", server, "parley.info", "--json").last["data"]["caller"]
    assert told not in (fresh, str(identity.node_id))


def test_what_stands_for_an_address(tmp_path: Path) -> None:
    file, known = Contexts(), KnownPeers(default_known_peers())
    file.add("home", HOME)
    file.add("key", Context(trust="any"))
    known.add(ALICE, PLACE, NOW)
    for name in ("alice", "home"):
        known.add(ALICE, name, NOW)
    known.add(type(ALICE)(bytes(32)), "bob", NOW)
    assert resolve_address(PLACE) == (PLACE, None)
    assert resolve_address(PLACE, HOME) == (PLACE, HOME)
    assert resolve_address("@home") == (PLACE, HOME)  # a context goes first
    assert resolve_address("@alice") == (f"{PLACE}#{ALICE}", None)
    for text, sentence in (
        ("@", "ADDR is missing, and no context is selected"),
        ("@key", "cannot connect to the context 'key': it has no address"),
        ("@bob", "has no address of this peer; give ADDR"),
        ("@carol", "cannot find '@carol': it is neither a context nor a peer in "),
    ):
        with pytest.raises(ConfigError, match=sentence):
            resolve_address(text)
    file.use("home")
    assert resolve_address("@") == (PLACE, HOME)
    other = Context(address="unix:///run/other")
    assert resolve_address("@", other) == (other.address, other)
    assert offered(contexts, "") == [("home", PLACE), ("key", "")]
    assert offered(places, "") == [
        ("@home", PLACE),
        ("@key", ""),
        ("@alice", ALICE.short),
        ("@home", ALICE.short),
        (PLACE, ALICE.short),
    ]
    file.path.write_text("broken")
    assert offered(contexts, "") == []


def test_the_auditor_of_a_context(parley: Parley, tmp_path: Path) -> None:
    assert parley("context", "add", "kept", "--auditor", auditor()).code == 0
    # Far enough to want the journal, whose directory is a file here.
    (tmp_path / "file").touch()
    done = parley("serve", "--context", "kept", "--journal", str(tmp_path / "file"))
    assert done.code == 6
    bare = parley("serve", "--journal", str(tmp_path / "file"))
    assert (bare.code, "it has no auditor" in bare.err) == (2, True)
