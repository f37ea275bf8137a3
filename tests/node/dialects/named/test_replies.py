"""A reply of this dialect: its bytes can be decoded in any format."""

import pytest

from parley._node.dialects.named.codec import BromineType
from parley._node.dialects.named.core import cost_of
from parley._node.dialects.named.replies import NamedReply
from parley._node.messaging.formats import FormatError
from parley._node.messaging.named_events import Reply
from parley._node.messaging.payloads import Tandem
from tests.node.dialects.named.events import ask, reply


def test_the_reader_chooses_how_to_decode_the_bytes() -> None:
    given = NamedReply(reply(1, b"\x03[1]"))
    assert isinstance(given, Reply)
    assert (given.data, given.raw, given.format, given.name) == ([1], b"\x03[1]", 3, "pong")
    with pytest.raises(FormatError):
        _ = given.tandem
    tandem = Tandem(b"a", b"b")
    assert NamedReply(reply(1, tandem.encode())).tandem == tandem


def test_no_bytes_are_no_value() -> None:
    assert NamedReply(reply(1)).data is None


def test_an_unknown_format_raises_an_error_on_reading() -> None:
    given = NamedReply(reply(1, b"\xffabc"))
    with pytest.raises(FormatError):
        _ = given.data
    assert given.raw == b"\xffabc"


@pytest.mark.parametrize("kind", BromineType)
def test_the_last_is_that_of_the_end(kind: BromineType) -> None:
    assert NamedReply(reply(1, kind=kind)).last == (kind is BromineType.END)


def test_it_counts_its_data_and_names() -> None:
    assert cost_of(ask("four", b"seven b", namespace="ns")) == 13
