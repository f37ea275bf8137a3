"""Settings from code, a TOML file and variables: which holds, and every way to be wrong."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley import NodeConfig
from parley._crypto.registry import NAMES
from parley._lbm.noise import parse_padding
from parley._node.config import STREAM_WINDOW
from parley._node.dialects.limits import NamedLimits, RelayLimits, SimProtoLimits
from parley._node.errors import AddressError, ConfigError
from parley._node.gateways.named import peer as named
from parley._node.protocol.limits import Limits
from parley._node.settings import BusSettings, FederationSettings, Settings, load_settings
from parley._node.settings.dialects import FORMATS, NamedSettings, RelaySettings, SimProtoSettings
from parley._node.settings.journal import JournalSettings
from parley._node.settings.serve import ServeSettings, parse_forward
from parley._node.settings.sources import variables
from parley._node.settings.values import kind_of
from tests.sweep import sweep

KEY = bytes(range(32))
NOTHING: Mapping[str, str] = {}
Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file of settings."""

    def write(text: str) -> Path:
        path = tmp_path / "parley.toml"
        path.write_text(text)
        return path

    return write


def test_nothing_said_is_the_defaults(monkeypatch: pytest.MonkeyPatch, write: Write) -> None:
    assert load_settings(environ=NOTHING) == load_settings(write(""), NOTHING) == Settings()
    for name in variables().values():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PARLEY_HOME", "/proc/nowhere")
    assert load_settings() == Settings()
    monkeypatch.setenv("PARLEY_NODE_ROLE", "server")
    assert load_settings() == Settings(node=NodeConfig(role="server"))


FILE = """
[node]
role = "server"
network_key_file = "network.key"
plaintext = "never"
deliver = "sealed"
padding = "bucket:64"
info = { name = "hub", tags = ["a", 1, true] }
handshake_timeout = 7.5
idle-before-ping = 8
max_connections = 99
limit_loopback = true

[node.limits]
max_payload = 4_096

[node.algorithms]
cipher = ["chacha20-poly1305", "aes-256-gcm"]

[node.require]
kex = ["x25519-mlkem768"]

[serve]
listen = ["tcp://127.0.0.1:1", "unix:///run/parley"]
identity = "keys/identity"
trust = "friends.txt"
clock_interval = 0.5
forward = ["a=b=tcp://[::1]:1"]

[simproto]
listen = ["tcp://127.0.0.1:7101"]
values = "json"
[simproto.limits]
dialogs = 3
ping_timeout = 1

[named]
listen = ["unix:///run/named"]
flavour = "typed"
format = "json"
limits.idle_timeout = 0.5

[relay]
listen = ["tcp://0.0.0.0:9000"]
allow_insecure = true
feedback = false
values = "msgpack"
limits = { clients = 7 }

[journal]
directory = "journals"
auditors = ["parley-auditor-r5amllnwr4swesxfwikou5t2n3eu3au5hv5v4gwrxjxt4ijyfbpq"]
segment_size = 65_536
fsync = "always"
"""

AUDITOR = "parley-auditor-r5amllnwr4swesxfwikou5t2n3eu3au5hv5v4gwrxjxt4ijyfbpq"


def test_a_file(tmp_path: Path, write: Write) -> None:
    (tmp_path / "network.key").write_bytes(KEY)
    (tmp_path / "network.key").chmod(0o600)
    found = load_settings(write(FILE), NOTHING)
    assert found.node == NodeConfig(
        role="server",
        network_key=KEY,
        deliver="sealed",
        padding=parse_padding("bucket:64"),
        info={"name": "hub", "tags": ["a", 1, True]},
        handshake_timeout=7.5,
        idle_before_ping=8,
        max_connections=99,
        limit_loopback=True,
        limits=Limits(max_payload=4096, stream_window=STREAM_WINDOW),
        algorithms={"cipher": ("chacha20-poly1305", "aes-256-gcm")},
        require={"kex": frozenset({"x25519-mlkem768"})},
    )
    assert found.serve == ServeSettings(
        listen=("tcp://127.0.0.1:1", "unix:///run/parley"),
        identity=tmp_path / "keys" / "identity",
        trust=str(tmp_path / "friends.txt"),
        clock_interval=0.5,
        forward=("a=b=tcp://[::1]:1",),
    )
    assert found.simproto == SimProtoSettings(
        listen=("tcp://127.0.0.1:7101",),
        values="json",
        limits=SimProtoLimits(dialogs=3, ping_timeout=1),
    )
    assert found.named == NamedSettings(
        listen=("unix:///run/named",),
        flavour="typed",
        format="json",
        limits=NamedLimits(idle_timeout=0.5),
    )
    assert found.relay == RelaySettings(
        listen=("tcp://0.0.0.0:9000",),
        allow_insecure=True,
        feedback=False,
        values="msgpack",
        limits=RelayLimits(clients=7),
    )
    assert found.journal == JournalSettings(
        directory=tmp_path / "journals",
        auditors=(AUDITOR,),
        segment_size=65_536,
        fsync="always",
    )
    assert [key.text for key in found.journal.keys] == [AUDITOR]


