"""Tests of errors in exception groups: a single error is raised as itself."""

from typing import Any

import anyio
import pytest

from parley import Call, Stream, SubscribeRefused, SubscribeRequest
from parley._node.errors import CallRefused, StreamResetError, sole_error
from parley._node.protocol.codes import CloseCode, ResultCode
from parley.errors import ungrouped
from parley.interceptors import Intercepted, Proceed
from tests.node.network import meeting

ONE, OTHER = ValueError("one"), KeyError("other")


def test_one_error_is_found_however_deep() -> None:
    assert sole_error(ONE) is ONE
    assert sole_error(ExceptionGroup("", [ExceptionGroup("", [ONE])])) is ONE
    several = ExceptionGroup("", [ONE, OTHER])
    assert sole_error(several) is several
    assert sole_error(ExceptionGroup("", [several])) is several


async def fail(error: Exception) -> None:
    raise error


@pytest.mark.anyio
async def test_a_task_groups_one_error_is_raised_as_itself() -> None:
    async def run() -> None:
        with ungrouped():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(fail, ONE)
                tasks.start_soon(anyio.sleep_forever)

    with pytest.raises(ValueError, match="one"):
        await run()


@pytest.mark.anyio
async def test_several_errors_stay_together() -> None:
    async def both(error: Exception) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise error

    async def run() -> None:
        with ungrouped():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(both, OTHER)
                await anyio.wait_all_tasks_blocked()
                tasks.start_soon(fail, ONE)

    with pytest.raises(ExceptionGroup) as group:
        await run()
    assert len(group.value.exceptions) == 2


@pytest.mark.anyio
async def test_a_cancelled_block_is_cancelled() -> None:
    with anyio.CancelScope() as scope, ungrouped():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.sleep_forever)
            scope.cancel()
    assert scope.cancelled_caught


@pytest.mark.anyio
async def test_handlers_refuse_out_of_a_task_group() -> None:
    async with meeting() as met:
        seen: list[Exception] = []

        @met.server.intercept("call")
        async def look(one: Intercepted, proceed: Proceed) -> Any:
            try:
                return await proceed(one)
            except Exception as error:
                seen.append(error)
                raise

        @met.server.on_call("call")
        async def call(_: Call) -> None:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(fail, CallRefused(64, "why"))

        topic = met.server.topic("topic")

        @topic.on_subscribe
        async def accept(_: SubscribeRequest) -> None:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(fail, SubscribeRefused("why"))

        with pytest.raises(CallRefused) as refused:
            await met.peer.call("call")
        assert (refused.value.code, refused.value.data) == (64, "why")
        assert [type(error) for error in seen] == [CallRefused]
        with pytest.raises(SubscribeRefused) as rejected:
            async with met.peer.subscribe("topic"):
                pass
        assert (rejected.value.code, rejected.value.data) == (ResultCode.REJECTED, "why")


@pytest.mark.anyio
async def test_a_stream_that_ends_inside_of_a_task_group_is_not_a_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with meeting() as met:
        over = anyio.Event()

        @met.server.on_stream("bytes")
        async def read(stream: Stream) -> None:
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(stream.receive)
            finally:
                over.set()

        stream = met.peer.open_stream("bytes")
        await stream.send_eof()
        with pytest.raises(StreamResetError) as reset:
            await stream.receive()
        assert (
            reset.value.code == CloseCode.INTERNAL_ERROR
        )  # EndOfStream comes from the handler itself
        stream = met.peer.open_stream("bytes")
        over = anyio.Event()
        stream.reset()
        await over.wait()
    assert sum("failed" in record.message for record in caplog.records) == 1
