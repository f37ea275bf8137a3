"""Links and sessions of the console: one-time use, expiry, limits, and two secrets."""

from itertools import count

import pytest

from parley._node.web.console.sessions import (
    ACTIONS,
    ENTRIES,
    LINK_LIFE,
    MOST_LINKS,
    MOST_SESSIONS,
    SESSION_LIFE,
    ConsoleSessions,
    SessionSecrets,
)

NOW = 1_000.0


@pytest.fixture
def sessions() -> ConsoleSessions:
    numbers = count()
    return ConsoleSessions(lambda size: next(numbers).to_bytes(size, "big"))


def entered(
    sessions: ConsoleSessions, now: float = NOW, *, may_act: bool = False
) -> SessionSecrets:
    found = sessions.redeem_link(sessions.make_link(now, may_act=may_act), now)
    assert found is not None
    return found


def test_a_link_opens_once_and_not_after_its_time(sessions: ConsoleSessions) -> None:
    token = sessions.make_link(NOW)
    assert sessions.redeem_link(token, NOW) is not None
    assert sessions.redeem_link(token, NOW) is None
    late = sessions.make_link(NOW)
    assert sessions.redeem_link(late, NOW + LINK_LIFE) is None
    assert sessions.redeem_link("", NOW) is None
    assert sessions.count == 1


def test_session_needs_both_secrets_and_lasts_while_used(sessions: ConsoleSessions) -> None:
    one, other = entered(sessions), entered(sessions, may_act=True)
    session = sessions.authenticate(one.cookie, one.key, NOW)
    assert session is not None
    assert (session.may_act, one.may_act, other.may_act) == (False, False, True)
    for cookie, key in ((one.cookie, other.key), (one.cookie, ""), ("", one.key), ("\udc80", "x")):
        assert sessions.authenticate(cookie, key, NOW) is None
    later = NOW + SESSION_LIFE - 1
    assert sessions.authenticate(one.cookie, one.key, later) is session
    assert sessions.authenticate(one.cookie, one.key, later + SESSION_LIFE - 1) is session
    assert sessions.authenticate(other.cookie, other.key, NOW + SESSION_LIFE) is None


def test_signing_out_ends_the_session_immediately(sessions: ConsoleSessions) -> None:
    one = entered(sessions)
    session = sessions.authenticate(one.cookie, one.key, NOW)
    assert session is not None
    assert sessions.is_open(session)
    sessions.leave(session)
    assert not sessions.is_open(session)
    assert sessions.authenticate(one.cookie, one.key, NOW) is None


def test_numbers_of_links_and_sessions_are_bounded(sessions: ConsoleSessions) -> None:
    tokens = [sessions.make_link(NOW) for _ in range(MOST_LINKS + 1)]
    assert sessions.redeem_link(tokens[0], NOW) is None
    assert sessions.redeem_link(tokens[1], NOW) is not None
    many = [entered(sessions, NOW + number) for number in range(MOST_SESSIONS)]
    assert sessions.count == MOST_SESSIONS
    sessions.authenticate(many[0].cookie, many[0].key, NOW + 99)
    entered(sessions, NOW + 100)
    assert sessions.count == MOST_SESSIONS
    assert sessions.authenticate(many[0].cookie, many[0].key, NOW + 100) is not None
    assert sessions.authenticate(many[1].cookie, many[1].key, NOW + 100) is None


def test_attempts_and_actions_are_rate_limited(sessions: ConsoleSessions) -> None:
    tries = [sessions.has_room(NOW) for _ in range(int(ENTRIES.burst) + 1)]
    assert tries == [True] * int(ENTRIES.burst) + [False]
    assert sessions.has_room(NOW + ENTRIES.seconds)
    one = entered(sessions)
    session = sessions.authenticate(one.cookie, one.key, NOW)
    assert session is not None
    done = [session.actions.take(NOW) for _ in range(int(ACTIONS.burst) + 1)]
    assert done == [True] * int(ACTIONS.burst) + [False]