def test_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = load_settings(
        environ={
            "PARLEY_NODE_ROLE": "client",
            "PARLEY_NODE_INFO": '{name = "hub"}',
            "PARLEY_NODE_DRAIN_TIMEOUT": "0",
            "PARLEY_NODE_LIMIT_LOOPBACK": "true",
            "PARLEY_NODE_LIMITS_MAX_STREAMS": " 0 ",
            "PARLEY_NODE_ALGORITHMS_KEX": "x25519, x25519-mlkem768",
            "PARLEY_NODE_REQUIRE_HASH": "sha256",
            "PARLEY_SERVE_LISTEN": "tcp://[::1]:0,unix:///run/parley",
            "PARLEY_SERVE_IDENTITY": "identity",
            "PARLEY_SERVE_PASSPHRASE_FILE": "~/passphrase",
            "PARLEY_SERVE_TRUST": "known",
            "PARLEY_SERVE_FORWARD": "a=tcp://[::1]:1,b=unix:///run/b",
            "PARLEY_SIMPROTO_LISTEN": "tcp://127.0.0.1:1",
            "PARLEY_NAMED_ALLOW_INSECURE": "true",
            "PARLEY_NAMED_LIMITS_EVENTS": "5",
            "PARLEY_RELAY_LIMITS_UUID_TIMEOUT": "0.5",
            "PARLEY_JOURNAL_AUDITORS": f"{AUDITOR}, {AUDITOR}",
            "PARLEY_JOURNAL_DIRECTORY": "~/journal",
            "PARLEY_JOURNAL_FSYNC_INTERVAL": "0.5",
            "PARLEY_HOME": "/elsewhere",
            "PARLEY": "no setting",
            "NODE_ROLE": "another's",
        }
    )
    assert found.node == NodeConfig(
        role="client",
        info={"name": "hub"},
        drain_timeout=0,
        limit_loopback=True,
        limits=Limits(max_streams=0, stream_window=STREAM_WINDOW),
        algorithms={"kex": ("x25519", "x25519-mlkem768")},
        require={"hash": frozenset({"sha256"})},
    )
    assert found.serve == ServeSettings(
        listen=("tcp://[::1]:0", "unix:///run/parley"),
        identity=tmp_path / "identity",
        passphrase_file=Path.home() / "passphrase",
        trust="known",
        forward=("a=tcp://[::1]:1", "b=unix:///run/b"),
    )
    assert found.simproto == SimProtoSettings(listen=("tcp://127.0.0.1:1",))
    assert found.named == NamedSettings(allow_insecure=True, limits=NamedLimits(events=5))
    assert found.relay == RelaySettings(limits=RelayLimits(uuid_timeout=0.5))
    assert found.journal == JournalSettings(
        directory=Path.home() / "journal", auditors=(AUDITOR, AUDITOR), fsync_interval=0.5
    )


