"""Log lines of one kind are rate-limited, and the number of omitted lines is reported."""

import logging
from typing import Any

import pytest

from parley import Call, CallRefused, Stream
from parley._node.logs import LINES, RateLimitedLogger
from parley._node.testing import FakeClock
from tests.node.network import meeting, settled


def test_some_at_once_and_then_so_many_a_second() -> None:
    ration = RateLimitedLogger(3, 2.0)
    assert [ration.allows(10.0) for _ in range(5)] == [True, True, True, False, False]
    assert ration.silent == 2
    assert [ration.allows(10.5), ration.allows(10.6)] == [True, False]
    assert (ration.take_left_out(), ration.silent) == (3, 0)
    assert [ration.allows(100.0) for _ in range(4)] == [True, True, True, False]


async def test_a_handler_that_fails_does_not_fill_the_log(
    anyio_backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with meeting() as met:

        @met.server.on_call("bad")
        async def bad(call: Call) -> None:
            raise ZeroDivisionError

        with caplog.at_level(logging.WARNING, "parley.peer"):
            for _ in range(LINES + 50):
                with pytest.raises(CallRefused):
                    await met.peer.call("bad")
    failed = [line for line in caplog.messages if line.startswith("the handler")]
    assert LINES <= len(failed) < LINES + 50


def fails(peer: object, name: str) -> bool:
    raise ZeroDivisionError


@pytest.mark.parametrize(("allow", "said"), [((), "is not allowed"), (fails, "allow= of")])
async def test_refused_calls_do_not_fill_the_log(
    anyio_backend: str, caplog: pytest.LogCaptureFixture, allow: Any, said: str
) -> None:
    clock = FakeClock()
    async with meeting(clock=clock) as met:

        @met.server.on_call("admin.*", allow=allow)
        async def admin(call: Call) -> None:
            raise AssertionError

        async def refused(number: int) -> None:
            with pytest.raises(CallRefused):
                await met.peer.call(f"admin.{number}")

        with caplog.at_level(logging.INFO, "parley"):
            for number in range(LINES + 50):
                await refused(number)
            clock.advance(1.0)
            await refused(1_000)
    lines = [line for line in caplog.messages if said in line]
    assert len(lines) == LINES + 1
    assert lines[-1].endswith("(50 more such lines were not logged)")


@pytest.mark.slow
async def test_streams_that_are_reset_do_not_fill_the_log(
    anyio_backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with meeting(clock=FakeClock()) as met:

        @met.server.on_stream("files")
        async def files(stream: Stream) -> None:
            await stream.receive()

        with caplog.at_level(logging.INFO, "parley"):
            for _ in range(LINES + 20):
                stream = met.peer.open_stream("files")
                stream.reset()
                await settled()
    assert len([line for line in caplog.messages if "'files' ended" in line]) == LINES
