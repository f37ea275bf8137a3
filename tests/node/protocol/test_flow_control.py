"""Tests of credit and windows."""

import pytest

from parley._node.protocol.codes import CloseCode
from parley._node.protocol.errors import RemoteProtocolError
from parley._node.protocol.flow_control import ReceiveWindow, SendCredit


def test_credit_is_added() -> None:
    credit = SendCredit(-256)
    credit.grant(131_200)
    assert credit.left == 130_944  # the example of section 8


@pytest.mark.parametrize(("left", "grant"), [(0, 2**31 - 1), (-5, 2**31 + 4), (2**31 - 2, 1)])
def test_the_most_credit(left: int, grant: int) -> None:
    credit = SendCredit(left)
    credit.grant(grant)
    assert credit.left == 2**31 - 1


@pytest.mark.parametrize(("left", "grant"), [(0, 2**31), (1, 2**31 - 1), (2**31 - 1, 1)])
def test_more_than_the_most_credit(left: int, grant: int) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        SendCredit(left).grant(grant)
    assert caught.value.code == CloseCode.PROTOCOL_ERROR


def test_one_event_may_go_below_zero_and_none_after() -> None:
    window = ReceiveWindow(100)
    window.take(99)
    window.take(1_000)
    with pytest.raises(RemoteProtocolError) as caught:
        window.take(64)
    assert caught.value.code == CloseCode.PROTOCOL_ERROR


def test_none_at_exactly_zero() -> None:
    window = ReceiveWindow(100)
    window.take(100)
    with pytest.raises(RemoteProtocolError):
        window.take(64)


def test_half_has_to_be_consumed() -> None:
    window = ReceiveWindow(2_000)
    window.take(1_800)
    assert window.consume(999) == 0
    assert window.left == 200
    assert window.consume(1) == 1_000
    assert window.left == 1_200
    assert window.consume(800) == 0


def test_less_than_512_is_granted_only_when_everything_was_consumed() -> None:
    window = ReceiveWindow(100)
    window.take(1_000)
    assert window.consume(511) == 0
    assert window.consume(1) == 512
    assert window.consume(487) == 0
    assert ReceiveWindow(100).consume(50, whole=True) == 50
    assert window.consume(1) == 488
    assert window.left == 100


def test_what_is_granted_and_held_is_always_the_window() -> None:
    window = ReceiveWindow(5_000)
    held = 0
    for cost in (64, 2_000, 500, 3_000, 64, 4_999):
        window.take(cost)
        held += cost
        window.consume(held // 2)
        held -= held // 2
        assert window.left + window.consumed + held == 5_000


def test_shrinking_keeps_half_back_down_to_1_kib() -> None:
    window = ReceiveWindow(4_096)
    window.take(4_096)
    assert window.consume(4_096, shrink=True) == 2_048
    assert (window.size, window.left) == (2_048, 2_048)
    window.take(2_048)
    assert window.consume(2_048, shrink=True) == 1_024
    window.take(1_024)
    assert window.consume(1_024, shrink=True) == 1_024  # not below
    assert (window.size, window.left) == (1_024, 1_024)


def test_a_window_below_1_kib_does_not_grow_by_shrinking() -> None:
    window = ReceiveWindow(100)
    window.take(100)
    assert window.consume(100, shrink=True) == 100
    assert window.size == 100


def test_a_window_that_was_another_from_the_start() -> None:
    window = ReceiveWindow(1_000)
    window.take(300)
    window.resize(200)
    assert (window.size, window.left) == (200, -100)
    assert window.consume(300) == 300
    window.resize(5_000)
    assert (window.size, window.left) == (5_000, 5_000)