def test_what_is_more_at_hand_holds(write: Write) -> None:
    code = Settings(
        node=NodeConfig(
            role="client",
            half_open=1,
            max_connections=1,
            network_key=KEY,
            limits=Limits(max_payload=1024, seal_events=1, max_streams=1),
            algorithms={"hash": ("sha512",), "kex": ("x25519",)},
        ),
        serve=ServeSettings(trust="known", clock_interval=9),
        relay=RelaySettings(feedback=False, limits=RelayLimits(clients=1, uuid_timeout=1)),
    )
    file = write(
        """
        serve.clock_interval = 2
        relay.limits.clients = 2
        [node]
        half_open = 2
        max_connections = 2
        limits = { seal_events = 2, max_streams = 2 }
        algorithms = { hash = ["sha256"] }
        """
    )
    environ = {"PARLEY_NODE_MAX_CONNECTIONS": "3", "PARLEY_NODE_LIMITS_MAX_STREAMS": "3"}
    found = load_settings(file, environ, code=code)
    assert found.node == NodeConfig(
        role="client",
        half_open=2,
        max_connections=3,
        network_key=KEY,
        limits=Limits(max_payload=1024, seal_events=2, max_streams=3),
        algorithms={"hash": ("sha256",), "kex": ("x25519",)},
    )
    assert found.serve == ServeSettings(trust="known", clock_interval=2)
    assert found.relay == RelaySettings(
        feedback=False, limits=RelayLimits(clients=2, uuid_timeout=1)
    )
    assert load_settings(environ=NOTHING, code=code) == code


# Whatever is wrong is said with its place and with what is allowed.


WRONG: list[tuple[str, object, str]] = [
    ("node.role", "boss", "role is 'boss'; it must be one of client, server, peer"),
    ("node.role", 1, "1 is not text"),
    ("node.role", "", "'' is not text"),
    ("node.plaintext", "yes", "it must be one of never, only, both"),
    ("node.deliver", "late", "it must be one of opened, sealed"),
    ("node.padding", "much", "'bucket:N' with N in 1..67108864"),
    ("node.half_open", 0, "half_open is 0; it must be 1 or more"),
    ("node.half_open", 1.5, "1.5 is not a whole number, 1 or more"),
    ("node.half_open", True, "is not a whole number, 1 or more"),
    ("node.half_open", "many", "'many' is not a whole number, 1 or more"),
    ("node.handshake_timeout", 0, "it must be above 0"),
    ("node.handshake_timeout", "soon", "'soon' is not a number, above 0"),
    ("node.handshakes_per_second", float("inf"), "it must be a finite number"),
    ("node.accept_timeout", float("nan"), "it must be a finite number"),
    ("node.limit_loopback", 1, "is not true or false"),
    ("node.limit_loopback", "yes", "'yes' is not true or false"),
    ("node.limits.max_payload", 1023, "max_payload is 1023; it must be 1024..67108864"),
    ("node.limits.max_payload", "big", "'big' is not a whole number, 1,024..67,108,864"),
    ("node.algorithms.kex", ["rot13"], "there is no kex 'rot13'"),
    ("node.algorithms.kex", [], "is not a list of texts"),
    ("node.require.cipher", ["aes"], "there is no cipher 'aes'"),
    (
        "node.network_key_file",
        "/proc/nowhere",
        "cannot read /proc/nowhere: No such file or directory",
    ),
    ("node.info", "x", "'x' is not a table"),
    ("serve.listen", ["http://x"], "it must start with tcp://, unix:// or via://"),
    ("serve.listen", [], "is not a list of texts"),
    ("serve.trust", "anyone", "trust is any, first-use, known"),
    ("serve.clock_interval", 0, "it must be 0.001 or more"),
    ("serve.clock_interval", "often", "'often' is not a number, 0.001 or more"),
    ("serve.forward", ["news"], "'news' is not TOPIC=ADDR"),
    ("serve.forward", ["news=tcp://x"], "tcp"),
    ("simproto.listen", ["x"], "it must start with tcp://, unix:// or via://"),
    ("simproto.values", "xml", "values is 'xml'; it must be one of cbor, msgpack, json"),
    ("simproto.limits.dialogs", 0, "dialogs is 0; it is a whole number from 1 to 1,048,576"),
    ("simproto.limits.dialogs", "few", "'few' is not a whole number, 1..1,048,576"),
    ("named.flavour", "new", "flavour is 'new'; it must be one of plain, typed"),
    ("named.format", "lbm", "format is 'lbm'; it must be one of msgpack, json, raw"),
    ("named.limits.idle_timeout", 0, "idle_timeout is 0"),
    ("relay.allow_insecure", 1, "is not true or false"),
    ("relay.limits.uuid_timeout", float("inf"), "uuid_timeout is inf; it is a number from"),
    ("relay.limits.longest_frame", 63, "longest_frame is 63"),
    ("journal.directory", "", "'' is not text"),
    ("journal.auditors", ["parley-auditor-me"], "begins with parley-auditor-"),
    ("journal.auditors", [AUDITOR.upper()], "it begins with"),
    ("journal.segment_size", 65_535, "segment_size is 65,535; it must be 65,536 or more"),
    ("journal.segment_age", 0.5, "segment_age is 0.5; it must be 1 or more"),
    ("journal.buffer_size", "all", "'all' is not a whole number, 65,536 or more"),
    ("journal.buffer_size", 65_535, "buffer_size is 65,535"),
    ("journal.fsync", "often", "fsync is 'often'; it must be one of always, interval, never"),
    ("journal.fsync_interval", 0, "it must be 0.01 or more"),
    ("journal.on_failure", "cry", "on_failure is 'cry'; it must be one of alarm, stop"),
    ("node.role", "x" * 1000, "xxx"),
]


