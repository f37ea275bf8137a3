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
    """One code: `kind` is where it is used, `raised_by` its source, `mend` the advice."""

    kind: Kind
    code: int
    name: str
    meaning: str
    raised_by: str
    mend: str

    @property
    def names(self) -> frozenset[str]:
        """Its name, its number, and its name in `--json`."""
        names = [str(self.code), *self.name.split(" / ")]
        if self.kind in ("result", "event") and self.code in RESULT_SENTENCES:
            names.append(RESULT_SENTENCES[self.code])
        return frozenset(map(_written, names))


# Meaning, what raises it, what to do.
_Text = tuple[str, str, str]

_CLOSE: Final[dict[CloseCode, _Text]] = {
    CloseCode.NORMAL: (
        "the connection ended as intended",
        "the side that called close",
        "nothing; connect again if there is more to send",
    ),
    CloseCode.GOING_AWAY: (
        "the node shuts down, or drops a connection",
        "a node that closes",
        "connect again later, or to another address",
    ),
    CloseCode.PROTOCOL_ERROR: (
        "the bytes received do not fit the protocol",
        "the side that received it",
        "read the receiver's log, which says what; look for unequal versions",
    ),
    CloseCode.BAD_RECORD: (
        "the bytes were altered, reordered or cut on their way, or encrypted under other keys",
        "the side that received it",
        "in a handshake: give both nodes the same network key, or none; otherwise look for a proxy "
        "in between: if it happens again, the connection is being tampered with",
    ),
    CloseCode.SEAL_VIOLATION: (
        "a signature over the received events is wrong, or came too late",
        "the side that received it",
        "as for bad-record; a sender that stalls for 10 s causes it too",
    ),
    CloseCode.AUTHENTICATION_FAILED: (
        "a side's Proof was wrong, or its identity is not allowed (any longer)",
        "either side, mostly the one that was dialled",
        "ask the operator of that node to allow your node id; give --identity, if you have one",
    ),
    CloseCode.NO_COMMON_ALGORITHM: (
        "the two sides have no name of one list in common; the text says which list",
        "the side that was dialled",
        "offer more in --kex, --signing, --hash, --cipher or --sealing, or --require less",
    ),
    CloseCode.UNSUPPORTED_VERSION: (
        "the two sides have no version of the protocol in common; the text says which they speak",
        "the side that was dialled",
        "update the older side",
    ),
    CloseCode.PLAINTEXT_REFUSED: (
        "the node accepts encrypted connections only",
        "the side that was dialled",
        "leave --plaintext out",
    ),
    CloseCode.FRAME_TOO_LARGE: (
        "a frame is longer than was agreed",
        "the side that received it",
        "look for unequal versions, or for something other than Parley at that address",
    ),
    CloseCode.TIMEOUT: (
        "the handshake took more than 10 s, or nothing came for 25 s although it was asked for",
        "the side that waited",
        "look at the network and at the load of both machines; try again",
    ),
    CloseCode.TOO_MANY_STREAMS: (
        "more streams are open than were agreed",
        "the side that received the Open",
        "close streams that are done, or raise max_streams on both sides",
    ),
    CloseCode.OVERLOADED: (
        "a limit of the node was exceeded: connections, streams, bytes or Pings",
        "the side that received it",
        "send fewer requests at a time, or later; raise the limits of that node",
    ),
    CloseCode.INTERNAL_ERROR: (
        "something failed on that side: a handler, or Parley itself",
        "the side that failed",
        "read that node's log, which has the traceback",
    ),
    CloseCode.UNKNOWN_SESSION: (
        "there is no such session to resume: it ended, or never existed",
        "the side that was dialled again",
        "nothing: a new session replaces it",
    ),
    CloseCode.NOT_AUTHORISED: (
        "this node may not open streams of this label",
        "the side that received the stream",
        "ask the operator of that node to allow your node id; give the --identity that is allowed",
    ),
    CloseCode.WRONG_SUPERCATEGORY: (
        "streams of this label are not for nodes of this role",
        "the side that received the stream",
        "look at --role on both sides: client, server or peer",
    ),
    CloseCode.CANCELLED: (
        "the stream is no longer read, or its handler was cancelled",
        "the side that received the stream",
        "nothing, if that is what was wanted",
    ),
    CloseCode.SLOW_CONSUMER: (
        "the subscriber did not keep up with what was published",
        "the publisher",
        "read faster, or name a greater window; the topic may drop its oldest notes instead",
    ),
    CloseCode.NO_HANDLER: (
        "the node has no handler for streams of this label",
        "the side that received the stream",
        "look at the label's spelling, and at what that node offers",
    ),
    CloseCode.REFUSED: (
        "the label is reserved, or the node is closing and accepts nothing new",
        "the side that received the stream",
        "use another label, or connect again later",
    ),
    CloseCode.CONNECTION_LOST: (
        "the connection ended without a Close; never sent",
        "the side that noticed",
        "look at the network; in a handshake: a node with another network key hangs up so",
    ),
    CloseCode.PEER_NOT_TRUSTED: (
        "the local trust policy refused the other node, or has since revoked its trust; never sent",
        "the side that dialled or listens",
        "read the reason; compare node ids by another way before you trust a new one",
    ),
}

