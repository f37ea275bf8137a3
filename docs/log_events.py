"""Generate the page of log events from the calls that log them.

Logger, level and fields of an event are read from the code; `EVENTS` has what the code cannot say.
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
    "account.lost": "a node lost its account, and its session ends",
    "answer.not-remembered": "an answer to a call that is made once is longer than is remembered",
    "answer.unsent": "what a handler returned has no encoding, or is too long",
    "bridge.lost": "what passes a bridge is lost: told once, then only counted",
    "bus.bug": "a mistake of ours in a store, with its traceback",
    "bus.close-failed": "the file of a bus could not be closed properly",
    "bus.dead-lettered": "an event became a dead letter",
    "bus.event-too-large": "an event does not fit the connection to another node's bus",
    "bus.group-vanished": "a group vanished from a Redis, and is created again",
    "bus.handler-ended": "the handler of a group ends, and why",
    "bus.handler-failed": "a handler failed at an event, which is tried again",
    "bus.handler-paused": "a handler pauses because the store failed",
    "bus.leave-failed": "a consumer could not give back what it had",
    "bus.publish-retried": "an event is published again, because the outcome of the first attempt is unknown",
    "bus.request-failed": "the store failed at a request of a peer",
    "bus.rollback-failed": "a transaction could not be undone; the file is reopened",
    "bus.store-evicts": "the Redis deletes streams when it is full",
    "bus.store-not-durable": "the Redis loses events when it stops",
    "bus.store-settings-unknown": "the Redis does not reveal its durability settings",
    "bus.store-syncs-late": "the Redis may lose the last second in a power cut",
    "bus.trimmed-early": "events were trimmed while they were pending",
    "bus.unavailable": "the store is unavailable; the operation is retried",
    "cli.bug": "a mistake of ours in a command, with its traceback",
    "connection.bug": "a mistake of ours that ended a connection, with its traceback",
    "connection.closed": "a connection is over; `remote` says that the other side ended it. Warning, unless in order or told as `dial.failed`",
    "connection.foreign": "something else than a node, such as a browser, came to a native port",
    "connection.opened": "a handshake was completed; `dialled` by this node or by the other",
    "connection.suspended": "a session lost its transport, and waits for another",
    "connection.resumed": "it goes on, so many `seconds` later",
    "connection.turned-away": "a limit kept a connection out, before a word was said",
    "console.fetch-failed": "the console's data could not be fetched, with the traceback",
    "dial.failed": "a dial was refused (warning) or led nowhere (info); debug if the last one there did in the same way",
    "discovery.not-announced": "the node cannot be announced on this network for now",
    "discovery.too-many": "more nodes are announced than are listed",
    "end.forced": "the process did not end so many seconds after a signal, and was ended; with the threads that it waited for",
    "federation.card-full": "our card has no room for our addresses",
    "federation.cards-refused": "a neighbour's cards break the rules, or it takes none of ours",
    "federation.clock-wrong": "a server's clock, or ours, is so many seconds `ahead`",
    "federation.link-down": "a link was lost",
    "federation.link-failed": "a link cannot be dialled; told when the reason changes",
    "federation.link-refused": "a node that is not a member wanted a link",
    "federation.link-up": "a link is there",
    "follow.ended": "a topic elsewhere is not followed any more",
    "follow.failed": "a mistake of ours ended that",
    "forward.again": "a forwarded topic is linked again, after so many seconds `without`",
    "forward.failed": "the subscription was refused or has ended; `link.failed` is for the connection",
    "forward.linked": "it is linked",
    "forward.lost": "so many of its notes were lost; told when the number has doubled",
    "forward.misfit": "a note does not fit the topic here; told once",
    "guest.closed": "a client of another dialect has left",
    "guest.misbehaved": "it broke the rules of its dialect",
    "guest.opened": "a client of the event relay is there",
    "handler.failed": "a handler raised, with its traceback",
    "handler.unfit": "a handler yields, for which SimProto has no form",
    "handshake.failed": "a stranger's connection ended before its handshake did; info if it only hung up, or was dialled from here",
    "hook.ended": "a hook of a link ended with the connection",
    "hook.failed": "a hook of a link raised",
    "hook.missed": "a hook still runs, and misses a turn",
    "interceptor.failed": "an interceptor raised, with its traceback",
    "journal.alarm-failed": "`on_alarm` raised",
    "journal.bug": "a mistake of ours in the journal's thread",
    "journal.end-lost": "the disk did not take the journal's end",
    "journal.failed": "the journal cannot be written: nothing is kept any more",
    "journal.torn": "a segment may end in part of a record",
    "link.bug": "a mistake of ours as something was dialled",
    "link.failed": "a link cannot be dialled; told when the reason changes",
    "link.up": "a link is there",
    "listener.accept-failed": "a connection could not be accepted: mostly too few open files",
    "log.rationed": "so many lines of that kind were left out",
    "metrics.not-fetched": "what must be fetched for a metric cannot be, with its traceback; it is told as it was",
    "node.closed": "the node has closed so many peers",
    "note.unsent": "a note has no form in SimProto",
    "peer.first-use": "somebody was met for the first time, and is known from now on",
    "relay.dropped": "a client of the relay does not read, and was dropped",
    "relay.hook-failed": "`on_fault` raised",
    "reload.done": "the settings were read again, and these `changed`",
    "reload.failed": "they cannot be read, and stay as they were",
    "reload.ignored": "SIGHUP was ignored: the server is not ready yet or is closing",
    "reload.needs-restart": "these `settings` have changed and need a restart",
    "request.answered": "a request was answered: with `--log-requests`, or on level debug. `kind` is call, event, topic (a subscription), stream (at its end) or bus with the action; `seconds` is how long that took",
    "request.refused": "a request was refused before a handler ran: unknown, not allowed, or the node is closing. `code` is that of Result or of Reset; `kind` is left out where a rule of `allow=` refused it",
    "resume.bug": "a mistake of ours as a session was dialled again",
    "resume.failed": "an attempt to resume a session led nowhere, or the other side rejected it; debug if the last one there ended in the same way",
    "roles.failed": "the function that tells roles raised: a node has no others than those that are known",
    "rule.failed": "`allow=` raised, so nothing is allowed",
    "secret.exposed": "others can read a file with a secret in it",
    "stream.ended": "a stream was reset, or its connection lost, under its handler",
    "subscriber.slow": "a client of SimProto lost a subscription",
    "subscription.again": "a kept subscription was refused, and is asked for again",
    "supervisor.unheard": "the status of the service could not be sent to systemd",
    "task.bug": "a mistake of ours in a task, with its traceback",
    "topic.state-failed": "the state of a topic cannot be told to a subscriber",
    "topic.tap-failed": "what listens to a topic inside of the node raised",
    "transfer.failed": "a file cannot be stored",
    "transfer.refused": "what came is not how files are sent",
    "transport.read-failed": "a socket failed in an odd way",
    "transport.unended": "tasks ignore cancellation while a node closes; with the places where they wait, on asyncio",
    "transport.unclosed": "the loop has not closed some sockets",
    "transport.write-failed": "likewise",
    "trust.failed": "a trust policy raised, so nobody is trusted",
    "trust.file-unreadable": "a file of known peers cannot be read; for 30 s whoever was let in stays",
    "trust.hook-failed": "an accept hook raised, so the node is not let in",
    "web.answer-failed": "a page of metrics or of the console failed",
    "web.bug": "a mistake of ours as HTTP was served",
    "web.full": "a limit kept a connection of HTTP out",
    "web.not-accepted": "HTTP cannot be accepted, as when there are too many open files; it is tried again",
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
# Events of the log

Each line of the log tells of an event with a name that stays the same from version to version, whatever becomes of
the sentence. `--log-format json` prints it with each line ([how](../guides/run-a-server.md#logging)):

    {"time": "2026-11-27T00:35:54.511339Z", "level": "info", "logger": "parley.access", "event": "request.refused",
     "text": "peer 5jkqt65a: call 'nope' is refused: topic not found", "peer": "5jkqt65a..", "address": "127.0.0.1",
     "kind": "call", "topic": "nope", "code": 1}

(one line, broken here). `time` is UTC, `text` the sentence that people read, and an error with a traceback has it as
`traceback`. Besides, an event has the fields that the table names. `peer` is a node id, or null where none was proved;
`address` where the connection came from, or what was dialled; `code` the protocol's
([close codes](errors.md#close-codes)). Where lines were left out, so that strangers cannot fill the log, `left_out`
says how many. What other libraries log has the event `other`. In a program the same stands on each `LogRecord`:
`record.event`, `record.peer`.

The access log is the logger `parley.access`: connections that open and close, and requests that are refused. With
`--log-requests` (`serve.log_requests`) it also has each answered request with its duration.
"""

