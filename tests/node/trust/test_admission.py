"""Tests of node/trust/admission.py: limits per address and in total."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._node.errors import CallRefused
from parley._node.protocol.rate_limit import Rate
from parley._node.trust.admission import (
    BURST_SECONDS,
    MOST_LIMITED_ADDRESSES,
    REMEMBERED,
    Admission,
    PerAddressLimiter,
    address_key,
)
from tests.node.tuned import tuned

EVERYWHERE = "too many connections"
HERE = "too many connections of one address"
FAST = "too many handshakes of one address"


def admission(**limits: Any) -> Admission:
    return Admission(tuned(**limits))


def enter(door: Admission, who: int, name: str, now: float = 0.0) -> str | None:
    reason = door.refusal(name, now)
    if reason is None:
        door.entered(who, name)
    return reason


@pytest.mark.parametrize(
    ("name", "key", "local"),
    [
        ("192.0.2.7", "192.0.2.7", False),
        ("::ffff:192.0.2.7", "192.0.2.7", False),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64", False),
        ("2001:db8:1:2::", "2001:db8:1:2::/64", False),
        ("2001:db8:1:3::", "2001:db8:1:3::/64", False),
        ("fe80::1%eth0", "fe80::/64", False),
        ("127.0.0.1", "127.0.0.1", True),
        ("127.9.9.9", "127.9.9.9", True),
        ("::ffff:127.0.0.1", "127.0.0.1", True),
        ("::1", "::/64", True),
        ("unix", "unix", True),
    ],
)
def test_what_counts_as_one_address(name: str, key: str, local: bool) -> None:
    assert address_key(name) == (key, local)


def test_connections_in_all() -> None:
    door = admission(max_connections=3)
    names = ["192.0.2.1", "2001:db8::1", "127.0.0.1", "192.0.2.2"]
    assert [enter(door, n, name) for n, name in enumerate(names)] == [None] * 3 + [EVERYWHERE]
    assert len(door) == 3
    door.left(1)
    assert enter(door, 4, "unix") is None
    assert door.refused == {EVERYWHERE: 1}


def test_connections_of_one_address() -> None:
    door = admission(connections_per_address=2)
    first = [enter(door, n, f"2001:db8::{n}") for n in range(3)]
    assert first == [None, None, HERE]
    assert enter(door, 9, "2001:db8:0:1::") is None
    door.left(0)
    door.left(0)  # a second call has no effect
    door.left("a stranger")
    assert [enter(door, n, "2001:db8::") for n in (10, 11)] == [None, HERE]
    assert door.refused == {HERE: 2}


def test_handshakes_of_one_address_in_a_second() -> None:
    door = admission(handshakes_per_second=10, connections_per_address=1000)
    burst = int(10 * BURST_SECONDS)
    taken = [enter(door, n, "192.0.2.1", 50.0) for n in range(burst + 3)]
    assert taken == [None] * burst + [FAST] * 3
    assert enter(door, 100, "192.0.2.2", 50.0) is None
    assert [door.refusal("192.0.2.1", 50.5) for _ in range(7)] == [None] * 5 + [FAST] * 2
    # A long pause restores the burst, but not beyond it.
    assert sum(door.refusal("192.0.2.1", 1e6) is None for _ in range(100)) == burst


def test_less_than_one_handshake_a_second() -> None:
    door = admission(handshakes_per_second=0.1)
    outcomes = [door.refusal("192.0.2.1", now) for now in (0.0, 5.0, 10.1, 15.0, 20.2)]
    assert outcomes == [None, FAST, None, FAST, None]


@pytest.mark.parametrize("name", ["127.0.0.1", "::1", "unix", "::ffff:127.0.0.1"])
def test_local_connections_are_limited_only_on_request(name: str) -> None:
    limits = {"connections_per_address": 2, "handshakes_per_second": 1}
    free, limited = admission(**limits), admission(**limits, limit_loopback=True)
    assert {enter(free, n, name) for n in range(100)} == {None}
    assert [enter(limited, n, name) for n in range(3)] == [None, None, HERE]


def test_number_of_tracked_addresses_is_limited() -> None:
    door = admission(handshakes_per_second=1)
    while door.refusal("192.0.2.1", 0.0) is None:
        pass
    for number in range(REMEMBERED - 2):
        door.refusal(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 0.0)
    assert door.refusal("192.0.2.1", 0.0) == FAST  # which makes it the most recent address
    for number in range(REMEMBERED):
        door.refusal(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 0.0)
    assert door.refusal("192.0.2.1", 0.0) is None


visits = st.lists(
    st.tuples(
        st.sampled_from(["192.0.2.1", "2001:db8::1", "2001:db8::2", "127.0.0.1", "unix"]),
        st.floats(0, 0.5),
        st.booleans(),
    ),
    max_size=80,
)


@given(visits, st.integers(1, 6), st.integers(1, 4), st.floats(0.5, 20), st.booleans())
def test_no_order_of_visits_gets_past_the_limits(
    visits: list[tuple[str, float, bool]],
    in_all: int,
    each: int,
    rate: float,
    limit_loopback: bool,
) -> None:
    door = admission(
        max_connections=in_all,
        connections_per_address=each,
        handshakes_per_second=rate,
        limit_loopback=limit_loopback,
    )
    now, inside = 0.0, list[tuple[int, str]]()
    begun: dict[str, list[float]] = {}
    for number, (name, pause, leaves) in enumerate(visits):
        now += pause
        if leaves and inside:
            door.left(inside.pop(0)[0])
        key, local = address_key(name)
        mine = [who for who, other in inside if address_key(other)[0] == key]
        if enter(door, number, name, now) is None:
            inside.append((number, name))
            assert len(inside) <= in_all
            if limit_loopback or not local:
                assert len(mine) < each
                begun.setdefault(key, []).append(now)
        else:
            limited = limit_loopback or not local
            assert len(inside) == in_all or limited
    for times in begun.values():
        for first in range(len(times)):
            for last in range(first, len(times)):
                most = max(1.0, BURST_SECONDS * rate) + rate * (times[last] - times[first])
                assert last - first + 1 <= most + 1e-6
    for who, _ in inside:
        door.left(who)
    assert len(door) == 0


def test_each_address_has_a_separate_limit() -> None:
    rations = PerAddressLimiter(Rate(2, 10.0))
    assert [rations.take("192.0.2.1", 0.0) for _ in range(3)] == [True, True, False]
    assert rations.take("192.0.2.2", 0.0)
    # Addresses in one IPv6 /64 share a limit.
    network = [rations.take(f"2001:db8::{host}", 0.0) for host in (1, 2, 3)]
    assert network == [True, True, False]
    assert rations.take("192.0.2.1", 10.0)
    with pytest.raises(CallRefused) as refused:
        rations.require("192.0.2.1", 10.0)
    assert refused.value.code == 19


def test_least_recent_address_is_dropped_first() -> None:
    rations = PerAddressLimiter(Rate(1, 10.0))
    for number in range(MOST_LIMITED_ADDRESSES):
        rations.require(f"host-{number}", 0.0)
    assert not rations.take("host-0", 0.0)  # which makes it the most recent address
    rations.require("one more", 0.0)
    assert len(rations) == MOST_LIMITED_ADDRESSES
    assert not rations.take("host-0", 0.0)
    rations.require("host-1", 0.0)