_RESULT: Final[dict[ResultCode, _Text]] = {
    ResultCode.ACCEPTED: ("accepted", "the handler", "nothing"),
    ResultCode.TOPIC_NOT_FOUND: (
        "topic not found",
        "the node that was asked",
        "look at the topic's spelling, and at what that node offers",
    ),
    ResultCode.ALREADY_SUBSCRIBED: (
        "to Subscribe: already subscribed; to Unsubscribe and Notify: not subscribed",
        "the node that was asked",
        "leave the other subscription, or subscribe over another connection",
    ),
    ResultCode.REJECTED: (
        "the subscription was rejected, perhaps with data",
        "the topic's on_subscribe",
        "read the data",
    ),
    ResultCode.HANDLER_FAILED: (
        "the handler failed",
        "the node that was asked",
        "read that node's log, which has the traceback",
    ),
    ResultCode.DEADLINE_EXCEEDED: (
        "the deadline passed",
        "either side",
        "give more time (--timeout), or find out what takes so long; it may still have happened",
    ),
    ResultCode.CANCELLED: (
        "cancelled",
        "the node that was asked",
        "nothing, if that is what was wanted",
    ),
    ResultCode.OVERLOADED: (
        "overloaded",
        "the node that was asked",
        "send fewer requests at a time, or later: too many are waiting there, or it is closing",
    ),
    ResultCode.NOT_AUTHORISED: (
        "not authorised",
        "the node that was asked",
        "ask its operator to allow your node id; give the --identity that is allowed",
    ),
    ResultCode.PAYLOAD_TOO_LARGE: (
        "the payload is too large",
        "the node that was asked",
        "send less, use a stream, or raise --max-payload on both sides",
    ),
    ResultCode.WRONG_SUPERCATEGORY: (
        "not allowed between these roles",
        "the node that was asked",
        "look at --role on both sides: client, server or peer",
    ),
    ResultCode.MALFORMED: (
        "malformed request",
        "the node that was asked",
        "look for unequal versions; where data has a type, the answer says what does not fit",
    ),
    ResultCode.INVALID_EVENT: (
        "no such event may be",
        "the node that offers the bus",
        "read the text: the data is not a JSON object, is too long, or does not fit its schema",
    ),
    ResultCode.STORE_FULL: (
        "no room to store it",
        "the node that offers the bus",
        "make room on its disk, trim its streams, or raise max_store_bytes",
    ),
    ResultCode.STORE_DAMAGED: (
        "what is stored cannot be read",
        "the node that offers the bus",
        "read that node's log; take the file from a backup",
    ),
    ResultCode.NOT_ONCE: (
        "it cannot be made sure that this runs once",
        "the node that was called",
        "register the handler with once=True, or call without once",
    ),
    ResultCode.UNREACHABLE: (
        "unreachable",
        "a server on the way",
        "ask for another path, or try again when the link or the node is back",
    ),
}
_RESULT_NAMES: Final = {ResultCode.ALREADY_SUBSCRIBED: "already-subscribed / not-subscribed"}