def as_toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value)


@sweep(("path", "value", "text"), WRONG)
def test_a_wrong_value_in_a_file(write: Write, path: str, value: object, text: str) -> None:
    table, _, name = path.rpartition(".")
    file = write(f"[{table}]\n{name} = {as_toml(value)}\n")
    with pytest.raises(ConfigError) as caught:
        load_settings(file, NOTHING)
    assert str(caught.value).startswith(f"{file}, {path}: ")
    assert text in str(caught.value)


@sweep(("path", "value", "text"), WRONG)
def test_a_wrong_value_in_a_variable(path: str, value: object, text: str) -> None:
    if path == "node.role" and value == 1:
        text = "it must be one of"  # every variable is text
    name = variables()[path]
    plain = ",".join(value) if isinstance(value, list) else as_toml(value).strip("'")
    if value is True:
        text = "'true' is not a whole number, 1 or more"
    if value == 1.5:
        text = "'1.5' is not a whole number, 1 or more"
    with pytest.raises(ConfigError) as caught:
        load_settings(environ={name: plain})
    assert str(caught.value).startswith(f"{name}: ")
    assert text in str(caught.value)


def test_a_number_in_quotes_is_none(write: Write) -> None:
    with pytest.raises(ConfigError, match="'5' is not a whole number"):
        load_settings(write('node.half_open = "5"'), NOTHING)


def test_a_network_key_stands_in_a_file_of_its_own(write: Write) -> None:
    secret = "00" * 31 + "01"
    with pytest.raises(ConfigError, match=r"did you mean node\.network_key_file") as caught:
        load_settings(write(f'node.network_key = "{secret}"'), NOTHING)
    assert secret not in str(caught.value)
    with pytest.raises(ConfigError, match="did you mean PARLEY_NODE_NETWORK_KEY_FILE") as caught:
        load_settings(environ={"PARLEY_NODE_NETWORK_KEY": secret})
    assert secret not in str(caught.value)


@sweep(
    ("toml", "text"),
    [
        ("[node]\nroll = 1", r"there is no setting node\.roll \(did you mean node\.role\?\)"),
        ("[relay.limits]\nclient = 1", r"did you mean relay\.limits\.clients\?"),
        ("[nodes]\nx = 1", r"there is no setting nodes\.x"),
        ("x = 1", r"there is no setting x$"),
        ("[node.limits]\nmax_payloads = 1", r"did you mean node\.limits\.max_payload\?"),
        ("[node.algorithms]\nciphers = ['x']", r"did you mean node\.algorithms\.cipher\?"),
        ("node = 5", "node must be a table"),
        ("node.limits = 5", r"node\.limits must be a table"),
        ("node.role.x = 5", r"node\.role: .* is not text"),
        ("node.info = {a = 1979-05-27}", r"node\.info: .*has no encoding"),
        ("node.info = {a = 'b'", "cannot read the settings"),
        ("\x00", "cannot read the settings"),
    ],
)
def test_other_mistakes_in_a_file(write: Write, toml: str, text: str) -> None:
    file = write(toml)
    with pytest.raises(ConfigError, match=text) as caught:
        load_settings(file, NOTHING)
    assert str(file) in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the settings file .*none\.toml does not exist"):
        load_settings(tmp_path / "none.toml", NOTHING)
    with pytest.raises(ConfigError, match=r"cannot read the settings in .*: Is a directory"):
        load_settings(tmp_path, NOTHING)
    binary = tmp_path / "binary!.toml"
    binary.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"cannot read the settings in .*binary!\.toml: 'utf-8'"):
        load_settings(binary, NOTHING)


