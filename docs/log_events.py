"""Generate the page of log events from the calls that log them.

Logger, level and fields of an event are read from the code. `EVENTS` describes when it is logged.
"""

import ast
import logging
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = "docs/reference/log-events.md"

# When each event is logged.
EVENTS: Final = {
    "account.login": "a node logged in at this home",
    "account.lost": "a node lost its account, which ends its session",
    "answer.not-remembered": "a response is too long to be stored for a call that runs at most once",
    "answer.unsent": "a handler's return value cannot be encoded or is too long",
    "bridge.lost": "a bridge loses messages; logged once, later losses are only counted",
    "bus.bug": "a bug in a store, with the traceback",
    "bus.close-failed": "the file of a bus could not be closed properly",
    "bus.dead-lettered": "an event became a dead letter",
    "bus.event-too-large": "an event is too large for the connection to another node's bus",
    "bus.group-vanished": "a group was deleted from Redis and is created again",
    "bus.handler-ended": "a group's handler ended; the text has the reason",
    "bus.handler-failed": "a handler failed for an event, which is retried",
    "bus.handler-paused": "a handler pauses because the store failed",
    "bus.leave-failed": "a consumer could not return its pending events",
    "bus.publish-retried": "an event is published again because the result of the first attempt is unknown",
    "bus.request-failed": "the store failed while it processed a peer's request",
    "bus.rollback-failed": "a transaction could not be rolled back; the file is reopened",
    "bus.store-evicts": "the Redis server is configured to delete streams when it is full",
    "bus.store-not-durable": "the Redis server loses events when it stops",
    "bus.store-settings-unknown": "the Redis server does not reveal its durability settings",
    "bus.store-syncs-late": "the Redis server can lose the last second of events in a power failure",
    "bus.trimmed-early": "events were trimmed while they were pending",
    "bus.unavailable": "the store is unavailable; the operation is retried",
    "cli.bug": "a bug in a command, with the traceback",
    "connection.bug": "a bug ended a connection, with the traceback",
    "connection.closed": "a connection is closed; `remote` is true if the other side closed it. The level is warning unless the connection was closed in order or `dial.failed` already reports it",
    "connection.foreign": "a client other than a node, such as a browser, connected to a native port",
    "connection.opened": "a handshake completed; `dialled` is true if this node dialled",
    "connection.suspended": "a session lost its transport and waits to be resumed",
    "connection.resumed": "a session resumed after `seconds`",
    "connection.turned-away": "a limit rejected a connection before the handshake",
    "console.fetch-failed": "the console's data could not be fetched, with the traceback",
    "dial.failed": "a dial was refused (warning) or failed (info); debug if the previous dial to this address failed in the same way",
    "discovery.not-announced": "the node cannot currently be announced on this network",
    "discovery.too-many": "more nodes are announced than the list can contain",
    "end.forced": "the process was killed because it did not end within some seconds of a signal; the threads it waited for are listed",
    "federation.card-full": "our addresses do not fit in our card",
    "federation.cards-refused": "a neighbour's cards break the rules, or it refuses our cards",
    "federation.clock-wrong": "a server's clock or the local clock is `ahead` by some seconds",
    "federation.link-down": "a link was lost",
    "federation.link-failed": "a link cannot be dialled; logged again when the reason changes",
    "federation.link-refused": "a node that is not a member requested a link",
    "federation.link-up": "a link was established",
    "federation.statement-refused": "a neighbour sent a key statement that is not valid",
    "follow.ended": "this node no longer follows another node's topic",
    "follow.failed": "a bug ended the following of another node's topic",
    "forward.again": "a forwarded topic is linked again after `without` seconds",
    "forward.failed": "a forwarded topic's subscription was refused or ended; `link.failed` reports connection failures",
    "forward.linked": "a forwarded topic is linked",
    "forward.lost": "notes of a forwarded topic were lost; logged again when the number has doubled",
    "forward.misfit": "a forwarded note does not fit the local topic; logged once",
    "guest.closed": "a client of another dialect disconnected",
    "guest.misbehaved": "a client violated the rules of its dialect",
    "guest.opened": "a client of the event relay connected",
    "handler.failed": "a handler raised an exception, with the traceback",
    "handler.unfit": "a handler yields values, which SimProto cannot express",
    "handshake.failed": "a connection ended before its handshake completed; info if the peer only disconnected or this node dialled",
    "hook.ended": "a link's hook ended with the connection",
    "home.no-statements": "a home sent no valid key statements about a node ID that could not be dialled",
    "hook.failed": "a link's hook raised an exception",
    "hook.missed": "a link's hook is skipped because its previous call is still running",
    "interceptor.failed": "an interceptor raised an exception, with the traceback",
    "identity.conflict": "two successors claim to be an ended node; a person must choose",
    "identity.dialled": "an ended node ID was dialled; the node connects to its successor",
    "identity.ended": "a key statement ended a node ID",
    "identity.file-incomplete": "the file of key statements lacks some that are stored; they are written again",
    "identity.listener-failed": "a function that follows key statements raised an exception",
    "identity.not-written": "a key statement is kept in memory because its file cannot be written",
    "identity.own-ended": "this node's own ID has ended",
    "identity.question": "a statement names a successor that a person must accept",
    "identity.statement-dropped": "a key statement was dropped because there is no room for it",
    "identity.statement-refused": "a peer presented key statements that are not valid, or in a broken chain",
    "identity.succeeded": "an ended node ID has a successor",
    "journal.alarm-failed": "`on_alarm` raised an exception",
    "journal.bug": "a bug in the journal's thread",
    "journal.end-lost": "the end of the journal could not be written to disk",
    "journal.failed": "the journal cannot be written; further records are lost",
    "journal.torn": "a segment may end with an incomplete record",
    "link.bug": "a bug while a link was dialled",
    "link.failed": "a link cannot be dialled; logged again when the reason changes",
    "link.up": "a link was established",
    "listener.accept-failed": "a connection could not be accepted, usually because too many files are open",
    "log.rationed": "lines of this kind were omitted because of the rate limit; the text has their number",
    "metrics.not-fetched": "data for a metric cannot be fetched, with the traceback; the previous value is reported",
    "node.closed": "the node closed; the text has the number of peers",
    "note.unsent": "a note cannot be expressed in SimProto",
    "peer.first-use": "a node was seen for the first time and recorded as known",
    "relay.dropped": "a client of the relay was disconnected because it does not read",
    "relay.hook-failed": "`on_fault` raised an exception",
    "reload.done": "the settings were reloaded; `changed` lists the changed settings",
    "reload.failed": "the settings could not be reloaded; the old ones remain in force",
    "reload.ignored": "SIGHUP was ignored: the server is not ready yet or is closing",
    "reload.needs-restart": "these `settings` changed but take effect only after a restart",
    "request.answered": "a request was answered (with `--log-requests`, or at level debug). `kind` is call, event, topic (a subscription), stream (when it ends) or bus with the action; `seconds` is the duration",
    "request.refused": "a request was refused before a handler ran because it is unknown or not allowed, or the node is closing. `code` is the code of Result or Reset; `kind` is omitted if a rule of `allow=` refused the request",
    "resume.bug": "a bug while a session was dialled again",
    "resume.failed": "an attempt to resume a session failed or was rejected; debug if the previous attempt at this address failed in the same way",
    "roles.failed": "the function that assigns roles raised an exception; the node has only its other roles",
    "rule.failed": "`allow=` raised an exception; access is denied",
    "secret.exposed": "other users can read a file that contains a secret",
    "stream.ended": "a stream was reset or its connection lost while its handler was running",
    "subscriber.slow": "a SimProto client lost a subscription because it was too slow",
    "subscription.again": "a topic with history refused a subscription, which is requested again",
    "supervisor.unheard": "the service status could not be sent to systemd",
    "task.bug": "a bug in a task, with the traceback",
    "topic.state-failed": "a topic's state could not be sent to a subscriber",
    "topic.tap-failed": "a local listener of a topic raised an exception",
    "transfer.failed": "a file cannot be stored",
    "transfer.refused": "a peer sent data that is not a valid file transfer",
    "transport.read-failed": "reading from a socket failed unexpectedly",
    "transport.unended": "tasks ignore cancellation while a node closes; on asyncio, with the places where they wait",
    "transport.unclosed": "the event loop has not closed some sockets",
    "transport.write-failed": "writing to a socket failed unexpectedly",
    "trust.failed": "a trust policy raised an exception; the node is not trusted",
    "trust.file-unreadable": "a file of known peers cannot be read; connected nodes remain connected for 30 s",
    "trust.hook-failed": "an accept hook raised an exception; the node is rejected",
    "web.answer-failed": "a metrics or console page failed",
    "web.bug": "a bug while an HTTP request was served",
    "web.full": "a limit rejected an HTTP connection",
    "web.not-accepted": "an HTTP connection could not be accepted, for example because too many files are open; accepting is retried",
}

