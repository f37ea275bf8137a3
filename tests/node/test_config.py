"""Tests of node/config.py: every setting reaches the core, and no wrong one does."""

from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from parley import Node, NodeConfig
from parley._crypto.identity import Identity
from parley._crypto.registry import NAMES, PARAMETERS
from parley._lbm.noise import PADME, parse_padding
from parley._node.config import RANGES, STREAM_WINDOW
from parley._node.errors import ConfigError
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.limits import Limits
from tests.sweep import sweep

IDENTITY = Identity.create()


def test_the_defaults_are_the_core_s() -> None:
    """But for the window, which is twice the protocol's, and resuming, which needs a shell."""
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
    core = NodeConfig(**settings, info={"name": "x"}).core(IDENTITY)
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
        Node(IDENTITY, config=NodeConfig(**settings))
    assert isinstance(caught.value, ValueError)


@sweep(
    ("settings", "text"),
    [
        ({"half_open": 0}, "half_open"),
        ({"drain_timeout": -0.1}, "drain_timeout is -0.1; it must be 0 or more"),
        ({"max_connections": 0}, "max_connections is 0; it must be 1 or more"),
        ({"connections_per_address": 0}, "connections_per_address"),
        ({"handshakes_per_second": 0}, "handshakes_per_second is 0; it must be above 0"),
        ({"handshakes_per_second": float("inf")}, "must be a finite number"),
        ({"drain_timeout": 10**400}, "must be a finite number"),
        ({"peer_memory": 65_535}, "peer_memory is 65,535; it must be 65,536 or more"),
        ({"once_results": 0}, "once_results is 0; it must be 1 or more"),
        ({"once_peer_memory": 131_071}, "once_peer_memory is 131,071; it must be 131,072 or more"),
        ({"once_memory": 131_071}, "once_memory is 131,071; it must be 131,072 or more"),
        ({"info": {"once": bytes(8)}}, "info has 'once', which a node says by itself"),
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
        ({"resume": 600.5}, r"resume is 600.5; it must be 0\.\.600"),
        ({"resume_buffer": 2**20 - 1}, "resume_buffer is 1,048,575; it must be 1,048,576 or more"),
        ({"parted_sessions": -1}, "parted_sessions is -1; it must be 0 or more"),
        ({"parted_per_id": -1}, "parted_per_id"),
        ({"parted_memory": -1}, "parted_memory"),
        ({"accept_timeout": float("nan")}, "accept_timeout"),
        ({"padding": "much"}, "'off', 'padme' or 'bucket:N'"),
        ({"network_key": "x" * 32}, "network_key is of another type; it must be bytes or None"),
        ({"algorithms": {"kex": "x25519"}}, "it must be a mapping of text to a list of text"),
        ({"algorithms": {"ciphers": ("aes-256-gcm",)}}, "algorithms has no parameter ciphers"),
        ({"require": {"kem": frozenset()}}, "require has no parameter kem"),
    ],
)
def test_what_is_checked_when_it_is_made(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        NodeConfig(**settings)


def test_settings_do_not_change_and_do_not_show_the_network_key() -> None:
    config = NodeConfig(network_key=b"\x5a" * 32)
    with pytest.raises(FrozenInstanceError):
        config.role = "server"  # type: ignore[misc]  # that is the test
    assert "network_key" not in repr(config)
    assert "ZZZ" not in repr(config)


def test_every_number_has_a_range_and_is_in_it() -> None:
    usual = NodeConfig()
    numbers = {
        field.name
        for field in fields(NodeConfig)
        if isinstance(getattr(usual, field.name), int | float)
    }
    assert set(RANGES) == numbers - {"limit_loopback"}
    assert all(getattr(usual, name) in allowed for name, allowed in RANGES.items())


def test_all_settings_are_described() -> None:
    text = NodeConfig.__doc__ or ""
    assert [field.name for field in fields(NodeConfig) if field.name not in text] == []
    assert set(PARAMETERS) == set(NAMES)
