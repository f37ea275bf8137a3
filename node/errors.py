"""The errors of a node that applications can handle.

    ParleyError
      AddressError           an address cannot be read or used               (also ValueError)
      UnreachableError       no connection, or the port is in use            (also OSError)
        TunnelRefusedError   no tunnel to that node; `code` has the reason, `hop` the place
      HandshakeError         the two sides could not agree; `code` has the reason
        NotTrustedError      the peer is not the expected one, or refused this node
          IdentityChangedError   the dialled name is recorded with another node ID
          IdentityEndedError     the node ID has ended; `successor` may have the next one
      PeerClosedError        the connection is over; `code` and `text` have the reason (also
                             anyio's BrokenResourceError)
        OutcomeUnknownError  and a call with `once` was not answered; repeat it with `key`
      CallRefused            answered with a code other than 0; `code` and `data`
        CallTimeout          the deadline passed (code 17)                   (also TimeoutError)
        SubscribeRefused     the publisher refused (code 3)
        NotOnceError         a call with `once` was not run (code 27)
      UnreadRepliesError     too many replies to an event were unread
      MalformedDataError     received data does not match the requested type (also ValueError)
      StreamedAnswerError    the answer comes in items: read it with `Peer.call_stream`
      StreamResetError       a stream was reset; `code` and `text` (also BrokenResourceError)
      RelayRefusedError      an event relay closed the connection; `code`, `text` (likewise)
      FormatError            a payload or value does not fit its format      (also ValueError)
      NotSpokenError         the peer's dialect doesn't support the operation
      KnownPeersError        the file of known peers cannot be read or written
      KeyStatementsError     the file of key statements cannot be read or written
      FileError              a given file cannot be used
      ConfigError            a setting is invalid                            (also ValueError)
        InsecureAddressError   other machines could reach an unencrypted listener

      JournalError           base of the errors in `node.journal.errors`

Errors of the protocol core are in `node.protocol.errors`, those of keys and key files in
`crypto.errors`, and the root class in `lbm.errors`.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from reprlib import Repr
from typing import TYPE_CHECKING, Final

from anyio import BrokenResourceError

from parley._lbm.errors import ParleyError as ParleyError
from parley._lbm.errors import os_reason as os_reason
from parley._node.protocol.codes import (
    LAST_CODE,
    RESULT_SENTENCES,
    SENTENCES,
    CloseCode,
    ResultCode,
    code_name,
)

if TYPE_CHECKING:
    from parley._crypto.identity import NodeId


class AddressError(ParleyError, ValueError):
    """An address can't be parsed, or can't be used here."""


class UnreachableError(ParleyError, OSError):
    """A connection can't be established, or it isn't possible to listen on an address."""

    def __str__(self) -> str:
        # OSError would print its arguments as a tuple.
        return str(self.args[0]) if self.args else ""


class TunnelRefusedError(UnreachableError):
    """A tunnel was refused, or the request for it was not answered (section 19). `hop` is the
    position of the refusing node in the path, from 0; None for this node.
    """

    def __init__(self, code: int, hop: int | None = None, text: str = "") -> None:
        sentence = text or RESULT_SENTENCES.get(code, "refused")
        where = "here" if hop is None else f"at hop {hop}"
        super().__init__(f"cannot open a tunnel: {sentence} ({where})")
        self.code = int(code)
        self.hop = hop
        self.text = text


class ConfigError(ParleyError, ValueError):
    """A setting is out of range or contradicts another."""


class InsecureAddressError(ConfigError):
    """An unencrypted dialect would listen at an address that other machines can reach, which wasn't
    allowed.
    """

    def __init__(self, address: str) -> None:
        super().__init__(
            f"cannot listen on {address!r}: other machines can reach it, and this protocol is "
            "not encrypted; listen on 127.0.0.1, [::1] or a Unix socket, or allow a dialect with "
            "--allow-insecure"
        )


class FormatError(ParleyError, ValueError):
    """A payload doesn't match its format, or a value can't be encoded in a format."""


class NotSpokenError(ParleyError):
    """The dialect of the connection doesn't support the operation."""

    def __init__(self, dialect: str, what: str) -> None:
        super().__init__(f"cannot use {what}: the dialect {dialect!r} does not support it")


