"""What a server does with a Dial: where it goes, what is refused and by which code, and how many
there may be."""

from functools import partial

import pytest

from parley._crypto.identity import NodeId
from parley._node.federation import dials as dials_module
from parley._node.federation.dials import (
    Decision,
    Dials,
    Here,
    Onward,
    Refused,
    Tunnel,
    encode_dial,
)
from parley._node.federation.limits import LONGEST_DIAL
from parley._node.federation.paths import Path
from parley._node.protocol.codes import ResultCode
from tests.node.federation.servers import TRACE, node_id

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
    late = Refused(ResultCode.DEADLINE_EXCEEDED, 1)
    assert judge(BEFORE, US, AFTER, timeout=0.1) == late
    assert judge(BEFORE, US, AFTER, timeout=-1) == late
    assert isinstance(judge(BEFORE, US, AFTER, timeout=0.101), Onward)
    # At the end of its path there is nothing to wait for.
    assert isinstance(judge(BEFORE, US, timeout=0), Here)
    endless = judge(BEFORE, US, AFTER, timeout=1e15)
    assert isinstance(endless, Onward)
    assert endless.deadline == pytest.approx(100.0 + LONGEST_DIAL - 0.1)


@pytest.mark.parametrize(("by", "rate"), [(BEFORE, 50), (ACCOUNT, 10)])
def test_dials_of_a_neighbour_have_a_rate(by: NodeId, rate: int) -> None:
    dials = new_dials()
    payload = (
        encode_dial(TRACE, 5, path=(by, US)) if by == BEFORE else encode_dial(TRACE, 5, to=(US,))
    )
    refused = Refused(ResultCode.OVERLOADED, 1 if by == BEFORE else 0)
    decisions = [dials.judge(by, payload, 1.0) for _ in range(rate + 2)]
    assert [isinstance(one, Here) for one in decisions] == [True] * rate + [False] * 2
    assert decisions[-1] == refused
    assert isinstance(dials.judge(by, payload, 1.0 + 1 / rate), Here)
    assert dials.judge(by, payload, 1.0 + 1 / rate) == refused
    # What is malformed counts as well, and others have their own.
    for _ in range(rate):
        dials.judge(by, b"\xff", 10.0)
    assert dials.judge(by, payload, 10.0) == refused
    assert isinstance(judge(AFTER, US, by=AFTER, dials=dials), Here)


def test_rates_are_remembered_of_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dials_module, "MOST_DIALLERS", 2)
    dials = new_dials()
    payload = encode_dial(TRACE, 5, to=(US,))
    assert isinstance(dials.judge(ACCOUNT, payload, 1.0), Here)
    assert isinstance(judge(BEFORE, US, dials=dials), Here)
    assert dials.judge(AWAY, payload, 100.0) == Here(TRACE, ())  # the account's has rested
    assert dials.judge(ACCOUNT, payload, 100.0) == Refused(ResultCode.OVERLOADED, 0)
    assert dials.judge(ACCOUNT, payload, 101.0) == Here(TRACE, ())


def begun(
    dials: Dials, before: NodeId, after: NodeId | None, *, count: int = 1, path: Path = ()
) -> list[Tunnel]:
    tunnels = []
    for _ in range(count):
        tunnel = dials.begin(before, after, path)
        tunnel.idle_since = lambda: 0.0
        tunnels.append(tunnel)
    return tunnels


def ended(dials: Dials, tunnels: list[Tunnel]) -> None:
    for tunnel in tunnels:
        dials.end(tunnel)
        dials.end(tunnel)  # does nothing


def test_a_link_has_256_tunnels_and_an_account_16() -> None:
    dials = new_dials()
    opening = []
    for _ in range(256):
        assert dials.has_room(BEFORE)
        opening.append(dials.begin(BEFORE, None))
    assert judge(BEFORE, US, dials=dials) == Refused(ResultCode.OVERLOADED, 1)
    dials.end(opening.pop())
    assert isinstance(judge(BEFORE, US, dials=dials), Here)
    ended(dials, opening)
    led = []
    for _ in range(16):
        assert isinstance(judge(BEFORE, US, ACCOUNT, dials=dials), Onward)
        led.append(dials.begin(BEFORE, ACCOUNT))
    full = Refused(ResultCode.OVERLOADED, 1)
    assert judge(BEFORE, US, ACCOUNT, dials=dials) == full
    dials.end(led.pop())
    assert isinstance(judge(BEFORE, US, ACCOUNT, dials=dials), Onward)
    onward = [dials.begin(None, AFTER) for _ in range(256)]
    assert judge(BEFORE, US, AFTER, dials=dials) == full
    ended(dials, led)
    ended(dials, onward)


