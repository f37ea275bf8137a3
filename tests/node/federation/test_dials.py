"""Decisions on Dials: targets, refusals with their codes, and limits."""

from functools import partial

import pytest

from parley._crypto.identity import NodeId
from parley._node.federation import dials as dials_module
from parley._node.federation.dials import (
    Attempts,
    Decision,
    DeliverLocally,
    Dials,
    Forward,
    Refuse,
    Tunnel,
    encode_dial,
)
from parley._node.federation.limits import LONGEST_DIAL
from parley._node.federation.paths import Path
from parley._node.protocol.codes import ResultCode
from tests.node.federation.servers import TRACE, node_id
from tests.node.federation.test_paths import SQUARE, finder_of

US, LEFT, RIGHT, TARGET = map(node_id, range(4))
BY_LEFT, BY_RIGHT = (US, LEFT, TARGET), (US, RIGHT, TARGET)
FIRST, SECOND = sorted([BY_LEFT, BY_RIGHT])
ACCOUNT, CALLER = node_id(50), node_id(60)


def to_target(*account: NodeId) -> Attempts:
    return Attempts(finder_of(SQUARE), [TARGET, *account], 6.0)


@pytest.mark.parametrize("code", [ResultCode.UNREACHABLE, ResultCode.DEADLINE_EXCEEDED])
def test_the_next_path_goes_around_what_failed(code: ResultCode) -> None:
    attempts = to_target()
    assert attempts.timeout == 2.0
    assert attempts.next(1.0) == FIRST
    attempts.failed(code, 1, 1.0)
    assert attempts.next(1.0) == SECOND
    attempts.failed(ResultCode.OVERLOADED, 1, 2.0)
    assert attempts.next(2.0) is None
    assert (attempts.code, attempts.hop) == (ResultCode.OVERLOADED, 1)


def test_there_are_three() -> None:
    attempts = to_target()
    for turn in range(3):
        assert attempts.next(20.0 * turn) == FIRST  # obstacles have expired by this time
        attempts.failed(ResultCode.OVERLOADED, 1, 20.0 * turn)
    assert attempts.next(60.0) is None
    assert attempts.code == ResultCode.OVERLOADED


def test_without_a_path_there_is_nothing_to_try() -> None:
    attempts = Attempts(finder_of(SQUARE), [ACCOUNT], 6.0)
    assert attempts.next(1.0) is None
    assert (attempts.code, attempts.hop) == (ResultCode.UNREACHABLE, 0)


def test_best_path_is_tried_once_if_no_other_exists() -> None:
    finder = finder_of(SQUARE)
    for path in (FIRST, SECOND):
        finder.avoided.add(path[1], 1.0)
    attempts = Attempts(finder, [TARGET], 6.0)
    assert attempts.next(1.0) == FIRST
    attempts.failed(ResultCode.ACCEPTED, None, 1.0)
    assert attempts.next(1.0) is None


def test_obstacle_found_by_one_is_avoided_by_others() -> None:
    finder = finder_of(SQUARE)
    first = Attempts(finder, [TARGET], 6.0)
    first.next(1.0)
    first.failed(ResultCode.OVERLOADED, 1, 1.0)
    assert Attempts(finder, [TARGET], 6.0).next(2.0) == SECOND


def test_a_target_that_is_overloaded_is_no_obstacle_to_others() -> None:
    finder = finder_of(SQUARE)
    attempts = Attempts(finder, [TARGET], 6.0)
    assert attempts.next(1.0) == FIRST
    attempts.failed(ResultCode.OVERLOADED, len(FIRST) - 1, 1.0)
    assert attempts.next(1.0) is None
    assert Attempts(finder, [TARGET], 6.0).next(1.0) == FIRST


@pytest.mark.parametrize(
    ("to", "code", "hop"),
    [
        ([TARGET], ResultCode.DEADLINE_EXCEEDED, 0),
        ([TARGET], ResultCode.DEADLINE_EXCEEDED, 1),
        ([TARGET, ACCOUNT], ResultCode.DEADLINE_EXCEEDED, 1),
        ([TARGET, ACCOUNT], ResultCode.DEADLINE_EXCEEDED, None),
        ([TARGET, ACCOUNT], ResultCode.ACCEPTED, None),
    ],
)
def test_failures_that_its_ends_can_cause_affect_only_their_dials(
    to: list[NodeId], code: int, hop: int | None
) -> None:
    finder = finder_of(SQUARE)
    first, second = ((*path, *to[1:]) for path in (FIRST, SECOND))
    attempts = Attempts(finder, to, 6.0, CALLER)
    assert attempts.next(1.0) == first
    attempts.failed(code, hop, 1.0)
    assert not finder.avoided.at(1.0)
    assert attempts.next(1.0) == second
    assert Attempts(finder, to, 6.0, CALLER).next(2.0) == second
    # Other accounts, the server itself, and other targets.
    assert Attempts(finder, to, 6.0, node_id(61)).next(2.0) == first
    assert Attempts(finder, to, 6.0).next(2.0) == first
    other = [TARGET, node_id(62)]
    assert Attempts(finder, other, 6.0, CALLER).next(2.0) == (*FIRST, node_id(62))
    assert Attempts(finder, to, 6.0, CALLER).next(12.0) == first