class RelayRefusedError(ParleyError, BrokenResourceError):
    """An event relay reported an error and closed the connection. `code` is a `RelayCode`, `text`
    the text of the relay.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"the relay closed the connection: {text or 'no text'} (code {code})")
        self.code = int(code)
        self.text = text


class FileError(ParleyError):
    """A given file can't be used."""


class KnownPeersError(ParleyError):
    """The file of known peers can't be read or written."""


class KeyStatementsError(ParleyError):
    """The file of key statements can't be read or written, or a decision contradicts it."""


class _WithCode(ParleyError):
    def __init__(self, code: int, text: str = "") -> None:
        sentence = text or SENTENCES.get(code, "closed by the peer")
        super().__init__(f"{sentence} ({code_name(code)})")
        self.code = int(code)
        self.text = text


class HandshakeError(_WithCode):
    """The two sides couldn't agree. `code` is a close code (section 11)."""


class NotTrustedError(HandshakeError):
    """Authentication failed, or the trust policy of one side refused the other."""

    def __init__(self, text: str = "", code: int = CloseCode.PEER_NOT_TRUSTED) -> None:
        super().__init__(code, text)


class IdentityChangedError(NotTrustedError):
    """The dialled name is recorded with another node ID: the node was reinstalled, or another node
    impersonates it.

    `name` is the name and `new` the ID that answered now. `old` is the ID recorded since
    `first_seen` in the file at `path`.
    """

    def __init__(
        self,
        text: str,
        *,
        name: str,
        old: "NodeId",
        new: "NodeId",
        first_seen: datetime,
        path: Path,
    ) -> None:
        super().__init__(text)
        self.name = name
        self.old = old
        self.new = new
        self.first_seen = first_seen
        self.path = path


def handshake_error(code: int, text: str, reason: str) -> HandshakeError:
    """Return the error for a failed handshake. `text` is the peer's, `reason` is for the local
    log.
    """
    if code == CloseCode.PEER_NOT_TRUSTED:
        return NotTrustedError(reason)
    if code == CloseCode.AUTHENTICATION_FAILED:
        return NotTrustedError(
            text or reason, code
        )  # there is no text if this node refused the peer
    if code == CloseCode.CONNECTION_LOST:
        text = "the other side closed the connection during the handshake"
    elif code == CloseCode.BAD_RECORD and reason:
        text = f"{SENTENCES[code]}: {reason}"
    return HandshakeError(code, text)


class IdentityEndedError(NotTrustedError):
    """A key statement has ended the node ID that was dialled, or the one recorded under the dialled
    address (section 22).

    Attributes: node_id: the ended ID. successor: the ID that took its place, or None if there is
    none, or a person must choose it.
    """

    def __init__(self, text: str, *, node_id: "NodeId", successor: "NodeId | None") -> None:
        super().__init__(text, CloseCode.AUTHENTICATION_FAILED)
        self.node_id = node_id
        self.successor = successor


class PeerClosedError(_WithCode, BrokenResourceError):
    """The connection is over. `code` is a close code (section 11)."""


class OutcomeUnknownError(PeerClosedError):
    """The connection ended before a call with `once` was answered: it ran once, or not at all.

    For 5 minutes from `sent` (seconds of the event loop's clock), `peer.call(.., once=key)` returns
    the answer, if the peer has the same `once_epoch`. Any other peer would run the call again.
    `key` has 16 bytes.
    """

    def __init__(self, code: int, text: str, key: bytes, once_epoch: bytes, sent: float) -> None:
        super().__init__(code, text)
        self.key = key
        self.once_epoch = once_epoch
        self.sent = sent


class StreamResetError(_WithCode, BrokenResourceError):
    """A stream was reset. `code` is a code of Reset (section 11)."""


RESULT_CODES: Final = frozenset(ResultCode)
# Abbreviates data for a message.
_QUOTE: Final = Repr()
_LONGEST_QUOTE: Final = 300
_QUOTE.maxstring = _QUOTE.maxother = _LONGEST_QUOTE
_QUOTE.maxlevel = 3


