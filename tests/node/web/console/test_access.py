"""Links and sessions of the console: once, for a while, not too many, and by two secrets."""

from itertools import count

import pytest

from parley._node.web.console.access import (
    ACTIONS,
    ENTRIES,
    LINK_LIFE,
    MOST_LINKS,
    MOST_SESSIONS,
    SESSION_LIFE,
    Access,
    Entered,
)

NOW = 1_000.0


@pytest.fixture
def access() -> Access:
    numbers = count()
    return Access(lambda size: next(numbers).to_bytes(size, "big"))


def entered(access: Access, now: float = NOW, *, may_act: bool = False) -> Entered:
    found = access.enter(access.make_link(now, may_act=may_act), now)
    assert found is not None
    return found


def test_a_link_opens_once_and_not_after_its_time(access: Access) -> None:
    token = access.make_link(NOW)
    assert access.enter(token, NOW) is not None
    assert access.enter(token, NOW) is None
    late = access.make_link(NOW)
    assert access.enter(late, NOW + LINK_LIFE) is None
    assert access.enter("", NOW) is None
    assert access.sessions == 1


def test_a_session_takes_both_secrets_and_lasts_while_it_is_used(access: Access) -> None:
    one, other = entered(access), entered(access, may_act=True)
    session = access.find(one.cookie, one.key, NOW)
    assert session is not None
    assert (session.may_act, one.may_act, other.may_act) == (False, False, True)
    for cookie, key in ((one.cookie, other.key), (one.cookie, ""), ("", one.key), ("\udc80", "x")):
        assert access.find(cookie, key, NOW) is None
    later = NOW + SESSION_LIFE - 1
    assert access.find(one.cookie, one.key, later) is session
    assert access.find(one.cookie, one.key, later + SESSION_LIFE - 1) is session
    assert access.find(other.cookie, other.key, NOW + SESSION_LIFE) is None


def test_who_leaves_is_out_at_once(access: Access) -> None:
    one = entered(access)
    session = access.find(one.cookie, one.key, NOW)
    assert session is not None
    assert access.is_open(session)
    access.leave(session)
    assert not access.is_open(session)
    assert access.find(one.cookie, one.key, NOW) is None


def test_links_and_sessions_are_bounded_and_the_oldest_goes(access: Access) -> None:
    tokens = [access.make_link(NOW) for _ in range(MOST_LINKS + 1)]
    assert access.enter(tokens[0], NOW) is None
    assert access.enter(tokens[1], NOW) is not None
    many = [entered(access, NOW + number) for number in range(MOST_SESSIONS)]
    assert access.sessions == MOST_SESSIONS
    access.find(many[0].cookie, many[0].key, NOW + 99)
    entered(access, NOW + 100)
    assert access.sessions == MOST_SESSIONS
    assert access.find(many[0].cookie, many[0].key, NOW + 100) is not None
    assert access.find(many[1].cookie, many[1].key, NOW + 100) is None


def test_tries_and_actions_have_rates(access: Access) -> None:
    tries = [access.has_room(NOW) for _ in range(int(ENTRIES.burst) + 1)]
    assert tries == [True] * int(ENTRIES.burst) + [False]
    assert access.has_room(NOW + ENTRIES.seconds)
    one = entered(access)
    session = access.find(one.cookie, one.key, NOW)
    assert session is not None
    done = [session.actions.take(NOW) for _ in range(int(ACTIONS.burst) + 1)]
    assert done == [True] * int(ACTIONS.burst) + [False]
