"""Tests of node/settings/sources.py: what a running server takes up, and what needs a restart."""

from dataclasses import fields, replace
from pathlib import Path

import pytest

from parley._node.config import CHANGEABLE, NodeConfig
from parley._node.errors import ConfigError
from parley._node.protocol.limits import Limits
from parley._node.settings import Settings, load_settings
from parley._node.settings.catalogue import SETTINGS
from parley._node.settings.sources import changed, merge_reloadable
from tests.node.tuned import tuned

NONE: dict[str, str] = {}


def read(path: Path, text: str) -> Settings:
    path.write_text(text)
    return load_settings(path, NONE)


def test_names_of_what_differs(tmp_path: Path) -> None:
    old = read(tmp_path / "old.toml", "[node]\nrole = 'server'\nmemory = 2_000_000\n")
    new = read(
        tmp_path / "new.toml",
        """
        [node]
        role = 'peer'
        memory = 3_000_000
        limits = { max_streams = 7 }
        padding = 'padme'
        [serve]
        listen = ['tcp://127.0.0.1:7']
        trust = 'known'
        [dialects]
        limits = { clients = 3 }
        """,
    )
    assert changed(old, old) == ([], [])
    taken, restart = changed(old, new)
    assert taken == ["node.limits.max_streams", "node.memory", "serve.trust"]
    assert restart == ["dialects.limits.clients", "node.padding", "node.role", "serve.listen"]
    held = merge_reloadable(old, new)
    assert changed(held, new) == ([], restart)
    assert (held.node.role, held.node.memory, held.serve.trust) == ("server", 3_000_000, "known")


def test_a_secret_is_named_by_its_file() -> None:
    new = Settings(node=NodeConfig(network_key=b"k" * 32))
    assert changed(Settings(), new) == ([], ["node.network_key_file"])


def test_settings_that_need_no_restart() -> None:
    reloaded = {name for name, setting in SETTINGS.items() if setting.reload}
    assert {f"node.{name}" for name in CHANGEABLE - {"limits", "tuning"}} < reloaded
    assert {f"node.limits.{each.name}" for each in fields(Limits)} < reloaded
    assert {name for name in reloaded if not name.startswith("node.")} == {
        *("serve.roles", "serve.trust", "serve.log_level", "serve.access_log"),
        *("serve.log_requests", "bus.allow", "federation.members", "federation.carry"),
    }


def test_what_is_new_must_go_with_what_stays() -> None:
    small = Settings(node=tuned(peer_memory=8 << 20, write_buffer=1 << 20))
    with pytest.raises(ConfigError):
        merge_reloadable(
            small, replace(small, node=tuned(peer_memory=1 << 20, write_buffer=1 << 20))
        )