def test_whoever_dials_an_account_does_not_keep_it_from_dialling() -> None:
    dials = new_dials()
    begun(dials, BEFORE, ACCOUNT, count=16)
    payload = encode_dial(TRACE, 5, to=(US,))
    assert dials.judge(ACCOUNT, payload, 1.0) == Here(TRACE, ())
    begun(dials, ACCOUNT, None, count=16)
    # Its own limit: none of its own tunnels makes way.
    assert dials.judge(ACCOUNT, payload, 1000.0) == Refused(ResultCode.OVERLOADED, 0)


def closed_by(dials: Dials, tunnels: list[Tunnel]) -> list[int]:
    """The numbers of those that are closed from now on."""
    closed: list[int] = []
    for number, tunnel in enumerate(tunnels):
        tunnel.close = partial(closed.append, number)
    return closed


@pytest.mark.parametrize(
    ("by", "path"),
    [
        (BEFORE, (BEFORE, US, ACCOUNT)),  # dialled by an account of another server
        (BEFORE, (FURTHER, BEFORE, US, ACCOUNT)),
        (AWAY, ()),  # by another account here
    ],
)
def test_idle_tunnels_of_one_origin_make_way_for_another(by: NodeId, path: Path) -> None:
    dials = Dials(US, SERVERS, LINKS, (BEFORE,), Everybody())
    hostile = begun(dials, STRANGER, ACCOUNT, count=10)
    hostile += begun(dials, AFTER, ACCOUNT, count=6, path=(AFTER, US, ACCOUNT))
    closed = closed_by(dials, hostile)
    payload = encode_dial(TRACE, 5, path=path) if path else encode_dial(TRACE, 5, to=(US, ACCOUNT))
    assert isinstance(dials.judge(by, payload, 1.0), Onward)
    assert closed == [0]  # of the origin with the most
    assert dials.has_room(ACCOUNT, to=True)
    # An origin that has the most gets no further one, unless one is idle for a minute.
    begun(dials, STRANGER, ACCOUNT)
    again = encode_dial(TRACE, 5, to=(US, ACCOUNT))
    refused = Refused(ResultCode.OVERLOADED, 0)
    assert dials.judge(STRANGER, again, 2.0) == refused
    assert dials.judge(STRANGER, again, 59.0) == refused
    assert isinstance(dials.judge(STRANGER, again, 60.0), Onward)
    assert closed == [0, 1]


def test_tunnels_of_a_link_are_shared_by_origin() -> None:
    dials = new_dials()
    hostile = begun(dials, BEFORE, None, count=255, path=(FURTHER, BEFORE, US))
    good = begun(dials, BEFORE, None, path=(BEFORE, US))
    closed, kept = closed_by(dials, hostile), closed_by(dials, good)
    assert isinstance(judge(BEFORE, US, dials=dials), Here)
    assert (closed, kept) == ([0], [])
    begun(dials, BEFORE, None, path=(BEFORE, US))
    # Ours, and those of our accounts, as well: in both directions they count together.
    assert dials.make_room(BEFORE, (US, BEFORE), 1.0, before=ACCOUNT, to=True)
    assert (closed, kept) == ([0, 1], [])


def test_a_tunnel_that_is_being_opened_does_not_make_way() -> None:
    dials = new_dials()
    for _ in range(16):
        dials.begin(STRANGER, ACCOUNT)
    assert judge(BEFORE, US, ACCOUNT, dials=dials) == Refused(ResultCode.OVERLOADED, 1)


class Everybody(Accounts):
    def has_account(self, node_id: NodeId) -> bool:
        return True