@pytest.mark.parametrize("name", ["PARLEY_NODE_X", "PARLEY_SERVE_LISTENS", "PARLEY_RELAY_LIMITS"])
def test_a_variable_that_is_no_setting(name: str) -> None:
    with pytest.raises(ConfigError, match=f"there is no setting {name}"):
        load_settings(environ={name: "1"})


def test_settings_that_do_not_go_together_are_the_node_s_to_find(write: Write) -> None:
    found = load_settings(write('node = { plaintext = "both", padding = "padme" }'), NOTHING)
    assert found.node.plaintext == "both"


@given(
    st.dictionaries(
        st.sampled_from([*variables().values(), "PARLEY_NODE_X", "PARLEY_HOME"]),
        st.text(alphabet=st.characters(exclude_characters="\0"), max_size=12),
        max_size=3,
    )
)
def test_whatever_variables_say_there_is_one_kind_of_error(environ: dict[str, str]) -> None:
    said = ""
    try:
        load_settings(environ=environ)
    except ConfigError as error:
        said = str(error)
    assert not said or any(name in said for name in environ)
    assert said or "PARLEY_NODE_X" not in environ


# The names.


def test_every_field_has_its_name_and_variable() -> None:
    named = set(variables())
    expected = {f"node.{field.name}" for field in fields(NodeConfig)}
    expected -= {"node.network_key", "node.limits", "node.algorithms", "node.require"}
    expected |= {"node.network_key_file"}
    expected |= {f"node.limits.{field.name}" for field in fields(Limits)}
    expected |= {f"node.{t}.{name}" for t in ("algorithms", "require") for name in NAMES}
    expected |= {f"serve.{field.name}" for field in fields(ServeSettings)}
    expected |= {f"journal.{field.name}" for field in fields(JournalSettings)}
    expected |= {f"bus.{field.name}" for field in fields(BusSettings)}
    expected |= {f"federation.{field.name}" for field in fields(FederationSettings)}
    for table, settings in (
        ("simproto", SimProtoSettings()),
        ("named", NamedSettings()),
        ("relay", RelaySettings()),
    ):
        expected |= {f"{table}.{field.name}" for field in fields(settings)}
        expected -= {f"{table}.limits"}
        expected |= {f"{table}.limits.{field.name}" for field in fields(settings.limits)}
    assert named == expected
    assert len(set(variables().values())) == len(named)
    assert variables()["node.limits.max_payload"] == "PARLEY_NODE_LIMITS_MAX_PAYLOAD"


def test_a_type_that_has_no_kind_is_found_when_it_is_written() -> None:
    with pytest.raises(KeyError):
        kind_of(bytes)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"listen": ()}, ConfigError),
        ({"listen": ("x",)}, AddressError),
        ({"trust": "x"}, ConfigError),
        ({"clock_interval": -1}, ConfigError),
        ({"forward": ("=tcp://[::1]:1",)}, ConfigError),
        ({"clock_interval": float("nan")}, ConfigError),
        ({"clock_interval": float("inf")}, ConfigError),
    ],
)
def test_serve_settings_are_checked_when_made(
    wrong: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        ServeSettings(**wrong)


@pytest.mark.parametrize(
    ("text", "topic", "address"),
    [
        ("news=tcp://h:1", "news", "tcp://h:1"),
        ("a=b=unix:///x=tcp://y", "a=b", "unix:///x=tcp://y"),
        ("a\nb=tcp://h:1", "a\nb", "tcp://h:1"),
    ],
)
def test_a_topic_to_forward(text: str, topic: str, address: str) -> None:
    assert parse_forward(text) == (topic, address)


def test_formats_are_those_of_the_gateway() -> None:
    assert named.FORMATS == FORMATS


@pytest.mark.parametrize("value", ["['redis://:hunter2@h']", "{a = 'redis://:hunter2@h'}"])
def test_no_error_quotes_an_address_that_may_hold_a_password(write: Write, value: str) -> None:
    file = write(f"[bus]\nurl = {value}\n")
    with pytest.raises(ConfigError) as caught:
        load_settings(file, NOTHING)
    assert str(caught.value) == f"{file}, bus.url: it is not text"
    with pytest.raises(ConfigError, match=r"^url is of another type; it must be text or None$"):
        BusSettings(url=value.encode())  # type: ignore[arg-type]  # that is the test
    assert "hunter2" not in repr(BusSettings(url=value))
