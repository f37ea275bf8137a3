"""Tests of node/protocol/config.py: settings are validated when they are created."""

from typing import Any

import pytest

from parley._crypto.errors import UnknownAlgorithmError
from parley._crypto.identity import Identity
from parley._crypto.registry import NAMES, PARAMETERS
from parley._node.protocol.config import CoreConfig
from tests.node.protocol.pair import ALICE
from tests.sweep import sweep

HYBRID = "x25519-mlkem768"


def test_the_defaults_are_the_documents() -> None:
    config = CoreConfig(identity=ALICE)
    assert {parameter: config.names(parameter) for parameter in PARAMETERS} == NAMES
    assert (config.role, config.plaintext, config.deliver) == ("peer", "never", "opened")
    assert (config.handshake_timeout, config.idle_before_ping, config.ping_timeout) == (10, 15, 10)
    assert (config.update_after_events, config.update_after_bytes) == (2**24, 4 * 2**30)
    assert (config.update_after_seconds, config.rekey_interval) == (3_600, 900)
    assert (config.rekey_allowance, config.peer_memory) == (1, 32 * 2**20)


def test_order_floor_and_held_keys_decide_the_names() -> None:
    config = CoreConfig(
        identity=Identity.create(("ecdsa-p256", "ed25519")),
        algorithms={"hash": ("sha512", "sha256"), "cipher": NAMES["cipher"][::-1]},
        require={"cipher": frozenset(NAMES["cipher"][:2]), "kex": frozenset({HYBRID})},
    )
    assert config.names("signing") == ("ed25519", "ecdsa-p256")
    assert config.names("hash") == ("sha512", "sha256")
    assert config.names("cipher") == ("chacha20-poly1305", "aes-256-gcm")
    assert config.names("kex") == (HYBRID,)


BAD: dict[str, dict[str, Any]] = {
    "role": {"role": "king"},
    "plaintext": {"plaintext": "sometimes"},
    "deliver": {"deliver": "never"},
    "a short network key": {"network_key": bytes([1]) * 31},
    "an all-zero network key": {"network_key": bytes(32)},
    "plaintext in a network": {"network_key": bytes([1]) * 32, "plaintext": "both"},
    "an unknown parameter": {"algorithms": {"chiper": ()}},
    "a minimum for an unknown parameter": {"require": {"chiper": frozenset()}},
    "no name": {"algorithms": {"kex": ()}},
    "an empty minimum": {"require": {"kex": frozenset()}},
    "a minimum above all names": {
        "algorithms": {"kex": ("x25519",)},
        "require": {"kex": frozenset({HYBRID})},
    },
    "no key of the algorithm": {
        "identity": Identity.create(),
        "algorithms": {"signing": ("ml-dsa-65",)},
    },
    "node information too long": {"node_info": {"x": bytes(1_024)}},
    "node information without encoding": {"node_info": {"x": {1, 2}}},
    "no handshake time": {"handshake_timeout": 0},
    "no idle time": {"idle_before_ping": -1},
    "no ping time": {"ping_timeout": 0},
    "no drain time": {"close_drain": 0},
    "no update time": {"update_after_seconds": 0},
    "no rekey time": {"rekey_interval": 0},
    "a time that is no number": {"ping_timeout": float("nan")},
    "no events": {"update_after_events": 0},
    "no bytes": {"update_after_bytes": 0},
    "no rekeys": {"rekey_allowance": 0},
    "no memory": {"peer_memory": 0},
}


@sweep("what", BAD)
def test_what_is_refused(what: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        CoreConfig(**{"identity": ALICE, **BAD[what]})


@pytest.mark.parametrize("parameter", PARAMETERS)
def test_unknown_names_are_typed(parameter: str) -> None:
    for setting in ("algorithms", "require"):
        settings: dict[str, Any] = {setting: {parameter: ("rot13",)}}
        with pytest.raises(UnknownAlgorithmError, match="rot13"):
            CoreConfig(identity=ALICE, **settings)


def test_no_secret_in_a_repr() -> None:
    key = bytes(range(32))
    shown = repr(CoreConfig(identity=ALICE, network_key=key))
    assert repr(key)[2:-1] not in shown
    assert key.hex() not in shown