def test_a_server_that_was_silent_is_avoided_by_all() -> None:
    finder = finder_of(SQUARE)
    attempts = Attempts(finder, [TARGET], 6.0, CALLER)
    assert attempts.next(1.0) == FIRST
    attempts.failed(ResultCode.DEADLINE_EXCEEDED, None, 1.0)
    assert set(finder.avoided.at(1.0)) == {FIRST[1]}
    assert Attempts(finder, [TARGET], 6.0).next(2.0) == SECOND


US, BEFORE, AFTER, FURTHER, PARTED = map(node_id, range(5))
ACCOUNT, AWAY, STRANGER = map(node_id, range(10, 13))
SERVERS = [BEFORE, AFTER, FURTHER, PARTED]
LINKS = [BEFORE, AFTER]


class Accounts:
    def has_account(self, node_id: NodeId) -> bool:
        return node_id in (ACCOUNT, AWAY)

    def is_reachable_account(self, node_id: NodeId) -> bool:
        return node_id == ACCOUNT


def new_dials(carry: tuple[NodeId, ...] = (BEFORE,)) -> Dials:
    return Dials(US, SERVERS, LINKS, carry, Accounts())


def judge(
    *path: NodeId, by: NodeId = BEFORE, dials: Dials | None = None, timeout: float = 5
) -> Decision:
    payload = encode_dial(TRACE, timeout, path=path)
    return (dials or new_dials()).judge(by, payload, 100.0)


def test_deadlines() -> None:
    late = Refuse(ResultCode.DEADLINE_EXCEEDED, 1)
    assert judge(BEFORE, US, AFTER, timeout=0.1) == late
    assert judge(BEFORE, US, AFTER, timeout=-1) == late
    assert isinstance(judge(BEFORE, US, AFTER, timeout=0.101), Forward)
    # The last server on a path doesn't wait, so the deadline doesn't matter.
    assert isinstance(judge(BEFORE, US, timeout=0), DeliverLocally)
    endless = judge(BEFORE, US, AFTER, timeout=1e15)
    assert isinstance(endless, Forward)
    assert endless.deadline == pytest.approx(100.0 + LONGEST_DIAL - 0.1)


@pytest.mark.parametrize(("by", "rate"), [(BEFORE, 50), (ACCOUNT, 10)])
def test_dials_of_a_neighbour_have_a_rate(by: NodeId, rate: int) -> None:
    dials = new_dials()
    payload = (
        encode_dial(TRACE, 5, path=(by, US)) if by == BEFORE else encode_dial(TRACE, 5, to=(US,))
    )
    refused = Refuse(ResultCode.OVERLOADED, 1 if by == BEFORE else 0)
    decisions = [dials.judge(by, payload, 1.0) for _ in range(rate + 2)]
    assert [isinstance(one, DeliverLocally) for one in decisions] == [True] * rate + [False] * 2
    assert decisions[-1] == refused
    assert isinstance(dials.judge(by, payload, 1.0 + 1 / rate), DeliverLocally)
    assert dials.judge(by, payload, 1.0 + 1 / rate) == refused
    # Malformed Dials also count; other neighbours have separate limits.
    for _ in range(rate):
        dials.judge(by, b"\xff", 10.0)
    assert dials.judge(by, payload, 10.0) == refused
    assert isinstance(judge(AFTER, US, by=AFTER, dials=dials), DeliverLocally)


def test_rates_are_remembered_of_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dials_module, "MOST_DIALLERS", 2)
    dials = new_dials()
    payload = encode_dial(TRACE, 5, to=(US,))
    assert isinstance(dials.judge(ACCOUNT, payload, 1.0), DeliverLocally)
    assert isinstance(judge(BEFORE, US, dials=dials), DeliverLocally)
    assert dials.judge(AWAY, payload, 100.0) == DeliverLocally(TRACE, ())  # after a pause
    assert dials.judge(ACCOUNT, payload, 100.0) == Refuse(ResultCode.OVERLOADED, 0)
    assert dials.judge(ACCOUNT, payload, 101.0) == DeliverLocally(TRACE, ())


def begun(
    dials: Dials, before: NodeId, after: NodeId | None, *, count: int = 1, path: Path = ()
) -> list[Tunnel]:
    tunnels = []
    for _ in range(count):
        tunnel = dials.begin(before, after, path)
        tunnel.allow_eviction(lambda: 0.0, lambda: None)
        tunnels.append(tunnel)
    return tunnels


