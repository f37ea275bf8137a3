"""`parley bus publish`: publish one event, or one for each line of standard input.

An ID is printed only after the bus has stored the event.
"""

import sys
from contextlib import aclosing
from typing import Any

from parley._node.bus import bus as buses
from parley._node.bus.config import BusConfig
from parley._node.bus.errors import BusClosedError, BusUnavailableError, InvalidEventError
from parley._node.bus.identifiers import split_name
from parley._node.cli.bus.connection import open_bus_at
from parley._node.cli.options import NodeOptions
from parley._node.cli.output import Output, pluralise, stdout_errors
from parley._node.cli.param_types import parse_json
from parley._node.cli.run import Uvloop, run
from parley._node.cli.standard_io import PacedOutput, read_batches, stdin_descriptor
from parley._node.errors import ConfigError, FileError


def publish(
    options: NodeOptions,
    bus: str,
    name: str,
    data: str | None,
    field: list[str] | None,
    json_lines: bool,
    key: str | None,
    durable: bool,
) -> None:
    given = sum((data is not None, bool(field), json_lines))
    if given > 1:
        named = [
            text
            for text, is_given in (
                ("DATA", data is not None),
                ("--field", bool(field)),
                ("--json-lines", json_lines),
            )
            if is_given
        ]
        raise ConfigError(f"cannot use {' with '.join(named)}: give the data in one way only")
    if json_lines and key is not None:
        raise ConfigError(
            f"cannot use --key {key!r} with --json-lines: a key belongs to one event; "
            "leave one of the options out"
        )
    split_name(name)
    event = _fields(field) if field else _object(data)
    descriptor = stdin_descriptor() if json_lines else None

    async def publishing(options: NodeOptions, out: Output) -> None:
        count = 0
        async with open_bus_at(options, out, bus, new=True) as opened_bus:
            if descriptor is None:
                id = await _one(opened_bus, name, event, key, durable=durable)
                out.effect = _stored(1, id)
                out.print(id)
                out.event("published", id=id)
                count = 1
            else:
                count = await _lines(opened_bus, name, descriptor, out, durable=durable)
        out.done(count=count)

    uvloop = Uvloop.IMPOSSIBLE if json_lines else Uvloop.DEFAULT
    run(options, publishing, log_level="warning", uvloop=uvloop)


async def _one(
    bus: buses.Bus, name: str, event: dict[str, Any], key: str | None, *, durable: bool
) -> str:
    try:
        return await bus.publish(name, event, idempotency_key=key, durable=durable)
    except BusUnavailableError as error:
        again = (
            "publish again with the same --key to be safe"
            if key
            else "with --key, publishing again would be safe"
        )
        text = f"cannot tell whether the event was stored: {error}; {again}"
        raise BusUnavailableError(text) from error


def _stored(count: int, last: str) -> str:
    return f"{pluralise(count, 'event')} stored, the last is {last}"


async def _lines(bus: buses.Bus, name: str, descriptor: int, out: Output, *, durable: bool) -> int:
    """Publish the lines of a file in batches, and return the number of events."""
    pace, count, number = PacedOutput(sys.stdout), 0, 0
    async with aclosing(read_batches(descriptor, BusConfig().max_event_bytes)) as batches:
        async for batch in batches:
            events: list[tuple[int, dict[str, Any]]] = []
            problem = None
            try:
                for line in batch:
                    number += 1
                    if line.strip():
                        events.append((number, _line(line, number)))
            except FileError as error:
                problem = error  # the lines before it are published
            ids, refusal = await _publish(bus, name, events, durable=durable)
            count += len(ids)
            if ids:
                out.effect = _stored(count, ids[-1])
            with stdout_errors(out.effect):
                await pace.print("".join(out.line(id, "published", id=id) for id in ids))
            problem = refusal or problem
            if problem is not None:
                raise problem
    return count


async def _publish(
    bus: buses.Bus, name: str, events: list[tuple[int, dict[str, Any]]], *, durable: bool
) -> tuple[list[str], FileError | None]:
    """Publish numbered events up to the first invalid one. Return the IDs and the error."""
    try:
        return await bus.publish_many(name, [event for _, event in events], durable=durable), None
    except InvalidEventError:
        pass  # nothing was stored; publish one by one to find the invalid event
    except BusUnavailableError as error:
        text = f"cannot tell whether {_place(events)} was stored: {error}"
        raise BusUnavailableError(text) from error
    except BusClosedError as error:
        raise BusUnavailableError(f"cannot store {_place(events)}: {error}") from error
    ids: list[str] = []
    for number, event in events:
        try:
            ids.append(await bus.publish(name, event, durable=durable))
        except InvalidEventError as error:
            return ids, FileError(f"cannot publish line {number:,}: {error}")
    return ids, None


def _place(events: list[tuple[int, dict[str, Any]]]) -> str:
    first, last = events[0][0], events[-1][0]
    return f"line {first:,}" if first == last else f"the batch of lines {first:,} to {last:,}"


def _line(line: bytes, number: int) -> dict[str, Any]:
    try:
        return _require_object(parse_json(line))
    except ValueError as error:
        raise FileError(f"cannot publish line {number:,}: {error}") from error


def _object(text: str | None) -> dict[str, Any]:
    try:
        return {} if text is None else _require_object(parse_json(text))
    except ValueError as error:
        raise ConfigError(f"invalid data: {error}") from error


def _fields(texts: list[str]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for text in texts:
        name, mark, value = text.partition("=")
        if not mark or not name:
            raise ConfigError(f"invalid --field {text!r}: expected NAME=VALUE")
        try:
            data[name] = parse_json(value)
        except ValueError:
            data[name] = value
    return data


def _require_object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"not a JSON object: {ascii(value)[:80]}")
    return value
