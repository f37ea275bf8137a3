"""Settings from code, a TOML file and variables: which holds, and every way to be wrong."""

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley import NodeConfig
from parley._crypto.registry import NAMES
from parley._lbm.padding import parse_padding
from parley._node.config import STREAM_WINDOW
from parley._node.dialects.limits import DialectLimits
from parley._node.errors import AddressError, ConfigError
from parley._node.gateways import named
from parley._node.protocol.limits import Limits
from parley._node.settings import BusSettings, Settings, load_settings
from parley._node.settings.catalogue import REMOVED, SETTINGS, TABLES, VARIABLES
from parley._node.settings.tables import (
    FORMATS,
    DialectSettings,
    JournalSettings,
    NamedSettings,
    RelaySettings,
    ServeSettings,
    SimProtoSettings,
    parse_forward,
)
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
    for name in VARIABLES:
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
idle-before-ping = 8
max_connections = 99
limit_loopback = true

[node.limits]
max_payload = 4_096

[node.algorithms]
cipher = ["chacha20-poly1305", "aes-256-gcm"]

[serve]
listen = ["tcp://127.0.0.1:1", "unix:///run/parley"]
identity = "keys/identity"
trust = "friends.txt"
forward = ["a=b=tcp://[::1]:1"]

[dialects]
allow_insecure = true
values = "json"
[dialects.limits]
clients = 7
idle_timeout = 0.5

[simproto]
listen = ["tcp://127.0.0.1:7101"]

[named]
listen = ["unix:///run/named"]
flavour = "typed"
format = "json"

[relay]
listen = ["tcp://0.0.0.0:9000"]
feedback = false

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
        idle_before_ping=8,
        max_connections=99,
        limit_loopback=True,
        limits=Limits(max_payload=4096, stream_window=STREAM_WINDOW),
        algorithms={"cipher": ("chacha20-poly1305", "aes-256-gcm")},
    )
    assert found.serve == ServeSettings(
        listen=("tcp://127.0.0.1:1", "unix:///run/parley"),
        identity=tmp_path / "keys" / "identity",
        trust=str(tmp_path / "friends.txt"),
        forward=("a=b=tcp://[::1]:1",),
    )
    assert found.dialects == DialectSettings(
        allow_insecure=True, values="json", limits=DialectLimits(clients=7, idle_timeout=0.5)
    )
    assert found.simproto == SimProtoSettings(listen=("tcp://127.0.0.1:7101",))
    assert found.named == NamedSettings(
        listen=("unix:///run/named",), flavour="typed", format="json"
    )
    assert found.relay == RelaySettings(listen=("tcp://0.0.0.0:9000",), feedback=False)
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
            "PARLEY_SERVE_LISTEN": "tcp://[::1]:0,unix:///run/parley",
            "PARLEY_SERVE_IDENTITY": "identity",
            "PARLEY_SERVE_PASSPHRASE_FILE": "~/passphrase",
            "PARLEY_SERVE_TRUST": "known",
            "PARLEY_SERVE_FORWARD": "a=tcp://[::1]:1,b=unix:///run/b",
            "PARLEY_SIMPROTO_LISTEN": "tcp://127.0.0.1:1",
            "PARLEY_DIALECTS_ALLOW_INSECURE": "true",
            "PARLEY_NAMED_FORMAT": "raw",
            "PARLEY_DIALECTS_LIMITS_IDLE_TIMEOUT": "0.5",
            "PARLEY_JOURNAL_AUDITORS": f"{AUDITOR}, {AUDITOR}",
            "PARLEY_JOURNAL_DIRECTORY": "~/journal",
            "PARLEY_JOURNAL_SEGMENT_SIZE": "70_000",
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
    )
    assert found.serve == ServeSettings(
        listen=("tcp://[::1]:0", "unix:///run/parley"),
        identity=tmp_path / "identity",
        passphrase_file=Path.home() / "passphrase",
        trust="known",
        forward=("a=tcp://[::1]:1", "b=unix:///run/b"),
    )
    assert found.simproto == SimProtoSettings(listen=("tcp://127.0.0.1:1",))
    assert found.named == NamedSettings(format="raw")
    assert found.dialects == DialectSettings(
        allow_insecure=True, limits=DialectLimits(idle_timeout=0.5)
    )
    assert found.journal == JournalSettings(
        directory=Path.home() / "journal", auditors=(AUDITOR, AUDITOR), segment_size=70_000
    )


