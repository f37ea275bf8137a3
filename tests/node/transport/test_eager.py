"""Coroutines that run at once until they first wait: what they see of their task, their context and
their cancellation."""

import asyncio
import socket
import sys
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from contextvars import ContextVar
from typing import Any

import anyio
import pytest
import uvloop
from anyio.lowlevel import checkpoint

from parley._node.transport.eager import EagerTasks
from tests.node.transport.eager_stage import One, Stage, at_once, in_two_steps, over

pytestmark = pytest.mark.anyio

WHO: ContextVar[str] = ContextVar("who", default="nobody")


@pytest.fixture(
    params=[pytest.param("asyncio"), pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop")]
)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


async def until_cancelled(one: One) -> None:
    try:
        await asyncio.get_running_loop().create_future()
    except asyncio.CancelledError as error:
        one.said.append(error.args)
        raise
    finally:
        one.said.append("cleaned up")


async def test_what_waits_for_nothing_is_over_at_once_in_one_task() -> None:
    async with Stage() as stage:
        ones = [One(str(number)) for number in range(3)]
        for _ in range(2):
            stage.begin(at_once, *ones)
            assert all(one.said.pop() is True and one.runner is None for one in ones)
        assert [one.said for one in ones] == [["0", "0"], ["1", "1"], ["2", "2"]]
        assert len(stage.tasks) == 1


async def test_what_waits_goes_on_in_the_task_that_it_had() -> None:
    async with Stage() as stage:
        ones = [One("a"), One("b")]
        stage.begin(in_two_steps, *ones)
        assert ones[0].runner is not ones[1].runner
        for one in ones:
            await over(one)
            assert one.said == [one.name, True]
        again = One("c")
        stage.begin(in_two_steps, again)  # in the task that stood ready
        assert len(stage.tasks) == 2
        await over(again)


async def test_of_those_who_begin_it_in_a_task_it_is_none() -> None:
    async with Stage() as stage:
        sender, one = asyncio.current_task(), One()
        stage.begin(in_two_steps, one)
        assert asyncio.current_task() is sender is not one.runner
        await over(one)


async def test_each_has_a_context_of_its_own() -> None:
    async def who(one: One) -> None:
        one.said.append(WHO.get())
        WHO.set(one.name)
        if one.name == "waits":
            await asyncio.sleep(0)
        one.said.append(WHO.get())

    async with Stage() as stage:
        ones = [One("first"), One("waits"), One("last")]
        stage.begin(who, *ones)
        await over(ones[1])
        stage.begin(who, last := One("after"))
        for one in [*ones, last]:
            assert one.said == ["nobody", one.name]
        assert WHO.get() == "nobody"


async def test_a_cancelled_one_cleans_up_and_its_task_is_not_lent_again() -> None:
    async with Stage() as stage:
        one = One()
        stage.begin(until_cancelled, one)
        await asyncio.sleep(0)
        task = one.runner
        task.cancel("enough")
        await over(one)
        assert one.said == [("enough",), "cleaned up"]
        await asyncio.sleep(0)
        assert task.cancelled()
        assert task not in stage.tasks


async def test_one_is_cancelled_before_its_task_had_a_turn() -> None:
    """After its first step, and before the task waits for what it waits for: also that is told."""

    async def outer(one: One) -> None:
        inner = asyncio.ensure_future(until_cancelled(One()))
        try:
            await inner
        finally:
            one.said.append(inner.cancelled() or inner.cancelling())

    async with Stage() as stage:
        for _ in range(2):  # a new task, and one that rested
            one, waits = One(), One()
            stage.begin(until_cancelled, one)
            stage.begin(outer, waits)
            one.runner.cancel("at once")
            waits.runner.cancel()
            await over(one)
            await over(waits)
            assert one.said == [("at once",), "cleaned up"]
            assert waits.said[0]
            stage.begin(in_two_steps, rests := One())
            await over(rests)


async def test_who_goes_on_after_its_cancellation_ends_with_its_task() -> None:
    async def stubborn(one: One) -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(5)
        await asyncio.sleep(0)
        one.said.append("went on")

    async with Stage() as stage:
        one = One()
        stage.begin(stubborn, one)
        task = one.runner
        task.cancel()
        await over(one)
        assert one.said == ["went on"]
        await asyncio.sleep(0)
        assert task.done()
        assert not task.cancelled()


async def test_one_that_cancels_itself() -> None:
    async def oneself(one: One) -> None:
        task = one.runner
        task.cancel()
        if one.name == "takes it back":
            task.uncancel()
        if one.name == "waits":
            await asyncio.sleep(0)
        one.said.append("went on")

    async with Stage() as stage:
        stage.begin(at_once, One())
        await asyncio.sleep(0)
        for name in ("takes it back", "waits", "does not", "takes it back", "takes it back"):
            one, after = One(name), One("after")
            stage.begin(oneself, one, after)
            stage.begin(in_two_steps, after)
            await over(one)
            await over(after)
            assert one.said == ([] if name == "waits" else ["went on"])
            assert after.said[-2:] == ["after", True]
            await asyncio.sleep(0)


async def test_one_that_is_cancelled_while_it_rests_is_not_lent() -> None:
    async with Stage() as stage:
        stage.begin(in_two_steps, one := One())
        task = one.runner
        await over(one)
        task.cancel()
        stage.begin(in_two_steps, one)
        assert one.runner is not task
        await over(one)
        assert one.said == ["", True] * 2


async def test_scopes_and_time_outs_of_the_first_step() -> None:
    async def late(one: One) -> None:
        with anyio.move_on_after(0):
            await anyio.sleep(5)
        one.said.append("scope")
        with suppress(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.sleep(5)
        one.said.append("time-out")
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 5)
            await checkpoint()
            group.cancel_scope.cancel()
        one.said.append("group")
        await checkpoint()

    async with Stage() as stage:
        stage.begin(late, one := One())
        task = one.runner
        await over(one)
        assert one.said == ["scope", "time-out", "group"]
        assert not task.cancelling()


async def test_what_is_raised_ends_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    async def fails(one: One) -> None:
        if one.name == "waits":
            await asyncio.sleep(0)
        raise ValueError(one.name)

    async def fails_badly(_: One) -> None:
        raise BaseExceptionGroup("several", [asyncio.CancelledError()])

    async with Stage() as stage:
        stage.begin(fails, One("at once"), One())
        after = One()
        stage.eager.begin([(fails_badly, One()), (at_once, after)])
        assert after.said == ["", True]
        assert "at once" in caplog.text
        assert "several" in caplog.text


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_one_that_exits_ends_the_loop_from_a_transport_too(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    after = One()

    async def exits(_: One) -> None:
        sys.exit(7)

    class Receives(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            eager = EagerTasks(asyncio.get_running_loop(), set())
            eager.begin([(exits, One()), (at_once, after)])

    async def main() -> None:
        near, far = socket.socketpair()
        transport, _ = await asyncio.get_running_loop().create_connection(Receives, sock=near)
        with far, closing(transport):
            far.send(b"x")
            await asyncio.sleep(5)

    with asyncio.Runner(loop_factory=new_loop) as runner, pytest.raises(SystemExit) as caught:
        runner.run(main())
    assert caught.value.code == 7
    assert after.said == ["", True]


async def test_several_wait_for_one_future() -> None:
    async def waits(one: One) -> None:
        one.said.append(await future)

    async def plainly() -> object:
        return await future

    async with Stage() as stage:
        for _ in range(2):  # a new task, and one that rested
            future = asyncio.get_running_loop().create_future()
            ones = [One() for _ in range(3)]
            plain = asyncio.ensure_future(plainly())
            stage.begin(waits, *ones)
            await asyncio.sleep(0)
            stage.begin(waits, late := One())
            await asyncio.sleep(0)
            future.set_result("came")
            assert await plain == "came"
            for one in [*ones, late]:
                await over(one)
                assert one.said == ["came"]


async def test_of_several_who_wait_for_one_future_one_is_cancelled_at_once() -> None:
    async with Stage() as stage:
        inner = asyncio.ensure_future(until_cancelled(One()))

        async def waits(one: One) -> None:
            try:
                await inner
            finally:
                one.said.append(inner.cancelled())

        ones = [One(), One()]
        stage.begin(waits, *ones)
        ones[0].runner.cancel()  # and with it what both wait for
        for one in ones:
            await over(one)
            assert one.said == [True]


async def test_who_has_the_task_of_one_that_waited_cancels_no_other() -> None:
    async with Stage() as stage:
        stage.begin(in_two_steps, one := One())
        task = one.runner
        await over(one)
        ones = [One() for _ in range(3)]
        stage.begin(in_two_steps, *ones)
        task.cancel()
        for one in ones:
            await over(one)
            assert one.said == ["", True]


async def test_who_keeps_the_task_of_one_that_never_waited_cancels_no_other() -> None:
    kept: list[asyncio.Task[Any]] = []

    async def keeps(one: One) -> None:
        kept.append(one.runner)

    async with Stage() as stage:
        for _ in range(2):  # a new task, and one that rested
            other, after = One(), One()
            stage.eager.begin([(keeps, One()), (in_two_steps, other), (keeps, One())])
            stage.begin(in_two_steps, after)
            for task in kept:
                task.cancel()
            for waits in (other, after):
                await over(waits)
                assert waits.said == ["", True]
            await asyncio.sleep(0)
            assert all(task.done() for task in kept)
            stage.begin(at_once, One())
            assert len(stage.tasks) == 1


@pytest.mark.skipif(sys.version_info < (3, 13), reason="until then it is cancelled all the same")
async def test_one_that_takes_its_cancellation_back_before_it_waits() -> None:
    async def takes_back(one: One) -> None:
        one.runner.cancel()
        one.runner.uncancel()
        await asyncio.sleep(0)
        one.said.append(await asyncio.sleep(0, "went on"))

    async with Stage() as stage:
        for _ in range(2):  # a new task, and one that rested
            stage.begin(takes_back, one := One())
            await over(one)
            assert one.said == ["went on"]


async def test_what_is_no_future_is_refused_as_tasks_do() -> None:
    class Odd:
        def __await__(self) -> Generator[str, None, None]:
            yield "odd"

    async def waits(one: One) -> None:
        try:
            await Odd()
        except RuntimeError as error:
            one.said.append(str(error))

    async with Stage() as stage:
        stage.begin(waits, one := One())
        await over(one)
        assert one.said == ["Task got bad yield: 'odd'"]


async def test_one_task_stands_ready() -> None:
    async def begins(one: One) -> None:
        stage.begin(at_once, one)

    async with Stage() as stage:
        stage.begin(in_two_steps, *(ones := [One() for _ in range(5)]))
        assert len(stage.tasks) == len(ones) + 1
        for one in ones:
            await over(one)
        stage.begin(begins, one := One())
        assert one.said == ["", True]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(stage.tasks) == 1
