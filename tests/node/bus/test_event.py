"""The properties of an event, and that only its first acknowledgement or refusal counts."""

from datetime import UTC, datetime

import pytest

from parley._node.bus.errors import InvalidEventError, NotPendingError
from parley._node.bus.event import AckState, BusEvent
from parley._node.bus.model import StoredEvent
from parley._node.errors import ParleyError

pytestmark = pytest.mark.anyio

STORED = StoredEvent("1700000000123-4", "auth.user", '{"n":1}', "key", 3)


class Recorder:
    """Records its calls."""

    group = "mailer"

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    async def acknowledge(self, event: BusEvent) -> None:
        self.told.append(("ack",))
        event.ack_state = AckState.ACK

    async def refuse(self, event: BusEvent, delay: float, reason: str) -> None:
        self.told.append(("nack", delay, reason))
        event.ack_state = AckState.NACK


def test_event_properties() -> None:
    event = BusEvent(STORED, 2, Recorder())
    assert (event.id, event.name, event.version) == ("1700000000123-4", "auth.user", 3)
    assert (event.data, event.body, event.attempt) == ({"n": 1}, '{"n":1}', 2)
    assert event.data is event.data
    assert (event.idempotency_key, event.group) == ("key", "mailer")
    assert event.published_at == datetime.fromtimestamp(1700000000.123, UTC)
    assert repr(event) == "<BusEvent auth.user 1700000000123-4, attempt 2>"
    with pytest.raises(InvalidEventError):
        _ = BusEvent(STORED._replace(body="[]")).data


async def test_only_the_first_call_counts(anyio_backend: str) -> None:
    recorder = Recorder()
    event = BusEvent(STORED, 1, recorder)
    await event.ack()
    await event.ack()
    with pytest.raises(NotPendingError):
        await event.nack()
    event = BusEvent(STORED, 1, recorder)
    await event.nack(2.0, "no")
    with pytest.raises(NotPendingError):
        await event.ack()
    assert recorder.told == [("ack",), ("nack", 2.0, "no")]


async def test_history_event_cannot_be_acknowledged(anyio_backend: str) -> None:
    event = BusEvent(STORED)
    assert (event.attempt, event.group) == (0, None)
    with pytest.raises(ParleyError, match="history"):
        await event.ack()
    with pytest.raises(ParleyError, match="history"):
        await event.nack()