def test_what_is_more_at_hand_holds(write: Write) -> None:
    code = Settings(
        node=NodeConfig(
            role="client",
            memory=1 << 20,
            max_connections=1,
            network_key=KEY,
            limits=Limits(max_payload=1024, seal_events=1, max_streams=1),
            algorithms={"hash": ("sha512",), "kex": ("x25519",)},
        ),
        serve=ServeSettings(trust="known", announce_name="a"),
        dialects=DialectSettings(values="json", limits=DialectLimits(clients=1, idle_timeout=1)),
    )
    file = write(
        """
        serve.announce_name = "b"
        dialects.limits.clients = 2
        [node]
        memory = 2_097_152
        max_connections = 2
        limits = { seal_events = 2, max_streams = 2 }
        algorithms = { hash = ["sha256"] }
        """
    )
    environ = {"PARLEY_NODE_MAX_CONNECTIONS": "3", "PARLEY_NODE_LIMITS_MAX_STREAMS": "3"}
    options = {
        "node.limits.max_streams": ("--streams", 4),
        "serve.metrics": ("--metrics", None),
        "serve.listen": ("--listen", ["tcp://127.0.0.1:4"]),
    }
    found = load_settings(file, environ, code=code, options=options)
    assert found.node == NodeConfig(
        role="client",
        memory=2 << 20,
        max_connections=3,
        network_key=KEY,
        limits=Limits(max_payload=1024, seal_events=2, max_streams=4),
        algorithms={"hash": ("sha256",), "kex": ("x25519",)},
    )
    assert found.serve == ServeSettings(
        trust="known", announce_name="b", listen=("tcp://127.0.0.1:4",)
    )
    assert found.dialects == DialectSettings(
        values="json", limits=DialectLimits(clients=2, idle_timeout=1)
    )
    assert load_settings(environ=NOTHING, code=code) == code


# Every error names the setting, its value, its source and what to do.


WRONG: list[tuple[str, object, str]] = [
    ("node.role", "boss", "role is 'boss'; it must be one of client, server, peer"),
    ("node.role", "", ""),
    ("node.plaintext", "yes", "expected never or only or both"),
    ("node.deliver", "late", "expected opened or sealed"),
    ("node.padding", "much", "'bucket:N' with N in 1..67108864"),
    ("node.max_connections", 0, "expected int >= 1"),
    ("node.max_connections", 1.5, "expected int, got float"),
    ("node.max_connections", True, "expected int, got bool"),
    ("node.max_connections", "many", "expected int, got str"),
    ("node.idle_before_ping", 0, "expected float > 0"),
    ("node.idle_before_ping", "soon", "expected float, got str"),
    ("node.handshakes_per_second", float("inf"), "expected a finite number"),
    ("node.drain_timeout", float("nan"), "expected float >= 0"),
    ("node.limit_loopback", 1, "expected bool, got int"),
    ("node.limit_loopback", "yes", "expected bool, got str"),
    ("node.peer_memory", 70_000, "it must be at most half of peer_memory, 70,000"),
    ("node.limits.max_payload", 1023, "max_payload is 1023; it must be 1024..67108864"),
    ("node.limits.max_payload", "big", "max_payload is big; it must be 1024..67108864"),
    ("node.algorithms.kex", ["rot13"], "unknown kex 'rot13'"),
    ("node.algorithms.signing", ["rot13"], "unknown signing 'rot13'"),
    ("node.algorithms.kex", [], ""),
    ("node.network_key_file", "/nowhere", "cannot read '/nowhere': No such file or directory"),
    ("node.info", "x", "expected mapping, got str"),
    ("serve.listen", ["http://x"], "expected tcp://, unix:// or via://"),
    ("serve.listen", [], ""),
    ("serve.trust", "anyone", "invalid trust 'anyone'"),
    ("serve.successions", "never", "expected follow or ask"),
    ("serve.present_statements", "yes", "expected bool, got str"),
    ("serve.forward", ["news"], "invalid forward 'news': expected TOPIC=ADDR"),
    ("serve.forward", ["news=tcp://x"], "tcp"),
    ("dialects.values", "xml", "expected cbor or msgpack or json"),
    ("dialects.allow_insecure", 1, "expected bool, got int"),
    ("dialects.limits.clients", 0, "expected int >= 1"),
    ("dialects.limits.clients", "few", "expected int, got str"),
    ("dialects.limits.idle_timeout", 0, "expected float >= 0.001"),
    ("dialects.limits.idle_timeout", float("inf"), "expected float <= 31536000"),
    ("dialects.limits.longest_frame", 63, "expected int >= 64"),
    ("simproto.listen", ["x"], "expected tcp://, unix:// or via://"),
    ("named.flavour", "new", "expected plain or typed"),
    ("named.format", "lbm", "expected msgpack or json or raw"),
    ("journal.directory", "", ""),
    ("journal.auditors", ["parley-auditor-me"], "expected parley-auditor-"),
    ("journal.auditors", [AUDITOR.upper()], "expected parley-auditor-"),
    ("journal.segment_size", 65_535, "expected int >= 65536"),
    ("journal.segment_size", "all", "expected int, got str"),
    ("journal.fsync", "often", "expected always or interval or never"),
    ("journal.on_failure", "cry", "expected alarm or stop"),
    ("node.role", "x" * 1000, "xxx"),
]


