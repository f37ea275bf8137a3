"""Tests of node/cli/logging_setup.py: the log as JSON lines, its levels, and the access log."""

import io
import json
import logging
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from parley import Call, CallRefused, NamedEvent, Stream
from parley._crypto.identity import Identity
from parley._node.cli.logging_setup import change_level, set_up_logging
from parley._node.errors import ConfigError, ParleyError
from parley._node.protocol.codes import ResultCode
from tests.node.cli.conftest import Parley
from tests.node.network import eventually, meeting

logger = logging.getLogger("parley.peer")


Begin = Callable[..., io.StringIO]


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch) -> Begin:
    """Set up logging as in a new process; pytest has handlers already."""

    def set_up(
        level: str, form: str, *, access: bool = False, requests: bool = False
    ) -> io.StringIO:
        monkeypatch.setattr(logging.getLogger(), "handlers", [])
        for name in ("parley.access", "parley.settings", "coredis"):
            monkeypatch.setattr(logging.getLogger(name), "level", logging.NOTSET)
        monkeypatch.setattr(sys, "stderr", io.StringIO())
        set_up_logging(level, form, access=access, requests=requests)
        assert isinstance(sys.stderr, io.StringIO)
        return sys.stderr

    return set_up


def lines(log: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.getvalue().splitlines()]


def test_an_event_is_an_object_with_its_fields(begin: Begin) -> None:
    log = begin("info", "json")
    node_id = Identity.create().node_id
    logger.info(
        "%s said %s",
        "x",
        "a\nb\x1b[2J",
        extra={"event": "some.event", "peer": node_id, "seconds": 1.5, "names": ["a"], "x": {1}},
    )
    (line,) = lines(log)
    assert log.getvalue().isprintable() or log.getvalue().count("\n") == 1
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "parley.peer",
        "event": "some.event",
        "text": "x said a\nb\x1b[2J",
        "peer": str(node_id),
        "seconds": 1.5,
        "names": ["a"],
        "x": [1],
    }
    assert "\x1b" not in log.getvalue()


def test_fields_of_other_libraries_do_not_stand_in_the_place_of_ours(begin: Begin) -> None:
    log = begin("info", "json")
    theirs = dict.fromkeys(("time", "level", "logger", "text", "traceback", "more"), "theirs")
    logging.getLogger("theirs").warning("careful", extra=theirs)
    try:
        raise ZeroDivisionError("by zero")
    except ZeroDivisionError:
        logging.getLogger("theirs").exception("it failed", extra=theirs)
    for line, level, text in zip(
        lines(log), ("warning", "error"), ("careful", "it failed"), strict=True
    ):
        assert line["time"].endswith("Z")
        assert (line["level"], line["logger"], line["text"]) == (level, "theirs", text)
        assert (line["event"], line["more"]) == ("other", "theirs")
    assert lines(log)[1]["traceback"].endswith("by zero")


def test_an_error_has_its_traceback_and_others_lines_an_event(begin: Begin) -> None:
    log = begin("error", "json")
    try:
        raise ZeroDivisionError("by zero")
    except ZeroDivisionError:
        logging.getLogger("asyncio").exception("a task failed")
    (line,) = lines(log)
    assert line["event"] == "other"
    assert line["traceback"].endswith("ZeroDivisionError: by zero")


def test_the_access_log_is_there_whatever_the_level(begin: Begin) -> None:
    access = logging.getLogger("parley.access")
    log = begin("error", "json", access=True)
    access.info("told")
    logger.info("not told")
    change_level("info", access=False)
    logger.info("told")
    change_level("error", access=False)
    access.info("not told")
    assert [line["text"] for line in lines(log)] == ["told", "told"]


@pytest.mark.parametrize("given", [("loud", "text"), ("info", "xml")])
def test_there_are_so_many_levels_and_formats(begin: Begin, given: tuple[str, str]) -> None:
    with pytest.raises(ConfigError, match=given[0] if given[0] == "loud" else given[1]):
        begin(*given)


def test_a_command_refuses_what_is_none(parley: Parley) -> None:
    done = parley("find", "--log-format", "xml")
    assert done.code == 2
    done = parley("call", "tcp://127.0.0.1:1", "x", "--log-format", "xml")
    assert (done.code, done.err) == (
        2,
        "parley: invalid --log-format 'xml': expected text or json\n",
    )


