"""Tests of the raw events of the handshake, and of Reject's fixed sentences."""

import pytest

from parley._crypto.registry import NAMES, PARAMETERS, Suite
from parley._lbm import keys
from parley._lbm.codec import Value, decode
from parley._lbm.errors import LbmDecodeError
from parley._node.protocol.codes import SENTENCES, CloseCode
from parley._node.protocol.errors import RemoteProtocolError
from parley._node.protocol.handshake_messages import (
    check_version,
    hello_payload,
    parse_code_and_text,
    parse_hello,
    parse_reply,
    parse_retry,
    reject_payload,
    reply_payload,
    retry_payload,
)
from tests.node.protocol.pair import ALICE, make_config
from tests.sweep import sweep

CONFIG = make_config(ALICE, role="server", max_payload=2_048, algorithms={})
SUITE = Suite(**{parameter: NAMES[parameter][-1] for parameter in PARAMETERS})


def test_hello() -> None:
    cells = decode(hello_payload(CONFIG, bytes(32), {"x25519": b"share"}))
    check_version(cells)
    hello = parse_hello(cells)
    assert (hello.role, hello.limits, hello.plaintext) == ("server", CONFIG.limits, False)
    assert hello.offer == {parameter: CONFIG.names(parameter) for parameter in PARAMETERS}
    assert hello.shares == {"x25519": b"share"}


def test_plaintext_hello() -> None:
    hello = parse_hello(decode(hello_payload(CONFIG, bytes(32), {})))
    assert (hello.plaintext, hello.offer, hello.shares) == (True, {}, {})


def test_reply() -> None:
    reply = parse_reply(decode(reply_payload(CONFIG, bytes(32), SUITE, b"share")))
    assert (reply.role, reply.limits) == ("server", CONFIG.limits)
    assert (reply.suite, reply.share) == (SUITE, b"share")
    reply = parse_reply(decode(reply_payload(CONFIG, bytes(32), None, None)))
    assert (reply.suite, reply.share) == (None, None)


def test_retry() -> None:
    assert parse_retry(decode(retry_payload("x25519"))) == "x25519"


@sweep("code", range(14))
def test_reject_carries_the_fixed_sentence(code: int) -> None:
    number, text = parse_code_and_text(decode(reject_payload(code, "kex" if code == 6 else "")))
    assert number == code
    addition = {CloseCode.NO_COMMON_ALGORITHM: ": kex", CloseCode.UNSUPPORTED_VERSION: ": 1"}
    assert text == SENTENCES[code] + addition.get(CloseCode(code), "")


def test_the_text_may_be_left_out() -> None:
    assert parse_code_and_text({keys.CODE: 64}) == (64, "")


# A peer's text with a control character, and longer than a log line allows.
HOSTILE = "\x1b[2J" + "x" * 10_000


@pytest.mark.parametrize(
    "change",
    [{keys.ROLE: HOSTILE}, {keys.SHARES: {HOSTILE: b"share"}}, {keys.SUITE: {1: HOSTILE, 2: "x"}}],
    ids=["role", "shares", "suite"],
)
def test_an_error_quotes_the_peers_text_escaped_and_bounded(change: dict[int, Value]) -> None:
    cells = decode(reply_payload(CONFIG, bytes(32), SUITE, b"share")) | change
    read = parse_retry if keys.SUITE in change else parse_reply
    with pytest.raises(LbmDecodeError, match=r"x1b.2Jxxx") as caught:
        read(cells)
    text = str(caught.value)
    assert text.isprintable()
    assert len(text) < 200


def test_an_error_names_the_version_and_the_parameter() -> None:
    with pytest.raises(RemoteProtocolError, match="protocol version 2: this node supports 1"):
        check_version({keys.VERSION: 2})
    cells = decode(reply_payload(CONFIG, bytes(32), SUITE, b"share"))
    suite = cells[keys.SUITE]
    assert isinstance(suite, dict)
    del suite[3]
    with pytest.raises(LbmDecodeError, match="hash"):
        parse_reply(cells)