def as_toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value)


def test_a_wrong_value_in_a_file(write: Write) -> None:
    for path, value, text in WRONG:
        table, _, name = path.rpartition(".")
        file = write(f"[{table}]\n{name} = {as_toml(value)}\n")
        with pytest.raises(ConfigError) as caught:
            load_settings(file, NOTHING)
        said = str(caught.value)
        assert said.startswith(f"cannot set {path} to "), path
        assert text in said, path
        assert said.endswith(f"; correct {file}"), path


def test_a_wrong_value_in_a_variable() -> None:
    for path, value, text in WRONG:
        name = SETTINGS[path].variable
        plain = ",".join(value) if isinstance(value, list) else as_toml(value).strip("'")
        with pytest.raises(ConfigError) as caught:
            load_settings(environ={name: plain})
        said = str(caught.value)
        if not plain:
            assert said == f"cannot set {path}: {name} is empty; unset it"
            continue
        assert said.startswith(f"cannot set {path} to "), path
        assert text in said, path
        assert said.endswith(f"; correct {name}"), path


def test_a_wrong_value_in_an_option() -> None:
    for path, value, text in WRONG:
        with pytest.raises(ConfigError) as caught:
            load_settings(environ=NOTHING, options={path: ("--option", value)})
        assert text in str(caught.value), path
        assert str(caught.value).endswith("; correct --option"), path


def test_values_that_are_wrong_together_are_all_named(write: Write) -> None:
    file = write("[node]\nlimits = { max_payload = 2_000_000 }\nmax_connections = 9\n")
    with pytest.raises(ConfigError) as caught:
        load_settings(file, {"PARLEY_NODE_PEER_MEMORY": "3_000_000"})
    assert str(caught.value) == (
        "cannot use these settings together: limits.max_payload is 2,000,000; it must be at most "
        f"half of peer_memory, 3,000,000; correct node.limits.max_payload in {file}, "
        "node.peer_memory in PARLEY_NODE_PEER_MEMORY"
    )


def test_a_value_that_needs_another_one_is_not_the_cause_of_an_error(write: Write) -> None:
    file = write(
        "[node]\nlimits.max_payload = 67_108_864\npeer_memory = 268_435_456\nresume = -1\n"
    )
    with pytest.raises(ConfigError, match=r"^cannot set node\.resume to -1: expected float >= 0"):
        load_settings(file, NOTHING)


def test_a_number_in_quotes_is_none(write: Write) -> None:
    with pytest.raises(ConfigError, match="to '5': expected int, got str"):
        load_settings(write('node.max_connections = "5"'), NOTHING)