def ended(dials: Dials, tunnels: list[Tunnel]) -> None:
    for tunnel in tunnels:
        dials.end(tunnel)
        dials.end(tunnel)  # without effect


def test_a_link_has_256_tunnels_and_an_account_16() -> None:
    dials = new_dials()
    opening = []
    for _ in range(256):
        assert dials.has_capacity(BEFORE)
        opening.append(dials.begin(BEFORE, None))
    assert judge(BEFORE, US, dials=dials) == Refuse(ResultCode.OVERLOADED, 1)
    dials.end(opening.pop())
    assert isinstance(judge(BEFORE, US, dials=dials), DeliverLocally)
    ended(dials, opening)
    led = []
    for _ in range(16):
        assert isinstance(judge(BEFORE, US, ACCOUNT, dials=dials), Forward)
        led.append(dials.begin(BEFORE, ACCOUNT))
    full = Refuse(ResultCode.OVERLOADED, 1)
    assert judge(BEFORE, US, ACCOUNT, dials=dials) == full
    dials.end(led.pop())
    assert isinstance(judge(BEFORE, US, ACCOUNT, dials=dials), Forward)
    onward = [dials.begin(None, AFTER) for _ in range(256)]
    assert judge(BEFORE, US, AFTER, dials=dials) == full
    ended(dials, led)
    ended(dials, onward)


def test_tunnels_to_an_account_do_not_block_its_own_dials() -> None:
    dials = new_dials()
    begun(dials, BEFORE, ACCOUNT, count=16)
    payload = encode_dial(TRACE, 5, to=(US,))
    assert dials.judge(ACCOUNT, payload, 1.0) == DeliverLocally(TRACE, ())
    begun(dials, ACCOUNT, None, count=16)
    # Its own limit: its tunnels are not evicted.
    assert dials.judge(ACCOUNT, payload, 1000.0) == Refuse(ResultCode.OVERLOADED, 0)


def closed_by(dials: Dials, tunnels: list[Tunnel]) -> list[int]:
    """Return a list to which the numbers of tunnels closed from now on are added."""
    closed: list[int] = []
    for number, tunnel in enumerate(tunnels):
        tunnel.close = partial(closed.append, number)
    return closed


@pytest.mark.parametrize(
    ("by", "path"),
    [
        (BEFORE, (BEFORE, US, ACCOUNT)),  # dialled by an account of another server
        (BEFORE, (FURTHER, BEFORE, US, ACCOUNT)),
        (AWAY, ()),  # by another account of this server
    ],
)
def test_idle_tunnels_of_one_origin_are_evicted_for_another(by: NodeId, path: Path) -> None:
    dials = Dials(US, SERVERS, LINKS, (BEFORE,), Everybody())
    hostile = begun(dials, STRANGER, ACCOUNT, count=10)
    hostile += begun(dials, AFTER, ACCOUNT, count=6, path=(AFTER, US, ACCOUNT))
    closed = closed_by(dials, hostile)
    payload = encode_dial(TRACE, 5, path=path) if path else encode_dial(TRACE, 5, to=(US, ACCOUNT))
    assert isinstance(dials.judge(by, payload, 1.0), Forward)
    assert closed == [0]  # of the origin with the most
    assert dials.has_capacity(ACCOUNT, to=True)
    # The origin with the most gets no further tunnel, unless one has been idle for a minute.
    begun(dials, STRANGER, ACCOUNT)
    again = encode_dial(TRACE, 5, to=(US, ACCOUNT))
    refused = Refuse(ResultCode.OVERLOADED, 0)
    assert dials.judge(STRANGER, again, 2.0) == refused
    assert dials.judge(STRANGER, again, 59.0) == refused
    assert isinstance(dials.judge(STRANGER, again, 60.0), Forward)
    assert closed == [0, 1]


def test_tunnels_of_a_link_are_shared_by_origin() -> None:
    dials = new_dials()
    hostile = begun(dials, BEFORE, None, count=255, path=(FURTHER, BEFORE, US))
    good = begun(dials, BEFORE, None, path=(BEFORE, US))
    closed, kept = closed_by(dials, hostile), closed_by(dials, good)
    assert isinstance(judge(BEFORE, US, dials=dials), DeliverLocally)
    assert (closed, kept) == ([0], [])
    begun(dials, BEFORE, None, path=(BEFORE, US))
    # Tunnels of this server and its accounts also count together in both directions.
    assert dials.reserve_capacity(BEFORE, (US, BEFORE), 1.0, before=ACCOUNT, to=True)
    assert (closed, kept) == ([0, 1], [])


def test_opening_tunnel_is_not_evicted() -> None:
    dials = new_dials()
    for _ in range(16):
        dials.begin(STRANGER, ACCOUNT)
    assert judge(BEFORE, US, ACCOUNT, dials=dials) == Refuse(ResultCode.OVERLOADED, 1)


class Everybody(Accounts):
    def has_account(self, node_id: NodeId) -> bool:
        return True