# Loggers and levels of events that helper functions log.
INDIRECT: Final = {
    "bus.group-vanished": ("parley.bus", "warning"),
    "bus.trimmed-early": ("parley.bus", "warning"),
    "connection.closed": ("parley.access", "info, warning"),
    "connection.foreign": ("parley.access", "warning"),
    "connection.opened": ("parley.access", "info"),
    "connection.suspended": ("parley.access", "info"),
    "connection.resumed": ("parley.access", "info"),
    "dial.failed": ("parley.peer", "debug, info, warning"),
    "federation.link-failed": ("parley.federation", "warning"),
    "guest.closed": ("parley.access", "info"),
    "guest.misbehaved": ("parley.access", "warning"),
    "handshake.failed": ("parley.access", "info, warning"),
    "resume.failed": ("parley.peer", "info, debug"),
}

_INTRO: Final = """\
# Log events

Each log line reports an event. The event's name stays the same in later versions, while the text may change.
`--log-format json` includes the name in each line (see [logging](../guides/run-a-server.md#logging)):

    {"time": "2026-11-27T00:35:54.511339Z", "level": "info", "logger": "parley.access", "event": "request.refused",
     "text": "peer 5jkqt65a: call 'nope' is refused: topic not found", "peer": "5jkqt65a..", "address": "127.0.0.1",
     "kind": "call", "topic": "nope", "code": 1}

(This is a single line, wrapped here.) `time` is in UTC, `text` is the message for people, and `traceback` is the
traceback of an error that has one. The table lists the other fields of each event:

- `peer` is a node ID, or null if no node ID was authenticated.
- `address` is the address that the connection came from or that was dialled.
- `code` is a protocol code ([close codes](errors.md#close-codes)).
- `left_out` is the number of lines omitted by rate limiting, which keeps unknown peers from filling the log.

Messages of other libraries have the event `other`. In a program, each `LogRecord` has the same fields as attributes,
such as `record.event` and `record.peer`.

The logger `parley.access` is the access log. It reports connections that open and close, and refused requests. With
`--log-requests` (`serve.log_requests`) it also reports each answered request with its duration.
"""