def test_settings_of_earlier_versions_are_explained(write: Write) -> None:
    for name, hint in REMOVED.items():
        with pytest.raises(ConfigError) as caught:
            load_settings(file := write(f"{name} = 1"), NOTHING)
        assert str(caught.value) == f"cannot set {name} in {file}: {hint}"
        variable = "PARLEY_" + name.upper().replace(".", "_")
        with pytest.raises(ConfigError) as caught:
            load_settings(environ={variable: "1"})
        assert str(caught.value) == f"cannot use the variable {variable}: {hint}"
    assert not SETTINGS.keys() & REMOVED.keys()
    # The replacements exist.
    named = {name for hint in REMOVED.values() for name in re.findall(r"[a-z]+\.[a-z_.]+\w", hint)}
    assert named <= SETTINGS.keys() | TABLES.keys()
    assert {"node.memory", "node.peer_memory", "dialects.limits.clients"} <= named


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
        ("[node]\nroll = 1", r"unknown setting 'node\.roll' in .* \(did you mean node\.role\?\)"),
        ("[dialects.limits]\nclient = 1", r"did you mean dialects\.limits\.clients\?"),
        ("[nodes]\nx = 1", r"unknown setting 'nodes\.x'"),
        ("x = 1", r"unknown setting 'x' in"),
        ("[node.limits]\nmax_payloads = 1", r"did you mean node\.limits\.max_payload\?"),
        ("[node.algorithms]\nciphers = ['x']", r"did you mean node\.algorithms\.cipher\?"),
        ("node = 5", r"cannot set node in .*: it is a table; write \[node\]"),
        ("node.limits = 5", r"cannot set node\.limits in .*: it is a table"),
        ("node.role.x = 5", r"cannot set node\.role to \{'x': 5\}: expected str, got mapping"),
        ("node.info = {a = 1979-05-27}", r"cannot set node\.info to .*cannot encode a value"),
        ("node.info = {a = 'b'", "cannot read the settings"),
        ("\x00", "cannot read the settings"),
        ("x = " + "[" * 5_000, "cannot read the settings"),
        ("node.network_key_file = 3", "cannot set node.network_key_file to 3: expected the path"),
        ("node.network_key_file = '~parley-nobody/k'", "cannot read .*/~parley-nobody/k': No such"),
    ],
)
def test_other_mistakes_in_a_file(write: Write, toml: str, text: str) -> None:
    file = write(toml)
    with pytest.raises(ConfigError, match=text) as caught:
        load_settings(file, NOTHING)
    assert str(file) in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"cannot read the settings in .*none\.toml': the file does not exist"
    ):
        load_settings(tmp_path / "none.toml", NOTHING)
    with pytest.raises(ConfigError, match=r"cannot read the settings in .*: Is a directory"):
        load_settings(tmp_path, NOTHING)
    binary = tmp_path / "binary!.toml"
    binary.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"cannot read the settings in .*binary!\.toml': 'utf-8'"):
        load_settings(binary, NOTHING)


@pytest.mark.parametrize("name", ["PARLEY_NODE_X", "PARLEY_SERVE_LISTENS", "PARLEY_RELAY_X"])
def test_a_variable_that_is_no_setting(name: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown setting '{name}'"):
        load_settings(environ={name: "1"})


def test_settings_that_do_not_go_together_are_the_node_s_to_find(write: Write) -> None:
    found = load_settings(write('node = { plaintext = "both", padding = "padme" }'), NOTHING)
    assert found.node.plaintext == "both"


@given(
    st.dictionaries(
        st.sampled_from([*VARIABLES, "PARLEY_NODE_X", "PARLEY_HOME"]),
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


def test_every_setting_has_its_variable() -> None:
    variables = [setting.variable for setting in SETTINGS.values()]
    assert len(set(variables)) == len(SETTINGS) <= 68
    assert SETTINGS["node.limits.max_payload"].variable == "PARLEY_NODE_LIMITS_MAX_PAYLOAD"
    assert {f"node.algorithms.{name}" for name in NAMES} < SETTINGS.keys()


def test_every_field_of_a_table_is_a_setting() -> None:
    of_code = {
        *(f"node.{name}" for name in ("network_key", "limits", "algorithms", "require", "tuning")),
        "dialects.limits",
        *(f"dialects.limits.{field.name}" for field in fields(DialectLimits)[5:]),
    }
    named = {f"{table}.{field.name}" for table, made in TABLES.items() for field in fields(made)}
    assert named - SETTINGS.keys() == of_code


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"listen": ()}, ConfigError),
        ({"listen": ("x",)}, AddressError),
        ({"trust": "x"}, ConfigError),
        ({"forward": ("=tcp://[::1]:1",)}, ConfigError),
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


@pytest.mark.parametrize(
    ("value", "found"),
    [("['redis://:hunter2@h']", "list"), ("{a = 'redis://:hunter2@h'}", "mapping")],
)
def test_no_error_quotes_an_address_that_may_hold_a_password(
    write: Write, value: str, found: str
) -> None:
    file = write(f"[bus]\nurl = {value}\n")
    with pytest.raises(ConfigError) as caught:
        load_settings(file, NOTHING)
    assert (
        str(caught.value)
        == f"cannot set bus.url: expected str or None, got {found}; correct {file}"
    )
    with pytest.raises(ConfigError, match=r"^url: expected str or None, got bytes$"):
        BusSettings(url=value.encode())  # type: ignore[arg-type]  # that is the test
    assert "hunter2" not in repr(BusSettings(url=value))