_LEVELS: Final = {name: name for name in ("debug", "info", "warning", "error", "critical")} | {
    "exception": "error"
}
_LOGGER: Final = re.compile(r"(\w+\.)?(\w*_)?logger|_log|access|logging\.getLogger\(.*\)")
_NAME: Final = re.compile(r"[a-z]+(?:-[a-z]+)*\.[a-z]+(?:-[a-z]+)*")
# What each log record, or line of JSON, has already.
_TAKEN: Final = vars(logging.makeLogRecord({})).keys() | {
    *("message", "asctime", "time", "level", "logger", "text", "traceback")
}


@dataclass
class Logged:
    """What the code says of an event."""

    loggers: set[str] = field(default_factory=set)
    levels: set[str] = field(default_factory=set)
    fields: set[str] = field(default_factory=set)


def build() -> str:
    """Return the page.

    Raises:
        ValueError: an event has no entry in `EVENTS` or the reverse, or its name or a field is
            unsuitable.
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
    """Return the events that the code names."""
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
    """The calls that log a line, each with its logger and its levels."""
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
                    of = ast.unparse(arguments[0])  # a rate limit, which is given the logger
                if not _LOGGER.fullmatch(of):
                    continue
                named = re.search(r"getLogger\('(.*?)'\)", of)
                own = named[1] if named else loggers.get(of, first)
                logger = "parley.access" if "access" in of or not own else own
                found = re.findall(r"logging\.([A-Z]+)\b", ast.unparse(node))
                levels = {_LEVELS[level]} if level != "log" else {one.lower() for one in found}
                yield node, logger, levels


def _dicts(tree: ast.AST) -> Iterator[ast.Dict]:
    """The dictionaries that name an event."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict) and "event" in _keys(node):
            yield node


def _keys(found: ast.Dict) -> list[str | None]:
    return [str(key.value) if isinstance(key, ast.Constant) else None for key in found.keys]


def _names(found: ast.Dict) -> list[str]:
    """The event, or either of two; nothing if the name is that of a caller."""
    value = found.values[_keys(found).index("event")]
    parts = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
    return [str(part.value) for part in parts if isinstance(part, ast.Constant)]


def _fields_of(found: ast.Dict) -> set[str]:
    """The fields beside the event; `party` adds two."""
    unpacked = (
        ast.unparse(value) for key, value in zip(found.keys, found.values, strict=True) if not key
    )
    party = {"peer", "address"} if any("party(" in part for part in unpacked) else set()
    return (set(filter(None, _keys(found))) | party) - {"event"}
