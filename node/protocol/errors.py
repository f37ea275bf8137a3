"""The errors of the protocol core.

    ProtocolError
      LocalError               a call failed; the connection is unchanged
        LocalProtocolError     the protocol doesn't allow the call: a bug in the caller
        LimitReachedError      too many open items, or too many calls per time
        PayloadTooLargeError   more than the agreed max_payload
        ConnectionClosedError  the connection has ended or is closing; carries its code
      RemoteProtocolError      the peer violated the protocol; the connection ends with `code`
        SilenceError           no bytes were received for too long
        RejectedError          the responder answered Reject
        NoCommonAlgorithmError the sides have no common algorithm for a parameter

`code` is the close code, as a plain int.
"""

from parley._lbm.errors import ParleyError
from parley._node.protocol.codes import FIRST_APPLICATION_CODE, LAST_CODE, SENTENCES, CloseCode
from parley._node.protocol.limits import TEXT_SIZE

# Protocol codes that Close and Reset may carry: `unknown-session` is only for Reject.
_ASSIGNED = frozenset(code for code in CloseCode if code >= 0 and code != CloseCode.UNKNOWN_SESSION)


class ProtocolError(ParleyError):
    """Base class of the protocol core's errors."""

    code: int = int(CloseCode.PROTOCOL_ERROR)


class LocalError(ProtocolError):
    """A call failed; the connection is unchanged."""

    code: int = int(CloseCode.INTERNAL_ERROR)


class LocalProtocolError(LocalError):
    """The protocol doesn't allow the call."""


class LimitReachedError(LocalError):
    """Too many requests, streams or similar are open, or a call was made too often."""


class PayloadTooLargeError(LocalError):
    """A payload is longer than the agreed `max_payload`; it was not sent."""


class ConnectionClosedError(LocalError):
    """The connection has ended; `code` and `text` give the reason (section 11)."""

    def __init__(self, code: int, text: str = "") -> None:
        super().__init__(text or SENTENCES.get(code, f"closed with code {code}"))
        self.code = int(code)


class RemoteProtocolError(ProtocolError):
    """The peer violated the protocol. `reason` is only written to the local log, never sent."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = int(code)
        self.reason = reason


class SilenceError(RemoteProtocolError):
    """No bytes were received for so long that the transport may be dead. A resumable session is
    suspended; any other ends with `code`.
    """


class NoCommonAlgorithmError(RemoteProtocolError):
    """The two sides have no common algorithm for one parameter, which Reject names."""

    def __init__(self, parameter: str) -> None:
        super().__init__(CloseCode.NO_COMMON_ALGORITHM, f"no common {parameter} algorithm")
        self.parameter = parameter


class RejectedError(RemoteProtocolError):
    """The responder answered Reject with `code` and `text`."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(CloseCode.PROTOCOL_ERROR, f"rejected: {text}")
        self.code = code
        self.text = text


def check_close(code: int, text: str, last: CloseCode) -> None:
    """Check the code and text of a Close or Reset; `last` is the greatest protocol code allowed.

    Raises:
        ValueError: the code is not allowed, or the text is longer than 1,024 bytes in UTF-8.
    """
    assigned = code in _ASSIGNED and code <= last
    if not (assigned or FIRST_APPLICATION_CODE <= code <= LAST_CODE):
        allowed = f"{FIRST_APPLICATION_CODE} to {LAST_CODE}"
        raise ValueError(f"invalid code {code}: expected a suitable protocol code, or {allowed}")
    if len(text.encode()) > TEXT_SIZE:
        raise ValueError(
            f"invalid text of {len(text.encode())} bytes: at most {TEXT_SIZE} bytes in UTF-8"
        )


def violation(reason: str) -> RemoteProtocolError:
    """Return a `protocol-error`."""
    return RemoteProtocolError(CloseCode.PROTOCOL_ERROR, reason)


def overloaded(reason: str) -> RemoteProtocolError:
    """Return an `overloaded` error: a limit of section 14 is exceeded."""
    return RemoteProtocolError(CloseCode.OVERLOADED, reason)


def too_large(reason: str) -> RemoteProtocolError:
    """Return a `frame-too-large` error, for a frame or a payload."""
    return RemoteProtocolError(CloseCode.FRAME_TOO_LARGE, reason)
