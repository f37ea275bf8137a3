"""Connections to Redis: shared, lost, restarted, refused, unresponsive; and blocking reads."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from traceback import format_exception

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from coredis.exceptions import ConnectionError as LostConnectionError

from parley._node.bus.config import BusConfig
from parley._node.bus.errors import BusClosedError, BusError, BusRefusedError, BusUnavailableError
from parley._node.bus.identifiers import BEFORE_ALL
from parley._node.bus.redis import client as module
from parley._node.bus.redis.client import RedisClient
from parley._node.bus.redis.connection import RedisConnection, open_connection, parse_address
from parley._node.bus.redis.store import RedisStore
from parley._node.errors import ConfigError
from tests.node.bus.redis.streams import ALL, C, G, Redis, S, event, numbers
from tests.node.bus.stores import opened
from tests.node.network import eventually, nothing_left, settled, started, task_scope
from tests.redis_server import RedisServer

pytestmark = pytest.mark.anyio

_COMMAND = re.compile(rb"(?:^|\r\n)\*\d")
HELLO = b"%3\r\n+proto\r\n:3\r\n+version\r\n+7.0.15\r\n+id\r\n:1\r\n"


@asynccontextmanager
async def pretender(*answers: bytes, streams: list[object] | None = None) -> AsyncIterator[str]:
    """Yield the address of a server that returns only these responses.

    Its connections are added to `streams`.
    """

    async def serve(stream: SocketStream) -> None:
        if streams is not None:
            streams.append(stream)
        left = list(answers)
        async with stream:
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                while True:
                    for _ in _COMMAND.findall(await stream.receive()):
                        await stream.send(left.pop(0) if left else b"")

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra_attributes[SocketAttribute.local_port]()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, serve)
            yield f"redis://127.0.0.1:{port}"
            tasks.cancel_scope.cancel()


async def test_lost_connection_is_reestablished(store: RedisStore, redis: Redis) -> None:
    await store.join(S, G, C, BEFORE_ALL)
    async with anyio.create_task_group() as tasks:
        read = await started(tasks, lambda: store.read(S, G, C, 5, 5))
        redis("CLIENT", "KILL", "TYPE", "normal")
    assert isinstance(read[0], BusUnavailableError)
    await eventually(lambda: "cmd=xreadgroup" not in redis("CLIENT", "LIST"))
    try:
        await store.publish([event(1)], durable=True)
    except BusUnavailableError:
        await store.publish([event(2)], durable=True)
    assert len(await store.read(S, G, C, 5, 1)) == 1


async def test_a_redis_that_is_killed_and_started_again(
    redis_server: RedisServer, store: RedisStore, redis: Redis
) -> None:
    with redis.setting("appendfsync", "always", "everysec"):
        await store.publish([event(n) for n in range(3)], durable=True)
        await store.join(S, G, C, BEFORE_ALL)
        assert len(await store.read(S, G, C, 2, 0)) == 2
        async with anyio.create_task_group() as tasks:
            await store.read(S, G, "two", 5, 0)
            read = await started(tasks, lambda: store.read(S, G, C, 5, 5))
            redis_server.kill()
        assert isinstance(read[0], BusUnavailableError)
        for _ in range(2):
            with pytest.raises(BusUnavailableError):
                await store.publish([event(9)], durable=True)
        redis_server.start()
        await store.publish([event(3, key="k")], durable=True)
        assert numbers(await store.read(S, G, C, 5, 1)) == [(3, 1)]
        assert len(await store.pending(S, G, ALL, BEFORE_ALL)) == 4


async def test_forgotten_scripts_are_sent_again(store: RedisStore, redis: Redis) -> None:
    for _ in range(2):
        await store.publish([event(1), event(2)], durable=True)
        redis("SCRIPT", "FLUSH")
    assert len(await store.history(S, BEFORE_ALL, None, ALL, 0)) == 4


async def test_unresponsive_server(redis_url: str, redis: Redis, anyio_backend: str) -> None:
    async with opened(RedisStore(redis_url, BusConfig(timeout=0.1))) as store:
        await store.join(S, G, C, BEFORE_ALL)
        redis("CLIENT", "PAUSE", 250, "ALL")
        with pytest.raises(BusUnavailableError, match="timed out"):
            await store.publish([event(1)], durable=True)
        with pytest.raises(BusUnavailableError):
            await store.read(S, G, C, 1, 0)
        await anyio.sleep(0.2)
        await store.publish([event(1)], durable=True)


@pytest.mark.parametrize(
    ("answers", "kind", "text"),
    [
        ([], BusUnavailableError, "Redis"),
        ([b"-ERR unknown command `HELLO`, with args\r\n"], ConfigError, "use 6.2 or newer"),
        ([HELLO.replace(b"7.0.15", b"6.0.16")], ConfigError, "cannot use Redis 6.0.16"),
        ([b"-NOAUTH HELLO must be called\r\n"], BusRefusedError, "HELLO"),
        ([b"-WRONGPASS invalid username\r\n"], BusRefusedError, "invalid"),
        ([b"HTTP/1.1 400 Bad Request\r\n\r\n"], BusError, "Redis"),
        ([HELLO], BusUnavailableError, "timed out"),
    ],
)
async def test_servers_that_cannot_be_used(
    answers: list[bytes], kind: type[Exception], text: str, anyio_backend: str
) -> None:
    with nothing_left():
        async with pretender(*answers) as url, task_scope() as backend:
            store = RedisStore(url, BusConfig(timeout=0.1))
            with pytest.raises(kind) as caught:
                await store.open(backend)
        assert text in str(caught.value)


async def test_a_password_is_in_no_traceback(anyio_backend: str) -> None:
    """A Redis before version 6 quotes the arguments of an unknown command in its error."""
    answer = b"-ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `it`, `s3`\r\n"
    async with pretender(answer) as url, task_scope() as backend:
        store = RedisStore(url.replace("//", "//it:s3@"), BusConfig(timeout=1))
        with pytest.raises(ConfigError) as caught:
            await store.open(backend)
    assert "s3" not in "".join(format_exception(caught.value))


async def test_no_server(anyio_backend: str) -> None:
    with nothing_left():
        async with task_scope() as backend:
            store = RedisStore("redis://127.0.0.1:1", BusConfig(timeout=1))
            with pytest.raises(BusUnavailableError, match=r"127\.0\.0\.1:1"):
                await store.open(backend)
            with pytest.raises(BusClosedError):
                await store.streams()


@pytest.mark.parametrize(
    "error",
    ["LOADING Redis is loading", "MASTERDOWN RedisConnection with MASTER", "READONLY You can't"],
)
async def test_servers_that_are_not_ready(error: str, anyio_backend: str) -> None:
    answer = f"-{error}\r\n".encode()
    async with (
        pretender(HELLO, *[answer] * 5) as url,
        opened(RedisStore(url, BusConfig(timeout=1))) as store,
    ):
        for _ in range(2):
            with pytest.raises(BusUnavailableError):
                await store.publish([event(1)], durable=True)


async def test_user_without_permissions(store: RedisStore, redis: Redis, redis_url: str) -> None:
    redis("ACL", "SETUSER", "eve", "on", ">word", "~*", "+@all", "-xadd", "-config")
    address = redis_url.replace("//", "//eve:word@")
    try:
        async with opened(RedisStore(address, BusConfig())) as eve:
            for events in ([event(1)], [event(1), event(2)]):
                with pytest.raises(BusRefusedError, match=r"no permissions|can't run"):
                    await eve.publish(events, durable=True)
        async with task_scope() as backend:
            with pytest.raises(BusRefusedError):
                await RedisStore(address.replace("word", "no"), BusConfig()).open(backend)
    finally:
        redis("ACL", "DELUSER", "eve")


async def test_further_commands_wait_in_line(
    redis_url: str, redis: Redis, anyio_backend: str
) -> None:
    async with task_scope() as backend:
        client = RedisClient(backend, parse_address(redis_url), 5, 2)
        await client.open()
        redis("CLIENT", "PAUSE", 100, "ALL")
        async with anyio.create_task_group() as tasks:
            answers = [await started(tasks, lambda: client.command("PING")) for _ in range(4)]
            assert client.under_way == 2
        assert answers == [[b"PONG"]] * 4
        assert client.under_way == 0
        await client.aclose()


async def test_commands_of_cancelled_callers_count_until_answered(
    redis_url: str, redis: Redis, anyio_backend: str
) -> None:
    async with task_scope() as backend:
        client = RedisClient(backend, parse_address(redis_url), 5, 2)
        await client.open()
        redis("CLIENT", "PAUSE", 200, "ALL")
        for _ in range(10):
            with anyio.move_on_after(0.01):
                await client.command("INCR", "n")
        assert client.under_way == 2
        assert await client.command("GET", "n") == b"2"
        assert client.under_way == 0
        await client.aclose()


async def test_waiting_callers_share_a_connection_failure(anyio_backend: str) -> None:
    made: list[object] = []
    async with pretender(streams=made) as url, task_scope() as backend:
        client = RedisClient(backend, parse_address(url), 0.1, 10)
        async with anyio.create_task_group() as tasks:
            acks = [await started(tasks, lambda: client.command("PING")) for _ in range(4)]
        assert [type(outcome[0]) for outcome in acks] == [BusUnavailableError] * 4
        assert len(made) == 1
        await client.aclose()


async def test_few_connections_are_kept(
    store: RedisStore, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IDLE_READERS", 1)
    await store.join(S, G, C, BEFORE_ALL)

    def connections() -> int:
        return int(
            redis("CLIENT", "LIST").count("lib-name") or redis("CLIENT", "LIST").count("id=")
        )

    for _ in range(2):
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                await started(tasks, lambda: store.read(S, G, C, 1, 5))
            tasks.cancel_scope.cancel()
        await eventually(
            lambda: connections() <= 4
        )  # Shared, listening, idle, and this test's own.


async def test_more_reads_than_connections_wait_for_one(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        module, "MOST_CONNECTIONS", 4
    )  # The shared and the listening connection, and two for reads.
    await store.join(S, G, C, BEFORE_ALL)
    async with anyio.create_task_group() as tasks:
        waiting = [await started(tasks, lambda: store.read(S, G, C, 1, 5)) for _ in range(4)]
        third = anyio.CancelScope()

        async def cancelled() -> None:
            with third:
                await store.read(S, G, C, 1, 5)

        await started(tasks, cancelled)
        third.cancel()  # It leaves the queue.
        await store.publish([event(n) for n in range(4)], durable=True)
        await eventually(lambda: all(waiting))
    assert sorted(len(each[0]) for each in waiting if isinstance(each[0], list)) == [1] * 4


async def test_closing_ends_callers_that_wait_for_a_connection(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_CONNECTIONS", 3)
    await store.join(S, G, C, BEFORE_ALL)
    async with anyio.create_task_group() as tasks:
        waiting = [await started(tasks, lambda: store.read(S, G, C, 1, 5)) for _ in range(2)]
        await store.aclose()
        await eventually(lambda: all(waiting))
    assert [type(each[0]) for each in waiting] == [BusClosedError] * 2


async def test_answers_in_parts_and_pushed_messages(anyio_backend: str) -> None:
    pushed = b">2\r\n+message\r\n:1\r\n"
    async with (
        pretender(HELLO, pushed + b"$4\r\nha", b"lf\r\n:2\r\n") as url,
        task_scope() as backend,
    ):
        ended: list[RedisConnection] = []
        connection = await open_connection(backend, parse_address(url), 5.0, ended.append)
        one = connection.send([("ONE",)], 5.0)
        two = connection.send([("TWO", b"\r\n", 3, 0.5)], 5.0)
        assert (await one.wait(), await two.wait()) == ([b"half"], [2])
        connection.invalidate()
        with pytest.raises(LostConnectionError):
            connection.send([("PING",)], 5.0)
        await eventually(lambda: ended == [connection])


async def test_failed_release_does_not_affect_other_callers(
    redis_url: str, redis: Redis, anyio_backend: str
) -> None:
    brought, fails = anyio.Event(), anyio.Event()

    async def give_back(answer: object) -> None:
        brought.set()
        await fails.wait()
        raise BusUnavailableError("no")

    async with task_scope() as backend:
        client = RedisClient(backend, parse_address(redis_url), 5, 10)
        await client.open()
        async with anyio.create_task_group() as tasks:
            first = anyio.CancelScope()

            async def cancelled() -> None:
                with first:
                    await client.blocking((b"BLPOP", b"one", 5), 5, give_back)

            await started(tasks, cancelled)
            await eventually(lambda: "cmd=blpop" in redis("CLIENT", "LIST"))
            first.cancel()
            await brought.wait()
            other = await started(
                tasks, lambda: client.blocking((b"BLPOP", b"two", 5), 5, give_back)
            )
            fails.set()
            await settled()
            redis("RPUSH", "two", "x")
        assert other == [[b"two", b"x"]]
        await client.aclose()


async def test_read_that_does_not_end_is_abandoned(
    store: RedisStore, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_UNBLOCK_TRIES", 0)
    await store.join(S, G, C, BEFORE_ALL)
    async with anyio.create_task_group() as tasks:
        await started(tasks, lambda: store.read(S, G, C, 1, 5))
        await eventually(lambda: "cmd=xreadgroup" in redis("CLIENT", "LIST"))
        tasks.cancel_scope.cancel()
    await eventually(lambda: "cmd=xreadgroup" not in redis("CLIENT", "LIST"))
    await store.publish([event(1)], durable=True)
    with pytest.raises(BusUnavailableError, match="a cancelled read was lost"):
        await store.read(S, G, C, 1, 1)
    assert len(await store.read(S, G, C, 1, 1)) == 1


async def test_closing_ends_reads_and_leaves_nothing(redis_url: str, anyio_backend: str) -> None:
    with nothing_left():
        async with task_scope() as backend:
            store = RedisStore(redis_url, BusConfig(timeout=5))
            await store.open(backend)
            await store.join(S, G, C, BEFORE_ALL)
            async with anyio.create_task_group() as tasks:
                read = await started(tasks, lambda: store.read(S, G, C, 1, 5))
                look = await started(tasks, lambda: store.history(S, "1-0", None, 1, 5))
                await store.publish([event(1)], durable=True)
                more = await started(tasks, lambda: store.read(S, "g2", C, 1, 0))
                await eventually(lambda: bool(more))
                waits = await started(tasks, lambda: store.read(S, "g2", C, 1, 5))
                await store.aclose()
            await store.aclose()
            assert isinstance(read[0], list)
            assert isinstance(look[0], list)
            assert isinstance(more[0], list)
            assert isinstance(waits[0], BusClosedError)
            with pytest.raises(BusClosedError):
                await store.read(S, G, C, 1, 0)
