"""Tests of node/cli/serve/reload.py: a reload is atomic."""

import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from parley import Peer
from parley._crypto.identity import Identity
from parley._node.cli.options import NodeOptions
from parley._node.cli.output import Output
from parley._node.cli.serve.application import Application
from parley._node.cli.serve.bus_rights import BusRights
from parley._node.cli.serve.reload import Reloader, RunningServer
from parley._node.cli.serve.systemd import Supervisor
from parley._node.errors import ConfigError
from parley._node.server.federation import Federation
from parley._node.settings import load_settings
from parley._node.trust.policies import TrustPolicy
from tests.node.network import eventually, meeting

pytestmark = pytest.mark.anyio

OTHER = Identity.create().node_id
SETTINGS = "[serve]\nlog_level = 'info'\n[node]\nmemory = 9_000_000\n"


@dataclass
class Server:
    """A server with a peer, and its file of settings."""

    file: Path
    served: RunningServer
    reloader: Reloader
    peer: Peer
    caplog: pytest.LogCaptureFixture

    async def reload(self, text: str) -> list[tuple[str, Any]]:
        """Reload with these settings; return the events and texts of the log."""
        self.file.write_text(text)
        self.caplog.clear()
        await self.reloader.hangup()
        found = [vars(record) for record in self.caplog.records]
        return [
            (one["event"], one.get("changed", one.get("settings", one["message"])))
            for one in found
            if one.get("event", "").startswith("reload")
        ]


@asynccontextmanager
async def serving(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str = SETTINGS, **given: Any
) -> AsyncIterator[Server]:
    """A server that runs by these settings, and by the options that are given."""
    caplog.set_level(logging.INFO)
    file = tmp_path / "server.toml"
    file.write_text(text)
    options = NodeOptions(**given)
    settings = options.load(file)
    reloader = Reloader(lambda: options.load(file), options, settings)
    async with (
        meeting(server=settings.node) as met,
        Federation(met.server, settings.federation) as ours,
    ):
        served = RunningServer(
            met.server,
            ours,
            BusRights(settings.bus, met.server.roles),
            Supervisor({}),
            Output(as_json=False),
        )
        with reloader.reloads(served):
            yield Server(file, served, reloader, met.peer, caplog)


async def test_what_changed_is_taken_up_and_what_cannot_be_is_named(
    anyio_backend: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, caplog) as server:
        node = server.served.node
        assert await server.reload(SETTINGS) == [("reload.done", [])]
        text = f"""
            [serve]
            log_level = 'warning'
            access_log = true
            announce_name = 'x'
            [node]
            memory = 8_000_000
            role = 'server'
            limits = {{ max_streams = 9 }}
            [federation]
            members = ['{OTHER}']
            exports = ['x']
        """
        needs = (
            "reload.needs-restart",
            ["federation.exports", "node.role", "serve.announce_name"],
        )
        taken = [
            "federation.members",
            "node.limits.max_streams",
            "node.memory",
            "serve.access_log",
            "serve.log_level",
        ]
        # Its success is logged on every level.
        assert await server.reload(text) == [("reload.done", taken), needs]
        assert (node.config.memory, node.config.limits.max_streams) == (8_000_000, 9)
        assert node.config.role == "peer"
        assert server.served.federation is not None
        assert server.served.federation.knows(OTHER)
        assert logging.getLogger().level == logging.WARNING
        assert logging.getLogger("parley.access").level == logging.INFO
        assert await server.reload(text) == [("reload.done", []), needs]  # until there was one
        back = await server.reload(SETTINGS)
        assert back == [("reload.done", taken)]
        assert not server.served.federation.knows(OTHER)
        assert server.peer.is_open


async def test_a_bus_that_begins_needs_a_restart(
    anyio_backend: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, caplog) as server:
        bus = f"{SETTINGS}[bus]\nurl = 'sqlite:///bus.db'\nallow = ['*=publish:*']"
        done, needs = await server.reload(bus)
        assert done == ("reload.done", [])
        assert needs == ("reload.needs-restart", ["bus.allow", "bus.url"])


async def test_whoever_is_not_trusted_any_more_is_ended(
    anyio_backend: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, caplog) as server:
        (tmp_path / "known").write_text("")
        await server.reload(f"{SETTINGS}\n[serve.x]")
        assert server.peer.is_open  # it was broken
        done = await server.reload(SETTINGS.replace("log_level", "trust = './known'\nlog_level"))
        assert done == [("reload.done", ["serve.trust"])]
        await eventually(lambda: not server.peer.is_open)


async def test_roles_are_those_of_the_file(
    anyio_backend: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, caplog) as server:
        roles, file = server.served.node.roles, tmp_path / "roles"
        text = SETTINGS.replace("log_level", "roles = 'roles'\nlog_level")
        file.write_text(f"{OTHER} clerk\n")
        assert await server.reload(text) == [("reload.done", ["serve.roles"])]
        assert roles.of(OTHER) == {"clerk"}
        file.write_text("nobody clerk\n")
        ((event, _),) = await server.reload(text)
        assert (event, set(roles.of(OTHER))) == ("reload.failed", {"clerk"})
        file.write_text(f"{OTHER} cook\n")  # the setting is as it was
        assert await server.reload(text) == [("reload.done", [])]
        assert roles.of(OTHER) == {"cook"}
        await server.reload(SETTINGS)
        assert roles.of(OTHER) == frozenset()
        roles.load(file)  # set by the application, not by the settings
        assert await server.reload(SETTINGS) == [("reload.done", [])]
        assert roles.of(OTHER) == {"cook"}


