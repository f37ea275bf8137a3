"""Tests of async IDs on both sides of a request."""

import pytest

from parley._node.protocol.codes import CloseCode
from parley._node.protocol.errors import LimitReachedError, RemoteProtocolError
from parley._node.protocol.request_ids import LAST_ASYNC_ID, IncomingRequests, OutgoingRequests


def test_ids_begin_at_1_on_each_stream() -> None:
    requests = OutgoingRequests[str]()
    assert [requests.add(stream, "x") for stream in (1, 1, 3, 1, 3)] == [1, 2, 1, 3, 2]
    assert len(requests) == 5


def test_an_id_is_busy_until_its_final_answer() -> None:
    requests = OutgoingRequests[str]()
    requests.add(1, "first")
    assert requests.get(1, 1) == "first"
    assert requests.get(3, 1) is None
    assert requests.pop(1, 1) == "first"
    assert requests.pop(1, 1) is None
    assert requests.get(1, 1) is None


def test_ids_come_round_and_pass_over_the_busy() -> None:
    requests = OutgoingRequests[int]()
    requests.add(1, 0)
    for _ in range(LAST_ASYNC_ID - 1):
        requests.pop(1, requests.add(1, 1))
    assert requests.add(1, 2) == 2
    assert requests.get(1, 1) == 0


def test_all_ids_busy() -> None:
    requests = OutgoingRequests[int]()
    ids = {requests.add(1, n) for n in range(LAST_ASYNC_ID)}
    assert ids == set(range(1, 65_536))
    with pytest.raises(LimitReachedError):
        requests.add(1, 0)
    assert requests.add(3, 0) == 1  # IDs of another stream are independent
    requests.pop(1, 40_000)
    assert requests.add(1, 0) == 40_000


def test_the_end_of_a_stream_and_of_all() -> None:
    requests = OutgoingRequests[str]()
    for stream, request in ((1, "a"), (3, "b"), (3, "c"), (5, "d")):
        requests.add(stream, request)
    assert requests.end_stream(3) == ["b", "c"]
    assert requests.end_stream(3) == []
    assert requests.end_all() == ["a", "d"]
    assert len(requests) == 0


def test_an_id_used_twice_is_a_violation() -> None:
    requests = IncomingRequests[str]()
    requests.add(1, 7, "a")
    requests.add(3, 7, "b")
    with pytest.raises(RemoteProtocolError) as caught:
        requests.add(1, 7, "c")
    assert caught.value.code == CloseCode.PROTOCOL_ERROR
    assert requests.get(1, 7) == "a"
    assert requests.pop(1, 7) == "a"
    assert requests.pop(1, 7) is None
    requests.add(1, 7, "c")
    assert requests.get(1, 7) == "c"


def has_room(requests: IncomingRequests[int]) -> bool:
    return len(requests) < requests.count_limit


def test_room_is_bounded_by_count() -> None:
    requests = IncomingRequests[int](count_limit=2)
    requests.add(1, 1, 0)
    assert has_room(requests)
    requests.add(1, 2, 0)
    assert not has_room(requests)
    requests.pop(1, 1)
    assert has_room(requests)


def test_the_default_is_the_document_s() -> None:
    requests = IncomingRequests[int]()
    for async_id in range(1, 1_025):
        assert has_room(requests)
        requests.add(1, async_id, 0)
    assert not has_room(requests)
    assert len(requests) == 1_024


def test_incoming_end_with_their_stream_and_connection() -> None:
    requests = IncomingRequests[str]()
    for stream, async_id, request in ((1, 1, "a"), (3, 1, "b"), (3, 2, "c")):
        requests.add(stream, async_id, request)
    assert requests.end_stream(3) == ["b", "c"]
    assert requests.end_all() == ["a"]
    assert len(requests) == 0
