"""Final answers: Result to what category 3 asks, End or Error to a named event.

Each is of the kind that its request wants, and what a stranger is told of a
failure is a code and a fixed sentence. Sends nothing.
"""

from collections.abc import Mapping
from typing import Final

from parley._lbm import keys
from parley._lbm.codec import Encodable, encode
from parley._node.messaging.payloads import Payload, Tandem
from parley._node.messaging.usual import usual_result
from parley._node.protocol.codes import (
    END,
    ERROR,
    EVENT_FAILED,
    NAMED,
    RESULT,
    RESULT_SENTENCES,
    SIM,
    ResultCode,
)
from parley._node.protocol.limits import TEXT_SIZE

# Category, subcategory and payload.
FinalAnswer = tuple[int, int, bytes]

# Of a request that wants no answer: it is never sent.
NO_ANSWER: Final[FinalAnswer] = (SIM, RESULT, b"")
_EMPTY_END: Final[FinalAnswer] = (NAMED, END, encode({}))


def sim_final(code: int, data: Encodable = None, stream: int = 0) -> FinalAnswer:
    """A Result; raises LbmEncodeError for data without an encoding."""
    if not code and not stream and data is not None:
        return SIM, RESULT, usual_result(data)
    cells: dict[int, Encodable] = {keys.CODE: int(code)}  # members of enumerations take longer
    if data is not None:
        cells[keys.DATA] = data
    if stream:
        cells[keys.STREAM] = stream
    return SIM, RESULT, encode(cells)


def subscribe_final(data: Encodable, stream: int, cells: Mapping[int, Encodable]) -> FinalAnswer:
    """The Result that accepts a Subscribe, with more `cells`; raises as `sim_final`."""
    more = {} if data is None else {keys.DATA: data}
    accepted = {keys.CODE: int(ResultCode.ACCEPTED), keys.STREAM: stream}
    return SIM, RESULT, encode({**accepted, **more, **cells})


def named_final(code: int, data: Encodable | Payload | Tandem = None) -> FinalAnswer:
    """An End with the last reply, empty without `data`; or an Error, whose text is `data` if
    that is text.

    Raises:
        LbmEncodeError, FormatError: the reply has no form in its format.
    """
    if code:
        text = data if isinstance(data, str) else error_text(code)
        return NAMED, ERROR, encode({keys.CODE: event_code(code), keys.TEXT: cut(text)})
    if data is None:
        return _EMPTY_END
    if isinstance(data, Tandem):
        data = Payload(data.encode(), None)
    if isinstance(data, Payload):
        return NAMED, END, encode(data.cells())
    return NAMED, END, encode({keys.DATA: data, keys.FORMAT: 16})


def event_code(code: int) -> int:
    """What an Error says for a code of section 9: a handler that failed is 500."""
    return EVENT_FAILED if code == ResultCode.HANDLER_FAILED else int(code)


def error_text(code: int) -> str:
    """The fixed sentence of an Error."""
    return RESULT_SENTENCES.get(code, "refused")


def cut(text: str) -> str:
    """Text of at most 1,024 bytes of UTF-8; the end of a longer one is left out."""
    encoded = text.encode(errors="replace")
    return encoded[:TEXT_SIZE].decode(errors="ignore")
