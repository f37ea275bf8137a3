"""What a refusal of the other node's bus means here: codes to errors of the bus.

One rule: what may have been done is BusUnavailableError, so that only who has an idempotency key
tries again. The other way is in `performing.py`.
"""

from node.bus.errors import (
    BusBusyError,
    BusDamagedError,
    BusError,
    BusFullError,
    BusRefusedError,
    BusUnavailableError,
    InvalidEventError,
)
from node.errors import StreamResetError
from node.protocol.codes import RESULT_SENTENCES, CloseCode, ResultCode
from node.remote_bus.answers import Answer

# Whatever else is answered, nobody knows whether it was done: BusUnavailableError.
_ERRORS: dict[int, type[BusError]] = {
    ResultCode.OVERLOADED: BusBusyError,
    ResultCode.NOT_AUTHORISED: BusRefusedError,
    ResultCode.PAYLOAD_TOO_LARGE: InvalidEventError,
    ResultCode.MALFORMED: InvalidEventError,
    ResultCode.INVALID_EVENT: InvalidEventError,
    ResultCode.STORE_FULL: BusFullError,
    ResultCode.STORE_DAMAGED: BusDamagedError,
}
_TEXTS: dict[int, str] = {
    ResultCode.NOT_AUTHORISED: "the node does not allow it",
    ResultCode.OVERLOADED: "the node has too much to do",
    ResultCode.HANDLER_FAILED: "the node failed at it; why is in its log",
    ResultCode.DEADLINE_EXCEEDED: "the node's store gave no answer",
}
_RESETS: dict[int, tuple[type[BusError], str]] = {
    CloseCode.NO_HANDLER: (BusRefusedError, "the node offers no bus"),
    CloseCode.REFUSED: (BusUnavailableError, "the node is closing"),
    CloseCode.NOT_AUTHORISED: (BusRefusedError, "the node does not allow it"),
    CloseCode.WRONG_SUPERCATEGORY: (BusRefusedError, "the node does not allow it"),
    CloseCode.OVERLOADED: (BusBusyError, "the node has too much to do"),
}


def error_of(answer: Answer) -> BusError:
    """The error that an answer with a code other than 0 is."""
    code = answer.code
    text = answer.text or _TEXTS.get(code) or RESULT_SENTENCES.get(code, "refused")
    return _ERRORS.get(code, BusUnavailableError)(f"{text} (code {code})")


def reset_error(error: StreamResetError) -> BusError:
    """The error of who waited on a stream `bus` that was reset."""
    kind, text = _RESETS.get(error.code, (BusUnavailableError, str(error)))
    return kind(text)