class CallRefused(ParleyError):
    """A call was answered with a code other than 0 (section 9).

    A handler raises it to answer with this code. A caller gets it with `received` set: if a handler
    lets a received one propagate, that is a failure of the handler, not its answer. `data` is any
    LBM value. The message has the code, its name, and the beginning of the data.

    Raises:
        ValueError: `code` is not 1..2^32-1.
    """

    def __init__(self, code: int, data: object = None) -> None:
        if isinstance(code, bool) or not 1 <= code <= LAST_CODE:
            raise ValueError(f"invalid refusal code {code!r}: expected 1 to 2^32-1")
        super().__init__(RESULT_SENTENCES.get(code, "refused"))
        self.code = int(code)
        self.data = data
        self.received = False

    @property
    def summary(self) -> str:
        """The message without the data."""
        known = self.code in RESULT_CODES
        name = f", {ResultCode(self.code).name.lower().replace('_', '-')}" if known else ""
        return f"{self.args[0]} (code {self.code}{name})"

    def __str__(self) -> str:
        if self.data is None or self.data == self.args[0]:
            return self.summary
        quote = _QUOTE.repr(self.data)
        if len(quote) > _LONGEST_QUOTE:
            quote = quote[:_LONGEST_QUOTE] + "..."
        return f"{self.summary}: {quote}"


class CallTimeout(CallRefused, TimeoutError):
    """The deadline of a call passed before its answer was received."""

    def __init__(self, data: object = None) -> None:
        super().__init__(ResultCode.DEADLINE_EXCEEDED, data)


class SubscribeRefused(CallRefused):
    """A subscription was refused (section 9, code 3). `on_subscribe` of a topic raises it, with
    data for the subscriber."""

    def __init__(self, data: object = None) -> None:
        super().__init__(ResultCode.REJECTED, data)


class NotOnceError(CallRefused):
    """A call with `once` was not run (code 27).

    The other node or the handler doesn't remember its calls, the connection is not encrypted, or
    the answer comes in items.
    """

    def __init__(self, data: object = None) -> None:
        super().__init__(ResultCode.NOT_ONCE, data)


class MalformedDataError(ParleyError, ValueError):
    """Received data doesn't match the requested type. `place` is the position of the error, such as
    `$.items[2].price` (`$` for all of the data), and `text` the reason.
    """

    def __init__(self, place: str, text: str) -> None:
        super().__init__(f"{place}: {text}")
        self.place = place
        self.text = text


class StreamedAnswerError(ParleyError):
    """A call was answered in items, and was cancelled. Use `Peer.call_stream` instead."""

    def __init__(self) -> None:
        super().__init__(
            "cannot return one value: the answer comes in items; read it with call_stream"
        )


class UnreadRepliesError(ParleyError):
    """Too many replies to an event were unread; later ones were discarded."""

    def __init__(self) -> None:
        super().__init__("cannot buffer more replies: too many are unread; read them faster")


_SUBSCRIBED: Final = (
    "this connection already has a subscription to the topic that cannot be shared; unsubscribe "
    "first, or subscribe over another connection"
)


def received_refusal(code: int, data: object, *, subscribing: bool = False) -> CallRefused:
    """Return the error for an answer with a code other than 0."""
    refused: CallRefused
    if code == ResultCode.DEADLINE_EXCEEDED:
        refused = CallTimeout(data)
    elif code == ResultCode.NOT_ONCE:
        refused = NotOnceError(data)
    elif subscribing and code == ResultCode.REJECTED:
        refused = SubscribeRefused(data)
    else:
        refused = CallRefused(code, data)
        if subscribing and code == ResultCode.ALREADY_SUBSCRIBED:
            refused.args = (_SUBSCRIBED,)
    refused.received = True
    return refused


# Errors that application code can raise without ending the node. `sys.exit` in a handler (argparse
# calls it) fails only that request. KeyboardInterrupt and cancellation propagate.
APPLICATION_ERRORS: Final = (Exception, SystemExit)


def sole_error(error: BaseException) -> BaseException:
    """Return the only error in nested groups; `error` itself if there are several."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


@contextmanager
def ungrouped() -> Iterator[None]:
    """Replace an exception group that has a single error by that error; other groups stay.

    Example:

        import anyio
        from parley.errors import ungrouped

        with ungrouped():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(peer.call, "greet", "Ada")
                tasks.start_soon(peer.call, "greet", "Bob")
    """
    try:
        yield
    except ExceptionGroup as group:
        error = sole_error(group)
        if error is group:
            raise
    else:
        return
    raise error


def codec_fault(error: Exception) -> str:
    """Return the message of an encoder or decoder for the peer; messages about this interpreter are
    replaced.
    """
    text = str(error)
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeError):
        return "text that is not Unicode"
    if "set_int_max_str_digits" in text:
        return f"an integer has more than {sys.get_int_max_str_digits():,} digits"
    return text
