"""The checked-in vectors of category 6, compared with the codec."""

from typing import Any

import pytest

from parley._lbm.errors import LbmDecodeError
from parley._node.bus.remote import messages
from parley._node.bus.remote.messages import (
    REQUESTS,
    decode_answer,
    decode_request,
    encode_answer,
    encode_request,
    read_rows,
)
from parley._node.protocol.codes import BUS, BusType
from tests.vectors.load import Vector, read, unhex, vectors

READERS: dict[str, Any] = {
    "Publish": messages.read_published,
    "Read": messages.read_delivery,
    "History": messages.read_stored,
    "Streams": messages.read_stream,
    "Groups": messages.read_group,
    "Consumers": messages.read_consumer,
    "Pending": messages.read_pending,
    "Remove Consumers": messages.read_name,
}


def is_answer(vector: Vector) -> bool:
    return bool(vector["subcategory"] == BusType.ANSWER)


def asks(vector: Vector) -> bool:
    return not is_answer(vector)


@vectors("bus", asks, fails=False)
def test_a_request(vector: Vector) -> None:
    assert (vector["category"], type(vector["subcategory"])) == (BUS, int)
    request = decode_request(vector["subcategory"], unhex(vector["expected"]))
    assert type(request) is REQUESTS[vector["subcategory"]]
    if "read_only" not in vector:
        assert encode_request(request) == (vector["subcategory"], unhex(vector["expected"]))


@vectors("bus", asks, fails=True)
def test_no_request(vector: Vector) -> None:
    with pytest.raises(LbmDecodeError):
        decode_request(vector["subcategory"], unhex(vector["input"]))


@vectors("bus", is_answer, fails=False)
def test_an_answer(vector: Vector) -> None:
    answer = decode_answer(unhex(vector["expected"]))
    assert encode_answer(answer) == unhex(vector["expected"])
    if "answers" in vector:
        assert read_rows(answer.rows, READERS[vector["answers"]])


@vectors("bus", is_answer, fails=True)
def test_no_answer(vector: Vector) -> None:
    def read_answer() -> None:
        answer = decode_answer(unhex(vector["input"]))
        read_rows(answer.rows, READERS[vector["answers"]])

    with pytest.raises(LbmDecodeError):
        read_answer()


def test_every_type_has_vectors_of_both_kinds() -> None:
    found = {(one["subcategory"], "fails" in one) for one in read("bus")["vectors"]}
    assert found == {(kind, fails) for kind in BusType for fails in (True, False)}
    numbers = {one["event"]: one["subcategory"] for one in read("bus")["vectors"]}
    assert {name.replace(" ", "_").upper(): n for name, n in numbers.items()} == {
        kind.name: kind.value for kind in BusType
    }