async def test_roles_are_read_once_and_go_back_with_the_rest(
    anyio_backend: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(tmp_path, caplog) as server:
        node, file = server.served.node, tmp_path / "roles"
        change, fails = node.change_trust, False

        async def meanwhile(trust: TrustPolicy) -> None:
            file.write_text("somebody writes it anew\n")
            if fails:
                raise ConfigError("no such trust")
            await change(trust)

        monkeypatch.setattr(node, "change_trust", meanwhile)
        text = SETTINGS.replace("log_level", "roles = 'roles'\nlog_level")
        file.write_text(f"{OTHER} clerk\n")
        assert await server.reload(text) == [("reload.done", ["serve.roles"])]
        assert node.roles.of(OTHER) == {"clerk"}
        fails = True
        file.write_text(f"{OTHER} cook\n")
        assert await server.reload(text) == [
            ("reload.failed", "cannot reload the settings, which stay unchanged: no such trust")
        ]
        assert node.roles.of(OTHER) == {"clerk"}


@pytest.mark.parametrize("as_json", [False, True])
async def test_it_goes_on_where_nobody_reads_what_it_prints(
    anyio_backend: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    as_json: bool,
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    async with serving(tmp_path, caplog) as server:
        with os.fdopen(writing, "w") as stdout:
            monkeypatch.setattr(sys, "stdout", stdout)
            served = replace(server.served, out=Output(as_json=as_json))
            with server.reloader.reloads(served):
                assert (await server.reload("[node"))[0][0] == "reload.failed"
                assert await server.reload(SETTINGS) == [("reload.done", [])]
            monkeypatch.undo()


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("[node", "cannot read the settings"),
        ("[node]\nmemorie = 1", "did you mean node.memory"),
        ("[node]\nmemory = 2_000_000\n[serve]\ntrust = './none'", "cannot read the known peers in"),
        ("[node]\nmemory = 2_000_000\npeer_memory = 65_536", "at most half of peer_memory"),
        ("[node]\nmemory = 2_000_000\n[bus]\nallow = ['*=publish:*']", "no bus is configured"),
        ("[node]\nmemory = 2_000_000\n[federation]\nmembers = ['x']", "not a node ID"),
    ],
)
async def test_a_broken_file_leaves_everything_as_it_was(
    anyio_backend: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    broken: str,
    said: str,
) -> None:
    async with serving(tmp_path, caplog) as server:
        config, trust = server.served.node.config, server.served.node.trust
        ((event, text),) = await server.reload(broken)
        assert event == "reload.failed"
        assert said in text
        assert server.served.node.config == config
        assert server.served.node.trust is trust
        assert server.peer.is_open
        assert await server.reload(SETTINGS) == [("reload.done", [])]


async def test_a_federation_that_takes_none_of_it_takes_the_rest_back(
    anyio_backend: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, caplog) as server:
        itself = server.served.node.node_id
        text = f"[node]\nmemory = 2_000_000\n[federation]\nmembers = ['{itself}']"
        ((event, why),) = await server.reload(text)
        assert event == "reload.failed"
        assert why.endswith("; remove it from links and members")
        assert server.served.node.config.memory == 9_000_000


async def test_a_federation_begins_with_a_restart(
    anyio_backend: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, caplog) as server:
        alone = replace(server.served, federation=None)
        with server.reloader.reloads(alone):
            text = f"{SETTINGS}[federation]\nmembers = ['{OTHER}']"
            done, needs = await server.reload(text)
        assert (done, needs) == (
            ("reload.done", []),
            ("reload.needs-restart", ["federation.members"]),
        )


async def test_a_node_of_a_module_keeps_its_limits_and_its_trust(
    anyio_backend: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With `parley run module:node`, only the module decides them."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "shop_own", module := ModuleType("shop_own"))
    async with serving(tmp_path, caplog) as given:
        node = vars(module)["node"] = given.served.node
        config, trust = node.config, node.trust
        assert config.memory == 9_000_000
        reloader = Reloader(lambda: load_settings(given.file, {}), *_nothing())
        application = Application("shop_own:node", tmp_path)
        server = replace(given, reloader=reloader)
        with reloader.reloads(replace(given.served, application=application)):
            (tmp_path / "roles").write_text(f"{OTHER} clerk\n")
            plain = "[serve]\nlog_level = 'info'\n"
            done = await server.reload(f"{plain}roles = 'roles'")
            assert done == [("reload.done", ["serve.log_level", "serve.roles"])]
            assert node.roles.of(OTHER) == {"clerk"}
            ((event, why),) = await server.reload("[node]\nmemory = 2_000_000")
            assert event == "reload.failed"
            assert "cannot apply [node] of the settings to" in why
        assert node.config == config
        assert node.trust is trust
        assert server.peer.is_open


async def test_options_go_before_the_file(
    anyio_backend: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, caplog, max_payload=65_536, log_level="info") as server:
        await server.reload("[serve]\nlog_level = 'error'\n[node.limits]\nmax_payload = 4_096")
        assert server.served.node.config.limits.max_payload == 65_536
        assert logging.getLogger().level == logging.INFO


async def test_nothing_is_read_before_it_serves(
    anyio_backend: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, caplog) as server:
        reloader = Reloader(lambda: load_settings(server.file, {}), *_nothing())
        server.caplog.clear()
        await reloader.hangup()
        (record,) = server.caplog.records
        assert vars(record)["event"] == "reload.ignored"


def _nothing() -> tuple[NodeOptions, Any]:
    return NodeOptions(), load_settings(None, {})
