"""The tries of an origin: which path is next, what ends them, and what is told then."""

import pytest

from parley._crypto.identity import NodeId
from parley._node.federation.attempts import Attempts
from parley._node.protocol.codes import ResultCode
from tests.node.federation.servers import node_id
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
        assert attempts.next(20.0 * turn) == FIRST  # what was avoided is forgotten by then
        attempts.failed(ResultCode.OVERLOADED, 1, 20.0 * turn)
    assert attempts.next(60.0) is None
    assert attempts.code == ResultCode.OVERLOADED


def test_without_a_path_there_is_nothing_to_try() -> None:
    attempts = Attempts(finder_of(SQUARE), [ACCOUNT], 6.0)
    assert attempts.next(1.0) is None
    assert (attempts.code, attempts.hop) == (ResultCode.UNREACHABLE, 0)


def test_where_nothing_leads_around_the_best_path_is_asked_once() -> None:
    finder = finder_of(SQUARE)
    for path in (FIRST, SECOND):
        finder.avoided.add(path[1], 1.0)
    attempts = Attempts(finder, [TARGET], 6.0)
    assert attempts.next(1.0) == FIRST
    attempts.failed(ResultCode.ACCEPTED, None, 1.0)
    assert attempts.next(1.0) is None


def test_what_one_found_others_go_around() -> None:
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
def test_what_the_ends_of_a_dial_can_cause_is_avoided_by_their_dials_alone(
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
