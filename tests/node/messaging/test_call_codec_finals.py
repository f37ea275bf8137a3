"""Tests of node/messaging/call_codec.py: the exact bytes of final answers."""

from typing import Any

import pytest

from parley._lbm.errors import LbmEncodeError
from parley._node.messaging.call_codec import cut, encode_end, encode_result, error_text, event_code
from parley._node.messaging.formats import FormatError
from parley._node.messaging.payloads import Payload, Tandem, make_payload
from parley._node.protocol.codes import END, ERROR, NAMED, RESULT, RESULT_SENTENCES, SIM, ResultCode
from parley._node.protocol.limits import TEXT_SIZE
from tests.reference.wire import cells_payload


@pytest.mark.parametrize(
    ("code", "data", "stream", "cells"),
    [
        (0, None, 0, {"code": 0}),
        (0, [1], 0, {"code": 0, "data": [1]}),
        (0, None, 4, {"code": 0, "stream": 4}),
        (20, "no", 0, {"code": 20, "data": "no"}),
    ],
)
def test_results(code: int, data: Any, stream: int, cells: dict[str, Any]) -> None:
    assert encode_result(code, data, stream) == (SIM, RESULT, cells_payload(**cells))


@pytest.mark.parametrize(
    ("data", "payload"),
    [
        (None, b"\xa0"),
        ({"a": 1}, cells_payload(data={"a": 1}, format=16)),
        (b"x", cells_payload(data=b"x", format=16)),
        (Tandem(b"a", b"b"), cells_payload(data=b"\0\0\0\0\0\0\0\1a\0\0\0\0\0\0\0\1b")),
        (make_payload(b"x", "raw"), cells_payload(data=b"x")),
        (make_payload({"a": 1}, "json"), cells_payload(data=b'{"a":1}', format=3)),
        (make_payload(None, "lbm"), cells_payload(data=None, format=16)),
        (Payload(b"\1", 2), cells_payload(data=b"\1", format=2)),
    ],
)
def test_ends(data: Any, payload: bytes) -> None:
    assert encode_end(0, data) == (NAMED, END, payload)


@pytest.mark.parametrize(
    ("code", "data", "cells"),
    [
        (16, None, {"code": 500, "text": RESULT_SENTENCES[ResultCode.HANDLER_FAILED]}),
        (18, None, {"code": 18, "text": RESULT_SENTENCES[ResultCode.CANCELLED]}),
        (20, {"a": 1}, {"code": 20, "text": RESULT_SENTENCES[ResultCode.NOT_AUTHORISED]}),
        (404, "no such room", {"code": 404, "text": "no such room"}),
        (404, None, {"code": 404, "text": "refused"}),
        (2**32 - 1, "", {"code": 2**32 - 1, "text": ""}),
        (404, "ü" * 600, {"code": 404, "text": "ü" * 512}),
    ],
)
def test_errors(code: int, data: Any, cells: dict[str, Any]) -> None:
    assert encode_end(code, data) == (NAMED, ERROR, cells_payload(**cells))


@pytest.mark.parametrize("data", [{1, 2}, object(), 2**64, "\ud800"])
def test_a_last_reply_without_a_form(data: Any) -> None:
    with pytest.raises(LbmEncodeError):
        encode_end(0, data)
    with pytest.raises(FormatError):
        encode_end(0, make_payload(data, "json" if data != 2**64 else "msgpack"))


def test_only_a_failure_has_another_code() -> None:
    assert [code for code in ResultCode if event_code(code) != code] == [ResultCode.HANDLER_FAILED]
    assert error_text(12_345) == "refused"


def test_a_text_is_cut_between_characters() -> None:
    assert len(cut("x" * 5_000)) == TEXT_SIZE
    assert cut("x" + "ü" * 600) == "x" + "ü" * 511
    assert cut("\ud800") == "?"
    assert cut("") == ""
