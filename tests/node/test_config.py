"""Tests of node/config.py: every setting reaches the core, and invalid values are rejected."""

from dataclasses import FrozenInstanceError
from typing import Any, get_type_hints

import pytest

from parley import Node, NodeConfig
from parley._crypto.identity import Identity
from parley._crypto.registry import NAMES, PARAMETERS
from parley._lbm.padding import PADME, parse_padding
from parley._node.config import STREAM_WINDOW, Tuning
from parley._node.errors import ConfigError
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.config_types import setting_of
from parley._node.protocol.limits import Limits
from tests.node.tuned import tuned
from tests.sweep import sweep

IDENTITY = Identity.create()


def test_the_defaults_are_the_core_s() -> None:
    """Except for the window, which is twice the protocol's default, and resuming, which needs a
    node.
    """
    limits = Limits(stream_window=STREAM_WINDOW)
    assert NodeConfig().core(IDENTITY) == CoreConfig(identity=IDENTITY, limits=limits, resume=30.0)
    assert 2 * Limits().stream_window == STREAM_WINDOW


def test_every_setting_reaches_the_core() -> None:
    settings: dict[str, Any] = {
        "role": "server",
        "algorithms": {"cipher": ("chacha20-poly1305",)},
        "require": {"kex": frozenset({"x25519-mlkem768"})},
        "limits": Limits(max_payload=2048),
        "network_key": bytes(range(32)),
        "deliver": "sealed",
        "padding": parse_padding("padme"),
        "handshake_timeout": 1.0,
        "idle_before_ping": 2.0,
        "ping_timeout": 3.0,
        "rekey_allowance": 4,
    }
    core = tuned(**settings, info={"name": "x"}).core(IDENTITY)
    assert core.node_info == {"name": "x"}
    assert core.algorithms == {**NAMES, **settings.pop("algorithms")}
    for name, value in settings.items():
        assert getattr(core, name) == value
    assert NodeConfig(plaintext="both").core(IDENTITY).plaintext == "both"
    assert NodeConfig(padding="padme").core(IDENTITY).padding == PADME


@sweep(
    "settings",
    [
        {"role": "boss"},
        {"algorithms": {"cipher": ("rot13",)}},
        {"algorithms": {"signing": ("ecdsa-p256",)}},
        {"require": {"hash": frozenset({"md5"})}},
        {"require": {"signing": frozenset({"ml-dsa-65"})}},
        {"network_key": bytes(32)},
        {"network_key": b"short"},
        {"network_key": bytes(31) + b"x", "plaintext": "both"},
        {"info": {"x": "y" * 2000}},
        {"handshake_timeout": 0},
        {"idle_before_ping": -1},
        {"ping_timeout": float("nan")},
        {"rekey_allowance": 0},
    ],
)
def test_a_node_is_not_made_with_a_wrong_setting(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        Node(IDENTITY, config=tuned(**settings))
    assert isinstance(caught.value, ValueError)


@sweep(
    ("settings", "text"),
    [
        ({"half_open": 0}, "half_open"),
        ({"drain_timeout": -0.1}, "drain_timeout is -0.1: expected (int|float) >= 0"),
        ({"max_connections": 0}, "max_connections is 0: expected (int|float) >= 1"),
        ({"connections_per_address": 0}, "connections_per_address"),
        ({"handshakes_per_second": 0}, "handshakes_per_second is 0: expected float > 0"),
        ({"handshakes_per_second": float("inf")}, "expected a finite number"),
        ({"drain_timeout": 10**400}, "number out of range"),
        ({"peer_memory": 65_535}, "peer_memory is 65535: expected (int|float) >= 65536"),
        ({"once_results": 0}, "once_results is 0: expected (int|float) >= 1"),
        (
            {"once_peer_memory": 131_071},
            "once_peer_memory is 131071: expected int >= 131072",
        ),
        ({"once_memory": 131_071}, "once_memory is 131071: expected (int|float) >= 131072"),
        ({"info": {"once": bytes(8)}}, "info has 'once', which the node adds itself"),
        ({"write_buffer": 0}, "write_buffer"),
        (
            {"write_buffer": 16 * 2**20 + 1},
            "write_buffer is 16,777,217; it must be at most half of peer_memory, 33,554,432",
        ),
        (
            {"limits": Limits(max_payload=64 * 2**20)},
            "limits.max_payload is 67,108,864; it must be at most half of peer_memory",
        ),
        ({"accept_timeout": 0.0}, "accept_timeout"),
        ({"resume": 600.5}, r"resume is 600.5: expected float <= 600"),
        ({"resume_buffer": 2**20 - 1}, "resume_buffer is 1048575: expected (int|float) >= 1048576"),
        ({"parted_sessions": -1}, "parted_sessions is -1: expected (int|float) >= 0"),
        ({"parted_per_id": -1}, "parted_per_id"),
        ({"parted_memory": -1}, "parted_memory"),
        ({"accept_timeout": float("nan")}, "accept_timeout"),
        ({"padding": "much"}, "'off', 'padme' or 'bucket:N'"),
        ({"network_key": "x" * 32}, "network_key: expected bytes or None, got str"),
        ({"algorithms": {"kex": "x25519"}}, "algorithms is .*: expected list, got str"),
        ({"algorithms": {"ciphers": ("aes-256-gcm",)}}, "algorithms has no parameter ciphers"),
        ({"require": {"kem": frozenset()}}, "require has no parameter kem"),
    ],
)
def test_settings_are_validated_on_creation(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        tuned(**settings)


def test_settings_do_not_change_and_do_not_show_the_network_key() -> None:
    config = NodeConfig(network_key=b"\x5a" * 32)
    with pytest.raises(FrozenInstanceError):
        config.role = "server"  # type: ignore[misc]  # that is the test
    assert "network_key" not in repr(config)
    assert "ZZZ" not in repr(config)


def test_every_number_has_a_range() -> None:
    for made in (NodeConfig, Tuning):
        for name, hint in get_type_hints(made, include_extras=True).items():
            if hint in (int, float):
                pytest.fail(f"{name} has no range")


def test_budgets_follow_from_the_memory() -> None:
    config = NodeConfig(peer_memory=16 << 20, memory=256 << 20)
    assert (config.write_buffer, config.resume_buffer) == (2 << 20, 2 << 20)
    assert (config.once_peer_memory, config.once_memory) == (4 << 20, 32 << 20)
    assert config.parted_memory == 32 << 20
    usual = NodeConfig()
    assert (usual.write_buffer, usual.resume_buffer) == (4 << 20, 4 << 20)
    assert (usual.once_peer_memory, usual.once_memory) == (8 << 20, 64 << 20)
    assert usual.parted_memory == 64 << 20
    assert usual.core(IDENTITY).resume_buffer == usual.resume_buffer
    small = NodeConfig(peer_memory=64 << 10, memory=1 << 20, limits=Limits(max_payload=1_024))
    assert (small.write_buffer, small.resume_buffer) == (8 << 10, 1 << 20)
    assert (small.once_peer_memory, small.once_memory) == (128 << 10, 128 << 10)


def test_all_settings_are_described() -> None:
    text = NodeConfig.__doc__ or ""
    hints = get_type_hints(NodeConfig, include_extras=True)
    undescribed = {name for name in hints if setting_of(hints[name]) is None and name not in text}
    assert undescribed == set()
    assert set(PARAMETERS) == set(NAMES)
