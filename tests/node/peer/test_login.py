"""Tests of node/peer/login.py: logging in at a home over a connection."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from parley._node.errors import CallRefused, CallTimeout, PeerClosedError
from parley._node.federation.accounts import Accounts
from parley._node.peer.login import log_in, log_out
from parley._node.protocol.codes import ResultCode
from parley._node.testing import ConnectedNodes, FaultyLink, connect_nodes
from tests.node.network import eventually, meeting, new_node

pytestmark = pytest.mark.anyio


@pytest.fixture
async def met(anyio_backend: str) -> AsyncIterator[ConnectedNodes]:
    """The server is a home in which anybody may have an account."""
    async with meeting() as met:
        met.server.handlers.accounts = Accounts[Any](None)
        yield met


def home(met: ConnectedNodes) -> Accounts[Any]:
    accounts = met.server.handlers.accounts
    assert accounts is not None
    return accounts


async def test_a_node_logs_in_and_out(
    met: ConnectedNodes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "parley.accounts")
    accounts, who = home(met), met.client.node_id
    await log_in(met.peer, ["shop.*", "a\nb"])
    assert accounts.session(who) is met.back.live
    assert f"{who} logged in, and exports shop.*, a\\nb" in caplog.text
    await log_out(met.peer)
    assert accounts.session(who) is None
    await log_in(met.peer)
    assert f"{who} logged in, and exports nothing" in caplog.text


async def test_it_is_logged_out_with_its_session(met: ConnectedNodes) -> None:
    accounts, who = home(met), met.client.node_id
    await log_in(met.peer)
    newer, newer_there = await connect_nodes(met.client, met.server)
    await log_in(newer)
    await met.peer.close()
    assert accounts.session(who) is newer_there.live
    await newer.close()
    await eventually(lambda: len(accounts) == 0)
    with pytest.raises(PeerClosedError):
        await log_in(newer)


async def refused(met: ConnectedNodes) -> set[int]:
    """The codes that answer a Login and a Logout."""
    codes = set()
    for ask in (log_in, log_out):
        with pytest.raises(CallRefused) as error:
            await ask(met.peer)
        codes.add(error.value.code)
    return codes


async def test_a_node_without_accounts_refuses(met: ConnectedNodes) -> None:
    met.server.handlers.accounts = None
    assert await refused(met) == {ResultCode.NOT_AUTHORISED}


async def test_whoever_may_not_is_refused(met: ConnectedNodes) -> None:
    home(met).change([met.server.node_id])
    assert await refused(met) == {ResultCode.NOT_AUTHORISED}


async def test_nobody_logs_in_through_a_tunnel(met: ConnectedNodes) -> None:
    met.back.driver.path = (met.client.node_id, met.server.node_id)
    assert await refused(met) == {ResultCode.NOT_AUTHORISED}
    assert len(home(met)) == 0


async def test_whoever_proved_no_id_is_refused() -> None:
    async with meeting(plaintext="only") as met:
        met.server.handlers.accounts = Accounts[Any](None)
        assert await refused(met) == {ResultCode.NOT_AUTHORISED}


async def test_a_node_that_stops_takes_no_login(met: ConnectedNodes) -> None:
    met.back.live.draining = True
    with pytest.raises(CallRefused) as error:
        await log_in(met.peer)
    assert error.value.code == ResultCode.OVERLOADED


async def test_a_login_that_is_not_answered() -> None:
    async with new_node() as client, new_node() as server, FaultyLink() as link:
        peer, _ = await connect_nodes(client, server, link=link)
        link.stall()
        with pytest.raises(CallTimeout):
            await log_in(peer, timeout=0.05)
        link.heal()