@pytest.mark.anyio
async def test_who_comes_and_goes_and_is_refused(anyio_backend: str, begin: Begin) -> None:
    log = begin("warning", "json", access=True)
    async with meeting() as met:

        @met.server.on_call("admin", allow=())
        async def admin(call: Call) -> None:
            raise AssertionError

        for topic in ("admin", "nothing"):
            with pytest.raises(CallRefused):
                await met.peer.call(topic)
        with pytest.raises(CallRefused):
            await met.peer.subscribe("news").__aenter__()
        client = str(met.client.node_id)
    told = [line for line in lines(log) if line["peer"] == client]
    assert [line["event"] for line in told] == [
        "connection.opened",
        *["request.refused"] * 3,
        "connection.closed",
    ]
    opened, *refused, closed = told
    assert (opened["dialled"], opened["suite"]["kex"]) == (False, "x25519")
    assert [(line.get("kind"), line["topic"], line["code"]) for line in refused] == [
        (None, "admin", 20),
        ("call", "nothing", 1),
        ("topic", "news", 1),
    ]
    assert (closed["code"], closed["remote"]) == (1, True)


@pytest.mark.anyio
async def test_requests_that_succeed_are_logged_on_request(
    anyio_backend: str, begin: Begin, tmp_path: Path
) -> None:
    log = begin("error", "json", requests=True)
    async with meeting() as met:

        @met.server.on_call("slow")
        async def slow(call: Call) -> Any:
            await anyio.sleep(0.02)
            if call.data:
                raise CallRefused(ResultCode.OVERLOADED)

        @met.server.on_call("items")
        async def items(call: Call) -> Any:
            yield 1
            yield 2

        @met.server.on("news")
        async def news(event: NamedEvent) -> None:
            pass

        @met.server.on_stream("files")
        async def files(stream: Stream) -> None:
            await stream.receive()

        met.server.topic("prices")
        met.server.bus(f"sqlite:///{tmp_path}/bus.db", allow={"publish": met.client.node_id})
        told: list[dict[str, Any]] = []

        async def answered(count: int) -> None:
            def are_there() -> bool:
                told[:] = [one for one in lines(log) if one["event"] == "request.answered"]
                return len(told) == count

            await eventually(are_there)

        await met.peer.call("slow")
        with pytest.raises(CallRefused):
            await met.peer.call("slow", True)
        async with met.peer.call_stream("items") as answer:
            assert [item async for item in answer] == [1, 2]
        await met.peer.emit("news")
        await answered(4)
        async with met.peer.subscribe("prices"):
            pass
        await answered(5)
        stream = met.peer.open_stream("files")
        await stream.send(b"x")
        await answered(6)
        async with met.peer.bus() as bus:
            await bus.publish("shop.ordered", {"n": 1})
        await eventually(lambda: any(one.get("kind") == "bus publish" for one in lines(log)))
    assert [(one["kind"], one["topic"], one["code"]) for one in told] == [
        ("call", "slow", 0),
        ("call", "slow", ResultCode.OVERLOADED),
        ("call", "items", 0),
        ("event", "news", 0),
        ("topic", "prices", 0),
        ("stream", "files", 0),
    ]
    for one in told:
        assert one["peer"] == str(met.client.node_id)
        assert one["topic"] != "slow" or one["seconds"] >= 0.02
        assert one["text"].startswith(f"peer {met.client.node_id.short}: {one['kind']} ")
    assert " ms: ok" in told[0]["text"]


@pytest.mark.anyio
async def test_no_text_is_the_repr_of_an_object(anyio_backend: str, begin: Begin) -> None:
    log = begin("debug", "json", access=True, requests=True)
    async with meeting() as met:
        async with met.client.link(await met.server.listen("tcp://127.0.0.1:0")) as link:
            await link.ready()

        @met.server.on_call("fails")
        async def fails(call: Call) -> None:
            raise KeyError("it")

        for name in ("fails", "unknown"):
            with pytest.raises(CallRefused):
                await met.peer.call(name)
        with pytest.raises(CallRefused):
            await met.peer.subscribe("unknown").__aenter__()
        stream = met.peer.open_stream("unknown")
        with pytest.raises(ParleyError):
            await stream.receive()
        await met.peer.close()
    texts = [one["text"] for one in lines(log) if one["logger"].startswith("parley")]
    assert len(texts) > 5
    repr_of_object = r"<[A-Za-z_.]+[ :>]| object at 0x|[A-Z][a-z]+\([a-z_]+="
    assert not [text for text in texts if re.search(repr_of_object, text)]


HOSTILE = "gone\n2026-01-01 00:00:00,000 ERROR parley: forged\r\x1b]0;owned\x07\x1b[2J"


def test_an_exception_can_neither_forge_a_line_nor_steer_a_terminal(begin: Begin) -> None:
    log = begin("info", "text")
    try:
        raise RuntimeError(HOSTILE)
    except RuntimeError:
        logger.exception("it failed", extra={"event": "some.event"}, stack_info=True)
    first, *others = log.getvalue().splitlines()
    assert first.endswith("ERROR   parley.peer: it failed")
    assert others
    assert all(line.startswith("    ") and line.isprintable() for line in others)
    assert "    RuntimeError: gone" in others
    assert r"    2026-01-01 00:00:00,000 ERROR parley: forged\r\x1b]0;owned\x07\x1b[2J" in others
