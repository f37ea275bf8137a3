"""Redialling: pauses, permanent failures, and an end without leftovers."""

from functools import partial

import pytest

from parley import Backoff
from parley._crypto.identity import NodeId
from parley._node.errors import (
    ConfigError,
    HandshakeError,
    IdentityEndedError,
    NotTrustedError,
    ParleyError,
    PeerClosedError,
    UnreachableError,
)
from parley._node.peer.reconnecting import RetryLoop, is_lasting, random_fraction
from parley._node.protocol.codes import CloseCode
from tests.node.network import eventually, task_scope

pytestmark = pytest.mark.anyio

# Without the random part: each pause is half of its bound.
PAUSES = Backoff(first=0.004, longest=0.02, steady=0.05)


async def test_pauses_grow_and_begin_anew_after_what_held() -> None:
    told: list[tuple[str, float]] = []
    async with task_scope() as loop:

        async def attempt() -> Exception:
            if len(told) == 4:
                # The loop's clock is not for this test to set: it seems to have begun before.
                redial.established()
                assert redial._established is not None
                redial._established -= PAUSES.steady
            if len(told) == 2:
                raise ZeroDivisionError
            raise UnreachableError("nobody")

        redial = RetryLoop(
            attempt,
            lambda why, seconds: told.append((str(why), seconds)),
            pauses=PAUSES,
            draw=lambda: 0.0,
        )
        assert redial.is_over
        redial.begin(loop)
        with pytest.raises(ParleyError, match="already"):
            redial.begin(loop)
        await eventually(lambda: len(told) >= 6)
        await redial.stop()
        assert redial.is_over
    assert [seconds for _, seconds in told][:6] == [0.002, 0.004, 0.008, 0.01, 0.002, 0.004]
    assert told[2][0] == "unexpected ZeroDivisionError; its traceback is in the log"


async def test_a_pause_can_be_ended_and_so_can_all() -> None:
    told: list[float] = []
    ended: list[bool] = []

    async def attempt() -> Exception:
        return NotTrustedError("another node")

    async with task_scope() as loop:
        for stops_early in (True, False):
            redial = RetryLoop(
                attempt, lambda _, seconds: told.append(seconds), over=lambda: ended.append(True)
            )
            redial.begin(loop)
            if not stops_early:
                await eventually(lambda: len(told) == 1)
                redial.hurry()
                await eventually(lambda: len(told) == 2)
            await redial.stop()
            await redial.stop()
        assert all(15 <= seconds <= 30 for seconds in told)
        redial = RetryLoop(attempt, lambda *_: None)
        redial.begin(loop)
        redial.finish()
        await redial.stop()


def test_what_lasts() -> None:
    assert is_lasting(NotTrustedError("no"))
    assert is_lasting(HandshakeError(CloseCode.NO_COMMON_ALGORITHM))
    assert is_lasting(PeerClosedError(CloseCode.AUTHENTICATION_FAILED))
    assert is_lasting(PeerClosedError(CloseCode.PEER_NOT_TRUSTED))
    assert is_lasting(ConfigError("a typo"))
    ended = partial(IdentityEndedError, "it has ended", node_id=NodeId(bytes(32)))
    assert is_lasting(ended(successor=None))
    assert not is_lasting(ended(successor=NodeId(bytes(32))))
    assert not is_lasting(HandshakeError(CloseCode.TIMEOUT))
    assert not is_lasting(PeerClosedError(CloseCode.GOING_AWAY))
    assert not is_lasting(UnreachableError("nobody"))


def test_fractions() -> None:
    drawn = {random_fraction() for _ in range(100)}
    assert len(drawn) == 100
    assert 0 <= min(drawn) < max(drawn) < 1
