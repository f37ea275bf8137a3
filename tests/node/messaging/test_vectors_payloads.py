"""payloads.json: every payload against the node's reader of its type."""

import pytest

from parley._lbm.errors import LbmDecodeError
from parley._node.messaging.topic_history import read_beginning
from parley._node.protocol.codes import CONNECTION, REJECT
from parley._node.protocol.event_types import EVENT_TYPES, RESULT
from parley._node.protocol.handshake_messages import decode_handshake, parse_code_and_text
from tests.vectors.load import Vector, unhex, vectors


def read_by_node(vector: Vector) -> None:
    """Read the payload of a vector as the node does; raises LbmDecodeError."""
    payload = unhex(vector.get("input", vector.get("expected")))
    category, subcategory = vector["category"], vector["subcategory"]
    if (category, subcategory) == (CONNECTION, REJECT):
        parse_code_and_text(decode_handshake(payload))
        return
    cells = EVENT_TYPES[category << 8 | subcategory].cells
    if cells is not None:
        read = cells.read(payload)
        if cells is RESULT:
            read_beginning(read)


@vectors("payloads", fails=False)
def test_a_payload_that_is_read(vector: Vector) -> None:
    read_by_node(vector)


@vectors("payloads", fails=True)
def test_a_payload_that_is_malformed(vector: Vector) -> None:
    with pytest.raises(LbmDecodeError):
        read_by_node(vector)
