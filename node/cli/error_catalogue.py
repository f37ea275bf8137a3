"""`parley errors`: the meaning and cause of each code, and what to do.

The reference page of errors is generated from it. Numbers and names are those of
`node.protocol.codes`, `node.dialects.relay.codec` and `node.cli.exit_codes`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import click
from rich import box
from rich.table import Table

from parley._node.cli.exit_codes import Exit
from parley._node.cli.output import Output
from parley._node.dialects.relay.codec import RelayCode
from parley._node.errors import ConfigError
from parley._node.protocol.codes import (
    EVENT_FAILED,
    FIRST_APPLICATION_CODE,
    LAST_CODE,
    RESULT_SENTENCES,
    CloseCode,
    ResultCode,
    code_name,
)

Kind = Literal["close", "result", "event", "relay", "exit"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """One code: where it is used (`kind`), which side sends or raises it, and how to fix the
    problem (`mend`).
    """

    kind: Kind
    code: int
    name: str
    meaning: str
    raised_by: str
    mend: str

    @property
    def names(self) -> frozenset[str]:
        """Its number, its name, and its name in `--json`."""
        names = [str(self.code), *self.name.split(" / ")]
        if self.kind in ("result", "event") and self.code in RESULT_SENTENCES:
            names.append(RESULT_SENTENCES[self.code])
        return frozenset(map(_written, names))


# Meaning, source, and what to do.
_Text = tuple[str, str, str]

_CLOSE: Final[dict[CloseCode, _Text]] = {
    CloseCode.NORMAL: (
        "the connection was closed normally",
        "the side that closed the connection",
        "nothing; connect again to continue",
    ),
    CloseCode.GOING_AWAY: (
        "the node is shutting down, or dropped the connection",
        "the closing node",
        "connect again later, or to another address",
    ),
    CloseCode.PROTOCOL_ERROR: (
        "the received bytes violate the protocol",
        "the receiver of the bytes",
        "read the reason in the receiver's log; check that both sides run compatible versions",
    ),
    CloseCode.BAD_RECORD: (
        "the bytes were altered, reordered or truncated in transit, or encrypted with other keys",
        "the receiver of the bytes",
        "during a handshake: give both nodes the same network key, or none at all; otherwise look "
        "for a proxy on the path: if the error recurs, the connection is being tampered with",
    ),
    CloseCode.SEAL_VIOLATION: (
        "a signature over the received events is wrong or was not received in time",
        "the receiver of the events",
        "as for bad-record; a sender that stalls for 10 s also causes it",
    ),
    CloseCode.AUTHENTICATION_FAILED: (
        "a side did not prove its identity, or its identity is not allowed, or no longer allowed",
        "either side, mostly the dialled one",
        "ask the operator of that node to allow your node ID; if you have another key, give it "
        "with --identity",
    ),
    CloseCode.NO_COMMON_ALGORITHM: (
        "the two sides share no algorithm of one kind; the text names the kind",
        "the dialled side",
        "allow more algorithms with --kex, --signing, --hash, --cipher or --sealing, or require "
        "fewer with --require",
    ),
    CloseCode.UNSUPPORTED_VERSION: (
        "the two sides share no protocol version; the text names the versions",
        "the dialled side",
        "update the older side",
    ),
    CloseCode.PLAINTEXT_REFUSED: (
        "the node accepts encrypted connections only",
        "the dialled side",
        "leave --plaintext out",
    ),
    CloseCode.FRAME_TOO_LARGE: (
        "a frame is longer than the negotiated limit",
        "the receiver of the frame",
        "check that the address belongs to a Parley node, and that both sides run compatible "
        "versions",
    ),
    CloseCode.TIMEOUT: (
        "the handshake took more than 10 s, or the other side did not respond for 25 s",
        "the waiting side",
        "check the network and the load of both machines; try again",
    ),
    CloseCode.TOO_MANY_STREAMS: (
        "more streams are open than the negotiated limit",
        "the receiver of the Open",
        "close streams that are no longer needed, or raise max_streams on both sides",
    ),
    CloseCode.OVERLOADED: (
        "a limit of the node was exceeded: connections, streams, bytes or Pings",
        "the node with the limit",
        "send fewer requests at a time, or retry later; or raise the limits of that node",
    ),
    CloseCode.INTERNAL_ERROR: (
        "a handler or Parley itself failed",
        "the side that failed",
        "read that node's log, which has the traceback",
    ),
    CloseCode.UNKNOWN_SESSION: (
        "the session to resume has ended or never existed",
        "the dialled side",
        "nothing: a new session replaces it",
    ),
    CloseCode.NOT_AUTHORISED: (
        "your node may not open streams with this label",
        "the receiver of the stream",
        "ask the operator of that node to allow your node ID; or give an allowed key with "
        "--identity",
    ),
    CloseCode.WRONG_SUPERCATEGORY: (
        "streams with this label are not allowed between nodes of these roles",
        "the receiver of the stream",
        "check --role on both sides: client, server or peer",
    ),
    CloseCode.CANCELLED: (
        "the receiver stopped reading the stream, or its handler was cancelled",
        "the receiver of the stream",
        "nothing, if the cancellation was intended",
    ),
    CloseCode.SLOW_CONSUMER: (
        "the subscriber read too slowly",
        "the publisher",
        "read faster, or use a larger window; or let the topic drop its oldest notes instead",
    ),
    CloseCode.NO_HANDLER: (
        "the node has no handler for streams with this label",
        "the receiver of the stream",
        "check the spelling of the label, and list what the node offers with parley topics",
    ),
    CloseCode.REFUSED: (
        "the label is reserved, or the node is closing and accepts no new streams",
        "the receiver of the stream",
        "use another label, or connect again later",
    ),
    CloseCode.CONNECTION_LOST: (
        "the connection ended without a Close; this code is never sent",
        "the side that noticed",
        "check the network; during a handshake, check that both nodes have the same network key",
    ),
    CloseCode.PEER_NOT_TRUSTED: (
        "the local trust policy refused the other node, or has since revoked its trust; this "
        "code is never sent",
        "the side whose policy refused",
        "read the reason; confirm a new node ID with its operator over a separate channel before "
        "you trust it",
    ),
}

_RESULT: Final[dict[ResultCode, _Text]] = {
    ResultCode.ACCEPTED: ("accepted", "the handler", "nothing"),
    ResultCode.TOPIC_NOT_FOUND: (
        "topic not found",
        "the called node",
        "check the spelling of the topic, and list what the node offers with parley topics",
    ),
    ResultCode.ALREADY_SUBSCRIBED: (
        "to Subscribe: already subscribed; to Unsubscribe and Notify: not subscribed",
        "the called node",
        "unsubscribe first, or subscribe over another connection",
    ),
    ResultCode.REJECTED: (
        "the publisher rejected the subscription, perhaps with data",
        "the topic's on_subscribe",
        "read the data",
    ),
    ResultCode.HANDLER_FAILED: (
        "the handler raised an exception",
        "the called node",
        "read that node's log, which has the traceback",
    ),
    ResultCode.DEADLINE_EXCEEDED: (
        "the deadline passed",
        "either side",
        "allow more time (--timeout), or find out what is slow; the call may still have been "
        "executed",
    ),
    ResultCode.CANCELLED: (
        "cancelled",
        "the called node",
        "nothing, if the cancellation was intended",
    ),
    ResultCode.OVERLOADED: (
        "overloaded",
        "the called node",
        "send fewer requests at a time, or retry later: too many requests are waiting, or the "
        "node is closing",
    ),
    ResultCode.NOT_AUTHORISED: (
        "not authorised",
        "the called node",
        "ask its operator to allow your node ID; or give an allowed key with --identity",
    ),
    ResultCode.PAYLOAD_TOO_LARGE: (
        "the payload is too large",
        "the called node",
        "send less, use a stream, or raise --max-payload on both sides",
    ),
    ResultCode.WRONG_SUPERCATEGORY: (
        "not allowed between nodes of these roles",
        "the called node",
        "check --role on both sides: client, server or peer",
    ),
    ResultCode.MALFORMED: (
        "malformed request",
        "the called node",
        "check that both sides run compatible versions; if the data has a type, the response "
        "says which part does not match",
    ),
    ResultCode.INVALID_EVENT: (
        "the bus does not accept this event",
        "the node that offers the bus",
        "read the text: the data is not a JSON object, is too long, or does not match its schema",
    ),
    ResultCode.STORE_FULL: (
        "the bus has no space for the event",
        "the node that offers the bus",
        "free disk space on that node, trim its streams, or raise max_store_bytes",
    ),
    ResultCode.STORE_DAMAGED: (
        "the stored events cannot be read",
        "the node that offers the bus",
        "read that node's log; restore the file from a backup",
    ),
    ResultCode.NOT_ONCE: (
        "the node cannot guarantee that this call runs only once",
        "the called node",
        "register the handler with once=True, or call without once",
    ),
    ResultCode.UNREACHABLE: (
        "unreachable",
        "a server on the path",
        "use another path, or retry when the link or the node is available again",
    ),
}
_RESULT_NAMES: Final = {ResultCode.ALREADY_SUBSCRIBED: "already-subscribed / not-subscribed"}

# Codes of the Error event of named events, besides the result codes.
_EVENT: Final[dict[int, _Text]] = {
    EVENT_FAILED: (
        "the handler of a named event failed",
        "the called node",
        "read that node's log, which has the traceback",
    ),
}

_RELAY: Final[dict[RelayCode, _Text]] = {
    RelayCode.INVALID_UUID: (
        "the UUID is all zeros or all ones, or was truncated",
        "the relay",
        "send the 16 bytes of another UUID first",
    ),
    RelayCode.ALREADY_CONNECTED: (
        "a client with this UUID is already connected",
        "the relay",
        "disconnect the other client, or use another UUID",
    ),
    RelayCode.INVALID_FORMAT: (
        "a message is shorter than two UUIDs, or longer than the relay's limit",
        "the relay",
        "send shorter messages, or raise dialects.limits.longest_frame of the relay",
    ),
    RelayCode.NOT_AUTHORISED: (
        "the sender in a message is not the UUID of its connection",
        "the relay",
        "use the client's own UUID as the sender",
    ),
    RelayCode.NOT_CONNECTED: (
        "the target of a message is not connected",
        "the relay",
        "send again later; the connection stays open",
    ),
    RelayCode.INTERNAL_ERROR: (
        "the relay failed",
        "the relay",
        "read the relay's log, which has the traceback",
    ),
}

_EXIT: Final[dict[Exit, _Text]] = {
    Exit.DONE: ("the command succeeded", "every command", "nothing"),
    Exit.FAILED: (
        "any other error, such as a connection that was closed with an error code",
        "every command",
        "read the error message; parley errors CODE explains its code",
    ),
    Exit.USAGE: (
        "an invalid option, address, algorithm or value",
        "every command",
        "read the error message, and parley COMMAND --help",
    ),
    Exit.UNREACHABLE: (
        "no node responds at the address, or the handshake was interrupted or timed out",
        "the dialling side",
        "check the address, the node, firewalls and network keys",
    ),
    Exit.NOT_TRUSTED: (
        "one side does not trust the other",
        "the dialling side",
        "read the reason; see parley peers, --trust and --identity",
    ),
    Exit.ANSWERED: (
        "a call was answered with an error code or not in time, or a bus refused a request",
        "the calling side",
        "read the error message; parley errors CODE explains its code",
    ),
    Exit.FILE: (
        "a file cannot be used: a key file, a file of known peers, a bus, or another file",
        "every command",
        "check the path and permissions of the file that the error message names",
    ),
    Exit.FINDINGS: (
        "a check found problems: in a journal, or with the lag of a group",
        "parley journal verify, parley bus groups",
        "read the findings: each names the problem, the place and the evidence",
    ),
}


def _all() -> Iterator[Explanation]:
    for close, text in _CLOSE.items():
        yield Explanation("close", close, code_name(close), *text)
    for result, text in _RESULT.items():
        name = _RESULT_NAMES.get(result, _written(result.name))
        yield Explanation("result", result, name, *text)
    for number, text in _EVENT.items():
        yield Explanation("event", number, "event-failed", *text)
    for relayed, text in _RELAY.items():
        yield Explanation("relay", relayed, _written(relayed.name), *text)
    for exit_code, text in _EXIT.items():
        yield Explanation("exit", exit_code, _written(exit_code.name), *text)


def _written(name: str) -> str:
    """Return a name in the form that users type: `deadline-exceeded`."""
    return name.strip().lower().replace("_", "-").replace(" ", "-")


EXPLANATIONS: Final[tuple[Explanation, ...]] = tuple(_all())


def explain(code: str) -> Sequence[Explanation]:
    """Return all codes with this number or name."""
    return [e for e in EXPLANATIONS if _written(code) in e.names]


_TITLES: Final[dict[Kind, str]] = {
    "close": "Close codes: how connections and streams end",
    "result": "Result codes: results of calls and subscriptions",
    "event": "Named events: codes of Error events besides the result codes",
    "relay": "Relay codes: errors of an event relay",
    "exit": "Exit codes of commands",
}


def errors(code: str | None, as_json: bool) -> None:
    found = EXPLANATIONS if code is None else explain(code)
    if not found:
        raise ConfigError(_unknown(code or ""))
    out = Output(as_json)
    for explanation in found:
        out.event("code", **_described(explanation))
    if code is None:
        for kind, title in _TITLES.items():
            out.table(_table(title, [e for e in found if e.kind == kind]))
    else:
        for explanation in found:
            _show(out, explanation)
    out.done(count=len(found))


def _unknown(code: str) -> str:
    if code.isdecimal() and FIRST_APPLICATION_CODE <= int(code) <= LAST_CODE:
        return f"cannot explain the code {code}: the application that uses it defines its meaning"
    return f"unknown code {code!r}; list all codes with: parley errors"


def _show(out: Output, explanation: Explanation) -> None:
    out.print(f"{explanation.kind} code {explanation.code}  {explanation.name}")
    out.print(f"  means       {explanation.meaning}")
    out.print(f"  comes from  {explanation.raised_by}")
    out.print(f"  what to do  {explanation.mend}")


def _table(title: str, explanations: list[Explanation]) -> Table:
    head = ("code", "name", "meaning", "comes from", "what to do")
    table = Table(*head, title=title, title_justify="left", box=box.SIMPLE_HEAD)
    # Names must not be truncated, so the column is as wide as the longest word.
    table.columns[1].min_width = max(len(word) for e in explanations for word in e.name.split())
    for e in explanations:
        table.add_row(str(e.code), e.name, e.meaning, e.raised_by, e.mend)
    return table


def _described(explanation: Explanation) -> dict[str, object]:
    return {
        "kind": explanation.kind,
        "code": explanation.code,
        "name": explanation.name,
        "meaning": explanation.meaning,
        "raised_by": explanation.raised_by,
        "what_to_do": explanation.mend,
    }


def names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[tuple[str, str]]:
    return [(name, "") for each in EXPLANATIONS for name in each.name.split(" / ")]
