"""The log takes so many lines of a kind, and says what was left out."""

import logging

import pytest

from node import Call, CallRefused
from node.log_ration import LogRation
from node.serving.handlers import FAILURES
from tests.node.network import meeting


def test_some_at_once_and_then_so_many_a_second() -> None:
    ration = LogRation(3, 2.0)
    assert [ration.has_room(10.0) for _ in range(5)] == [True, True, True, False, False]
    assert ration.silent == 2
    assert [ration.has_room(10.5), ration.has_room(10.6)] == [True, False]
    assert (ration.told(), ration.silent) == (3, 0)
    assert [ration.has_room(100.0) for _ in range(4)] == [True, True, True, False]


async def test_a_handler_that_fails_does_not_fill_the_log(
    anyio_backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with meeting() as met:

        @met.server.on_call("bad")
        async def bad(call: Call) -> None:
            raise ZeroDivisionError

        with caplog.at_level(logging.WARNING, "parley.peer"):
            for _ in range(FAILURES + 50):
                with pytest.raises(CallRefused):
                    await met.peer.call("bad")
    failed = [line for line in caplog.messages if line.startswith("the handler")]
    assert FAILURES <= len(failed) < FAILURES + 50
