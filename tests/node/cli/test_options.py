"""The options shared by all commands: resulting settings, and errors before any connection."""

import os
from pathlib import Path
from typing import Any

import pytest

from parley._crypto.errors import UnknownAlgorithmError
from parley._crypto.identity import Identity
from parley._crypto.keyfile import PassphraseCost, save_identity
from parley._crypto.registry import NAMES, PARAMETERS
from parley._crypto.statements import create_revocation
from parley._node.cli.context_file import Context, Contexts
from parley._node.cli.options import NodeOptions
from parley._node.cli.param_types import read_network_key
from parley._node.cli.run import make_node
from parley._node.config import NodeConfig
from parley._node.errors import ConfigError, FileError, KnownPeersError
from parley._node.protocol.limits import Limits
from parley._node.settings import Settings
from parley._node.settings.tables import ServeSettings
from parley._node.trust.key_statements import Offer
from parley._node.trust.policies import AnyPeer, FirstUse, Known
from tests.node.cli.conftest import Parley
from tests.node.tuned import tuned
from tests.sweep import sweep

PLACE = "tcp://127.0.0.1:1"
KEY = bytes(range(32))


def common(**given: Any) -> NodeOptions:
    """The options with these given and all others as they are by default."""
    return NodeOptions(**given)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a temporary home directory for the files of known peers."""
    monkeypatch.setenv("PARLEY_HOME", str(tmp_path))
    return tmp_path


def secret(path: Path, content: bytes) -> Path:
    """A file for its owner only."""
    path.write_bytes(content)
    path.chmod(0o600)
    return path


# Algorithms.


def test_by_default_everything_is_left_to_the_node() -> None:
    config = common().config
    assert dict(config.algorithms) == {}
    assert dict(config.require) == {}
    assert config.role == "peer"
    assert config.resume == 30.0
    assert config.plaintext == "never"
    assert config.network_key is None


@pytest.mark.parametrize("parameter", PARAMETERS)
def test_a_list_is_an_order_of_preference(parameter: str) -> None:
    names = NAMES[parameter]
    backwards = tuple(reversed(names))
    config = common(**{parameter: " , ".join(backwards) + ","}).config
    assert dict(config.algorithms) == {parameter: backwards}
    repeated = common(**{parameter: ",".join((names[0], names[1], names[0]))}).config
    assert dict(repeated.algorithms) == {parameter: names[:2]}


@sweep("parameter", PARAMETERS)
@sweep("name", ["rot13", "AES-256-GCM", "none", "null"])
def test_an_unknown_name_is_refused(parameter: str, name: str) -> None:
    with pytest.raises(UnknownAlgorithmError, match=f"unknown {parameter} '{name}'"):
        common(**{parameter: f"{NAMES[parameter][0]},{name}"}).load()


@sweep("option", [*PARAMETERS, "require"])
@sweep("text", ["", " ", ",,"])
def test_a_list_that_names_nothing_is_no_default(option: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"invalid --{option} {text!r}: the list is empty"):
        common(**{option: text}).load()


def test_require_sorts_names_by_what_they_are() -> None:
    config = common(require="x25519-mlkem768,aes-256-gcm,chacha20-poly1305").config
    assert dict(config.require) == {
        "kex": {"x25519-mlkem768"},
        "cipher": {"aes-256-gcm", "chacha20-poly1305"},
    }
    with pytest.raises(ConfigError, match="invalid --require 'rot13': unknown algorithm"):
        common(require="sha256,rot13").load()


def test_a_floor_that_nothing_meets_is_refused() -> None:
    options = common(kex="x25519", require="x25519-mlkem768")
    with pytest.raises(ConfigError, match="no allowed kex algorithm"):
        options.config.core(options.identity())


def test_a_floor_and_plaintext_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="cannot require x25519-mlkem768 with --plaintext"):
        common(plaintext=True, require="x25519-mlkem768").load()


# Identities.


@pytest.mark.parametrize(
    ("given", "held"),
    [
        ({}, ("ed25519",)),
        ({"signing": "ml-dsa-65,ed25519"}, ("ml-dsa-65", "ed25519")),
        ({"require": "ml-dsa-65"}, ("ml-dsa-65",)),
        ({"require": "ecdsa-p256,ml-dsa-65,sha256"}, ("ml-dsa-65", "ecdsa-p256")),
        ({"signing": "ed25519", "require": "ed25519"}, ("ed25519",)),
    ],
)
def test_a_fresh_identity_holds_what_is_asked_for(
    given: dict[str, str], held: tuple[str, ...]
) -> None:
    options = common(**given, fresh=True)
    identity = options.identity()
    assert identity.algorithms == held
    options.config.core(identity)


def test_a_key_file_is_the_identity(tmp_path: Path) -> None:
    identity = Identity.create()
    save_identity(tmp_path / "key", identity, b"secret", cost=PassphraseCost(1, 8))
    options = common(
        identity_path=tmp_path / "key", passphrase_file=secret(tmp_path / "pass", b"secret\n")
    )
    assert options.identity().node_id == identity.node_id
    with pytest.raises(ConfigError, match="no allowed signing algorithm"):
        common(signing="ml-dsa-65").config.core(options.identity())


# Limits and roles.


@pytest.mark.parametrize("size", [1024, 65536, 64 * 2**20])
def test_max_payload(size: int) -> None:
    assert common(max_payload=size).config.limits.max_payload == size


@pytest.mark.parametrize("size", [-1, 0, 1023, 64 * 2**20 + 1, 2**70])
def test_max_payload_out_of_range(size: int) -> None:
    with pytest.raises(ConfigError, match=r"it must be 1024\.\.67108864; correct --max-payload"):
        common(max_payload=size).load()


def test_a_role_is_one_of_three() -> None:
    identity = Identity.create()
    for role in ("client", "server", "peer"):
        assert common(role=role).config.core(identity).role == role
    with pytest.raises(ConfigError, match="must be one of client, server, peer"):
        common(role="king").config.core(identity)


# Network keys.


@pytest.mark.parametrize(
    "content", [KEY, KEY.hex().encode(), KEY.hex().upper().encode() + b"\n", b"\n" * 32]
)
def test_a_network_key_is_raw_or_hex(tmp_path: Path, content: bytes) -> None:
    key = read_network_key(secret(tmp_path / "key", content))
    assert key == (content if len(content) == 32 else KEY)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"x",
        KEY[:31],
        KEY + b"\n",
        bytes(32),
        b"00" * 32,
        b"zz" * 32,
        b"\xff" * 64,
        b"x" * 9000,
    ],
)
def test_what_is_no_network_key(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(FileError):
        read_network_key(secret(tmp_path / "key", content))


def test_a_network_key_may_come_by_a_pipe() -> None:
    reader, writer = os.pipe()
    os.write(writer, KEY)
    os.close(writer)
    try:
        assert read_network_key(Path(f"/dev/fd/{reader}")) == KEY
    finally:
        os.close(reader)


def test_network_key_and_plaintext_exclude_each_other(tmp_path: Path) -> None:
    options = common(plaintext=True, network_key=secret(tmp_path / "key", KEY))
    with pytest.raises(ConfigError, match="network key"):
        options.config.core(options.identity())


# Trust.


def test_who_is_trusted_by_default() -> None:
    assert isinstance(common().listening_trust(), AnyPeer)
    assert isinstance(common().dialling_trust(PLACE), FirstUse)
    assert isinstance(common(plaintext=True).dialling_trust(PLACE), AnyPeer)


def test_trust_as_asked_for(home: Path) -> None:
    file = home / "friends.txt"
    file.write_text("# nobody yet\n")
    for text, kind in (("any", AnyPeer), ("first-use", FirstUse), ("known", Known)):
        assert isinstance(common(trust=text).listening_trust(), kind)
        assert isinstance(common(trust=text).dialling_trust(PLACE), kind)
    policy = common(trust=str(file)).listening_trust()
    assert isinstance(policy, Known)
    assert policy.known_peers.path == file


def test_a_trust_file_that_is_not_there_is_refused(home: Path) -> None:
    options = common(trust=str(home / "friend.txt"))
    for policy in (options.listening_trust, lambda: options.dialling_trust(PLACE)):
        with pytest.raises(FileError, match="cannot read the known peers in"):
            policy()
    assert isinstance(common(trust="known").listening_trust(), Known)  # empty so far


@pytest.mark.parametrize("content", [b"garbage\n", b"\xff\n", b"a b c\n"])
def test_a_broken_file_is_found_before_anybody_is_met(home: Path, content: bytes) -> None:
    (home / "known_peers").write_bytes(content)
    for trust in ("first-use", "known", str(home / "known_peers")):
        with pytest.raises(KnownPeersError, match="known_peers, line 1"):
            common(trust=trust).listening_trust()
        with pytest.raises(KnownPeersError, match="known_peers, line 1"):
            common(trust=trust).dialling_trust(PLACE)
    # With a node ID in the address, no file is read.
    common().dialling_trust(f"{PLACE}#{Identity.create().node_id}")


@pytest.mark.parametrize("text", ["anyone", "Any", "First-Use", "knwon"])
def test_a_mistyped_policy_is_no_file(text: str) -> None:
    with pytest.raises(ConfigError, match="expected any, first-use, known, or the path"):
        common(trust=text).listening_trust()


# On the command line: each of these fails the same in every command, before it connects.

REFUSED = [
    (["--kex", "rot13"], 2, "unknown kex 'rot13': expected one of x25519-mlkem768, x25519"),
    (["--signing", "rsa"], 2, "unknown signing 'rsa'"),
    (["--hash", "md5"], 2, "unknown hash 'md5'"),
    (["--cipher", "des"], 2, "unknown cipher 'des'"),
    (["--sealing", "wax"], 2, "unknown sealing 'wax'"),
    (["--require", "rot13"], 2, "invalid --require 'rot13': unknown algorithm"),
    (["--require", ""], 2, "invalid --require '': the list is empty"),
    (["--max-payload", "5"], 2, "cannot set node.limits.max_payload to 5: max_payload is 5"),
    (["--role", "king"], 2, "cannot set node.role to 'king'"),
    (["--resume", "601"], 2, "cannot set node.resume to 601.0: expected float <= 600"),
    (["--trust", "anyone"], 2, "invalid trust 'anyone'"),
    (["--trust", "/proc/nonexistent/friends"], 6, "cannot read the known peers in"),
    (["--plaintext", "--trust", "known"], 2, "cannot use trust 'known' with plaintext='only'"),
    (["--plaintext", "--require", "sha256"], 2, "cannot require sha256 with --plaintext"),
    (
        ["--identity", "/proc/nonexistent/key"],
        6,
        "cannot open the key file '/proc/nonexistent/key'",
    ),
    (
        ["--network-key", "/proc/nonexistent/key"],
        6,
        "cannot read '/proc/nonexistent/key': No such file",
    ),
    (["--network-key", "/dev/zero"], 6, "cannot read '/dev/zero': it is longer than"),
    (
        ["--log-level", "loud"],
        2,
        "invalid --log-level 'loud': expected debug, info, warning or error",
    ),
]


@sweep("command", [["serve"], ["call", PLACE, "topic"], ["ping", PLACE]])
@sweep(("options", "code", "sentence"), REFUSED)
def test_a_wrong_option_is_one_sentence(
    parley: Parley, command: list[str], options: list[str], code: int, sentence: str
) -> None:
    done = parley(*command, *options)
    assert done.code == code
    assert done.out == ""
    assert done.err.startswith(f"parley: {sentence}")
    assert done.err.count("\n") == 1


# Settings below the options.


def settings_below(**serve: Any) -> Settings:
    return Settings(
        node=tuned(
            role="server",
            half_open=7,
            network_key=KEY,
            limits=Limits(max_payload=2048, max_streams=3),
            algorithms={"hash": ("sha512",), "kex": ("x25519",)},
            require={"kex": frozenset({"x25519"})},
        ),
        serve=ServeSettings(**serve),
    )


def test_without_options_the_settings_hold() -> None:
    below = settings_below(trust="known")
    options = common().with_settings(below)
    assert options.config == below.node
    assert isinstance(options.listening_trust(), Known)


def test_options_go_before_the_settings(tmp_path: Path) -> None:
    key = secret(tmp_path / "key", KEY[::-1])
    given = common(
        role="client",
        hash="sha256",
        require="aes-256-gcm",
        max_payload=4096,
        network_key=key,
        trust="any",
    )
    options = given.with_settings(given.load(code=settings_below(trust="known")))
    assert options.config == tuned(
        role="client",
        half_open=7,
        network_key=KEY[::-1],
        limits=Limits(max_payload=4096, max_streams=3),
        algorithms={"hash": ("sha256",), "kex": ("x25519",)},
        require={"kex": frozenset({"x25519"}), "cipher": frozenset({"aes-256-gcm"})},
    )
    assert isinstance(options.listening_trust(), AnyPeer)


def test_the_settings_passphrase_is_for_the_settings_key_file(tmp_path: Path) -> None:
    named = tmp_path / "named", tmp_path / "passphrase"
    below = settings_below(identity=named[0], passphrase_file=named[1])
    options = common().with_settings(below)
    assert (options.identity_path, options.passphrase_file) == named
    options = common(identity_path=tmp_path / "mine").with_settings(below)
    assert (options.identity_path, options.passphrase_file) == (tmp_path / "mine", None)


def test_a_fresh_identity_has_the_keys_that_the_settings_ask_for() -> None:
    below = Settings(node=NodeConfig(algorithms={"signing": ("ecdsa-p256",)}))
    assert common(fresh=True).with_settings(below).identity().algorithms == ("ecdsa-p256",)


# Key statements.


def test_commands_use_the_key_statements_of_the_home_directory(home: Path) -> None:
    found = common().statements()
    assert found.path == Path(os.path.realpath(home / "key_statements"))
    assert (found.table.follow, found.present) == (True, True)
    assert found.known_peers is not None
    assert found.known_peers.path == found.path.with_name("known_peers")
    assert make_node(common(fresh=True)).statements.path == found.path


def test_the_ids_in_contexts_are_on_record(home: Path) -> None:
    assert common().watched_ids() == frozenset()
    identities = server, carrier, target = [Identity.create() for _ in range(3)]
    contexts = Contexts()
    for name, address in (
        ("direct", f"tcp://127.0.0.1:1#{server.node_id}"),
        ("via", f"via://127.0.0.1:1/{carrier.node_id}#{target.node_id}"),
        ("unknown", "tcp://127.0.0.1:2"),
        ("none", None),
    ):
        contexts.add(name, Context(address=address))
    assert common().watched_ids() == {one.node_id for one in identities}
    node = make_node(common(fresh=True))
    ends = [create_revocation(one).encoded for one in (*identities, Identity.create())]
    assert [node.connections.offer_statement(one) for one in ends] == [
        *[Offer.STORED] * 3,
        Offer.NOT_ON_RECORD,
    ]
    contexts.path.write_text("nonsense")
    assert common().watched_ids() == frozenset()


def test_a_server_sets_how_it_uses_key_statements() -> None:
    serve = ServeSettings(successions="ask", present_statements=False)
    found = common().with_settings(Settings(serve=serve)).statements()
    assert (found.table.follow, found.present) == (False, False)


def test_without_a_home_directory_key_statements_are_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PARLEY_HOME")

    def fail(path: Path) -> Path:
        raise RuntimeError("no home directory")

    monkeypatch.setattr(Path, "expanduser", fail)
    found = common().statements()
    assert (found.path, found.known_peers) == (None, None)
