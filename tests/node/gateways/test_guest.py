"""Guests: the unauthenticated other side of a connection in a foreign dialect."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from parley._node.errors import NotSpokenError, PeerClosedError
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.memory_budget import MemoryBudget
from parley._node.protocol.reports import ConnectionEnded
from parley._node.transport.memory import memory_pair
from parley._node.transport.transport import StreamTransport
from parley.dialects import Guest
from tests.node.dialects.test_core import Parrot
from tests.node.network import task_scope

pytestmark = pytest.mark.anyio


class Bird(Guest):
    """A guest of the dialect of parrots."""

    dialect = "parrot"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.lost: list[ConnectionEnded] = []

    def _take(self, report: Any, now: float) -> None:
        raise AssertionError(f"parrots report nothing but their end: {report}")

    def _lost(self, ended: ConnectionEnded) -> None:
        self.lost.append(ended)


@asynccontextmanager
async def bird() -> AsyncIterator[tuple[Bird, anyio.abc.ByteStream, list[Guest]]]:
    """Yield a guest, the other end of its stream, and a list of closed guests."""
    gone: list[Guest] = []
    async with task_scope() as backend:
        here, there = memory_pair()
        core = Parrot(backend.now(), 1_000, MemoryBudget(1 << 30))
        guest = Bird(core=core, backend=backend, name="a nest", on_gone=gone.append)
        StreamTransport(here, guest.driver, backend)
        async with there:
            yield guest, there, gone


async def test_a_guest_has_no_identity() -> None:
    async with bird() as (guest, _, _):
        assert (guest.node_id, guest.encrypted, guest.suite, guest.role) == (None, False, None, "")
        assert guest.info == {}
        assert repr(guest) == "<Bird a nest>"
        with pytest.raises(NotSpokenError, match="cannot use calls: the dialect"):
            await guest.call("anything")
        with pytest.raises(NotSpokenError, match="cannot use named events: the dialect"):
            guest.emit("anything")


async def test_close_sends_queued_data() -> None:
    async with bird() as (guest, there, gone):
        await there.send(b"hello")
        assert await there.receive() == b"hello"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(guest.close)
            with pytest.raises(anyio.EndOfStream):
                await there.receive()
            assert not guest.is_open
            await there.aclose()
        assert guest.is_gone
        assert gone == [guest]
        assert [end.code for end in guest.lost] == [CloseCode.NORMAL]
        assert (await guest.closed()).code == CloseCode.NORMAL


async def test_it_knows_why_it_ended() -> None:
    async with bird() as (guest, there, _):
        assert guest.closed_error().code == CloseCode.NORMAL
        await there.send(b"!")
        assert (await guest.closed()).code == CloseCode.PROTOCOL_ERROR
        error = guest.closed_error()
        assert isinstance(error, PeerClosedError)
        assert error.code == CloseCode.PROTOCOL_ERROR


async def test_leaving_by_an_exception_drops_it() -> None:
    async with bird() as (guest, _, gone):
        with pytest.raises(ZeroDivisionError):
            async with guest:
                raise ZeroDivisionError
        assert gone == [guest]
        assert [end.code for end in guest.lost] == [CloseCode.GOING_AWAY]