# What the Error of a named event says beside the codes of results.
_EVENT: Final[dict[int, _Text]] = {
    EVENT_FAILED: (
        "the handler of a named event failed",
        "the node that was asked",
        "read that node's log, which has the traceback",
    ),
}

_RELAY: Final[dict[RelayCode, _Text]] = {
    RelayCode.INVALID_UUID: (
        "the UUID is nil, all ones, or was cut off",
        "the relay",
        "use another UUID, and send its 16 bytes first",
    ),
    RelayCode.ALREADY_CONNECTED: (
        "a client of this UUID is connected",
        "the relay",
        "look for the other client, or use another UUID",
    ),
    RelayCode.INVALID_FORMAT: (
        "a message is shorter than two UUIDs, or longer than the relay's limit",
        "the relay",
        "send less, or raise --longest-frame of the relay",
    ),
    RelayCode.NOT_AUTHORISED: (
        "the sender of a message is not the UUID of its connection",
        "the relay",
        "send under the client's own UUID only",
    ),
    RelayCode.NOT_CONNECTED: (
        "the target of a message is not connected",
        "the relay",
        "send again later; the connection continues",
    ),
    RelayCode.INTERNAL_ERROR: (
        "something failed in the relay",
        "the relay",
        "read the relay's log, which has the traceback",
    ),
}

_EXIT: Final[dict[Exit, _Text]] = {
    Exit.DONE: ("the command succeeded", "every command", "nothing"),
    Exit.FAILED: (
        "any other error, such as a connection that ended with a code",
        "every command",
        "read the sentence; parley errors CODE explains its code",
    ),
    Exit.USAGE: (
        "a wrong option, address, algorithm or value",
        "every command",
        "read the sentence, and parley COMMAND --help",
    ),
    Exit.UNREACHABLE: (
        "nothing answers at the address, or the handshake was cut off or timed out",
        "the side that dials",
        "check the address, that the node runs, firewalls and network keys",
    ),
    Exit.NOT_TRUSTED: (
        "a side refused the other",
        "the side that dials",
        "read the reason; see parley peers, --trust and --identity",
    ),
    Exit.ANSWERED: (
        "a call was answered with a code other than 0, or not in time; or a bus refused it",
        "the side that asks",
        "the code is in the sentence; parley errors CODE explains it",
    ),
    Exit.FILE: (
        "a key file, a file of known peers or another file cannot be used, such as that of a bus",
        "every command",
        "the sentence names the file; look at its path and permissions",
    ),
    Exit.FINDINGS: (
        "a check failed: of a journal, or of the lag of a group",
        "parley journal verify, parley bus groups",
        "read the findings: each says what is wrong, where, and what shows it",
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
    """Return a name as it is typed: `deadline-exceeded`."""
    return name.strip().lower().replace("_", "-").replace(" ", "-")


EXPLANATIONS: Final[tuple[Explanation, ...]] = tuple(_all())


def explain(code: str) -> Sequence[Explanation]:
    """Return all codes with this number or name."""
    return [e for e in EXPLANATIONS if _written(code) in e.names]


_TITLES: Final[dict[Kind, str]] = {
    "close": "Close codes: how connections and streams end",
    "result": "Result codes: how calls and subscriptions are answered",
    "event": "Named events: what an Error says beside the codes of results",
    "relay": "Relay codes: what an event relay tells its clients",
    "exit": "Exit codes: how commands end",
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
        return f"{code} is a code of the application's own: Parley gives it no meaning"
    return f"unknown code {code}; `parley errors` shows all"


def _show(out: Output, explanation: Explanation) -> None:
    out.print(f"{explanation.kind} code {explanation.code}  {explanation.name}")
    out.print(f"  means       {explanation.meaning}")
    out.print(f"  comes from  {explanation.raised_by}")
    out.print(f"  what to do  {explanation.mend}")


def _table(title: str, explanations: list[Explanation]) -> Table:
    head = ("code", "name", "meaning", "comes from", "what to do")
    table = Table(*head, title=title, title_justify="left", box=box.SIMPLE_HEAD)
    # A name that is cut off could not be asked for: the longest word of one has room.
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
