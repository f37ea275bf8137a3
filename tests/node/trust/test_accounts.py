"""Tests of node/trust/accounts.py: accounts according to the setting and its file."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from parley._crypto.identity import Identity, NodeId
from parley._node.errors import CallRefused, ConfigError, KnownPeersError
from parley._node.handlers.registry import Handlers
from parley._node.peer.login import log_in
from parley._node.protocol.codes import CloseCode, ResultCode
from parley._node.testing import ConnectedNodes, FakeClock, connect_nodes
from parley._node.trust.accounts import HostedAccounts
from parley._node.trust.known_peers import KnownPeers, default_accounts
from parley._node.trust.watched_file import LOOK, UNREADABLE
from tests.node.network import eventually, meeting
from tests.node.trust.test_revalidation_files import Looked

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
ALICE, BOB = Identity.create().node_id, Identity.create().node_id


def may(hosted: HostedAccounts) -> list[NodeId]:
    return [one for one in (ALICE, BOB) if hosted.accounts.may(one)]


# The setting.


@pytest.mark.parametrize(
    ("setting", "who"),
    [("off", []), ("any", [ALICE, BOB]), ([str(ALICE)], [ALICE]), ((), [])],
)
async def test_values_of_the_setting(setting: str | list[str], who: list[NodeId]) -> None:
    async with meeting() as met:
        handlers = met.server.handlers
        hosted = HostedAccounts(handlers, setting)
        await hosted.start(met.server.backend)
        assert handlers.accounts is hosted.accounts
        assert may(hosted) == who
        hosted.stop()
        assert handlers.accounts is None


def test_a_linked_server_has_none() -> None:
    linked = {ALICE}
    hosted = HostedAccounts(Handlers(), "any", servers=linked)
    assert may(hosted) == [BOB]
    linked.clear()
    assert may(hosted) == [ALICE, BOB]


@pytest.mark.parametrize("setting", ["", "everybody", "Known", ["known"], [str(ALICE), "x"]])
def test_invalid_setting(setting: str | list[str]) -> None:
    with pytest.raises(ConfigError, match="accounts"):
        HostedAccounts(Handlers(), setting)


def test_where_the_file_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PARLEY_HOME", str(tmp_path))
    assert default_accounts() == tmp_path / "accounts"


# The file.


@dataclass(frozen=True, slots=True)
class Watch:
    """A home server that uses a file of accounts. `editor` is the file in another process, and
    Alice is the client.
    """

    met: ConnectedNodes
    clock: FakeClock
    file: Looked
    editor: KnownPeers
    hosted: HostedAccounts

    @property
    def alice(self) -> NodeId:
        return self.met.client.node_id

    async def look(self, times: int = 2) -> None:
        """Let the home check the file often enough to act on a change."""
        for _ in range(times):
            await self._rest()
            looks = self.file.looks
            self.clock.advance(LOOK)
            await eventually(lambda: self.file.looks > looks)  # noqa: B023 - awaited here
        await self._rest()

    async def _rest(self) -> None:
        await eventually(lambda: bool(self.hosted._changes.waiters))


@asynccontextmanager
async def watch(tmp_path: Path) -> AsyncIterator[Watch]:
    clock, file = FakeClock(), Looked(tmp_path / "accounts")
    async with meeting(clock=clock) as met:
        editor = KnownPeers(file.path)
        editor.add(met.client.node_id, "alice", NOW)
        hosted = HostedAccounts(met.server.handlers, "known", file=file)
        await hosted.start(met.server.backend)
        yield Watch(met, clock, file, editor, hosted)
        hosted.stop()


async def test_removed_account_is_logged_out_and_its_session_ends(
    tmp_path: Path,
) -> None:
    async with watch(tmp_path) as on:
        await log_in(on.met.peer)
        on.editor.add(BOB, None, NOW)
        await on.look()
        assert may(on.hosted) == [BOB]
        assert on.hosted.accounts.session(on.alice) is on.met.back.live
        on.editor.forget(on.alice)
        await on.look()
        assert not on.hosted.accounts.may(on.alice)
        assert on.hosted.accounts.session(on.alice) is None
        assert (await on.met.peer.closed()).code == CloseCode.GOING_AWAY
        peer, _ = await connect_nodes(
            on.met.client, on.met.server
        )  # it may connect, but not log in
        with pytest.raises(CallRefused) as error:
            await log_in(peer)
        assert error.value.code == ResultCode.NOT_AUTHORISED
        on.editor.add(on.alice, None, NOW)
        await on.look()
        await log_in(peer)


async def test_file_written_during_reading_removes_no_accounts(tmp_path: Path) -> None:
    """The file has been stable when it is checked, but is empty when it is read."""
    async with watch(tmp_path) as on:
        path = on.file.path
        path.write_text(path.read_text() + "# a comment\n")
        await on.look(1)
        on.file.before.append(partial(path.write_text, ""))
        await on.look(1)
        assert not on.file.before
        assert on.hosted.accounts.may(on.alice)


async def test_a_file_that_cannot_be_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with watch(tmp_path) as on:
        text = on.file.path.read_text()
        on.file.path.write_text("nonsense\n")
        await on.look(3)
        assert "accounts, line 1" in caplog.text
        assert on.hosted.accounts.may(on.alice)
        await on.look(int(UNREADABLE))
        assert not on.hosted.accounts.may(on.alice)
        on.file.path.write_text(text)
        await on.look(2)
        assert on.hosted.accounts.may(on.alice)


async def test_the_file_is_read_before_anybody_logs_in(tmp_path: Path) -> None:
    path = tmp_path / "accounts"
    async with meeting() as met:
        path.write_text("nonsense\n")
        hosted = HostedAccounts(met.server.handlers, "known", file=KnownPeers(path))
        with pytest.raises(KnownPeersError, match="line 1"):
            await hosted.start(met.server.backend)
        assert met.server.handlers.accounts is None
        path.unlink()  # without a file there are no accounts
        await hosted.start(met.server.backend)
        assert may(hosted) == []
        hosted.stop()