_LEVELS: Final = {name: name for name in ("debug", "info", "warning", "error", "critical")} | {
    "exception": "error"
}
_LOGGER: Final = re.compile(r"(\w+\.)?(\w*_)?logger|_log|access|logging\.getLogger\(.*\)")
_NAME: Final = re.compile(r"[a-z]+(?:-[a-z]+)*\.[a-z]+(?:-[a-z]+)*")
# Attributes of every log record and keys of every JSON line.
_TAKEN: Final = vars(logging.makeLogRecord({})).keys() | {
    *("message", "asctime", "time", "level", "logger", "text", "traceback")
}


@dataclass
class Logged:
    """The loggers, levels and fields of an event, according to the code."""

    loggers: set[str] = field(default_factory=set)
    levels: set[str] = field(default_factory=set)
    fields: set[str] = field(default_factory=set)


def build() -> str:
    """Return the page.

    Raises:
        ValueError: `EVENTS` and the code name different events, or a name is invalid.
    """
    found = logged()
    if different := found.keys() ^ EVENTS.keys():
        raise ValueError(f"log events must be in the code and in EVENTS: {sorted(different)}")
    lines = [
        _INTRO,
        "| event | logger | level | fields | when |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, when in EVENTS.items():
        event = found[name]
        if not _NAME.fullmatch(name) or event.fields & _TAKEN:
            raise ValueError(f"log event {name!r} has an unsuitable name or field")
        loggers, levels, fields = (
            ", ".join(sorted(each)) for each in (event.loggers, event.levels, event.fields)
        )
        quoted = [f"`{each.replace(', ', '`, `')}`" if each else "" for each in (loggers, fields)]
        lines.append(f"| `{name}` | {quoted[0]} | {levels} | {quoted[1]} | {when} |")
    return "\n".join(lines) + "\n"


def logged() -> dict[str, Logged]:
    """Return all events that the code logs, by name."""
    found: defaultdict[str, Logged] = defaultdict(Logged)
    for path in (ROOT / "node").rglob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        calls = list(_calls(tree))
        for each in _dicts(tree) if calls else ():
            for name in _names(each):
                found[name].fields |= _fields_of(each)
        for call, logger, levels in calls:
            for name in (name for each in _dicts(call) for name in _names(each)):
                found[name].loggers.add(logger)
                found[name].levels |= levels
    for name, (logger, level) in INDIRECT.items():
        found[name].loggers = {logger}
        found[name].levels = {level}
    return dict(found)


def _calls(tree: ast.Module) -> Iterator[tuple[ast.Call, str, set[str]]]:
    """Yield each logging call with its logger and levels."""
    text = ast.unparse(tree)
    loggers = dict(
        re.findall(r"^(\w+)(?:: Final)? = logging\.getLogger\('(.*?)'\)", text, re.MULTILINE)
    )
    first = next(iter(loggers.values()), "")
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Attribute(on, level), arguments) if level in {*_LEVELS, "log"}:
                of = ast.unparse(on)
                if level == "log" and not _LOGGER.fullmatch(of) and arguments:
                    of = ast.unparse(arguments[0])  # a rate limiter; the logger is its argument
                if not _LOGGER.fullmatch(of):
                    continue
                named = re.search(r"getLogger\('(.*?)'\)", of)
                own = named[1] if named else loggers.get(of, first)
                logger = "parley.access" if "access" in of or not own else own
                found = re.findall(r"logging\.([A-Z]+)\b", ast.unparse(node))
                levels = {_LEVELS[level]} if level != "log" else {one.lower() for one in found}
                yield node, logger, levels


def _dicts(tree: ast.AST) -> Iterator[ast.Dict]:
    """Yield the dictionaries that have a key `event`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict) and "event" in _keys(node):
            yield node


def _keys(found: ast.Dict) -> list[str | None]:
    return [str(key.value) if isinstance(key, ast.Constant) else None for key in found.keys]


def _names(found: ast.Dict) -> list[str]:
    """Return the event names in a dictionary; empty if the caller passes the name."""
    value = found.values[_keys(found).index("event")]
    parts = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
    return [str(part.value) for part in parts if isinstance(part, ast.Constant)]


def _fields_of(found: ast.Dict) -> set[str]:
    """Return the fields other than the event; `party` adds two."""
    unpacked = (
        ast.unparse(value) for key, value in zip(found.keys, found.values, strict=True) if not key
    )
    party = {"peer", "address"} if any("party(" in part for part in unpacked) else set()
    return (set(filter(None, _keys(found))) | party) - {"event"}
