"""What the property tests have found, each once more as a plain test."""

import pytest

from parley._node.protocol.config import CoreConfig
from parley._node.protocol.errors import LocalProtocolError
from parley._node.protocol.limits import REKEY_RATE_SECONDS
from tests.node.protocol.machine import INITIATOR_IDENTITY, RESPONDER_IDENTITY, Link

X25519 = {"kex": ("x25519",)}


def linked() -> Link:
    """Two open cores."""
    link = Link(
        CoreConfig(identity=INITIATOR_IDENTITY, algorithms=X25519),
        CoreConfig(identity=RESPONDER_IDENTITY, algorithms=X25519),
    )
    link.pump()
    return link


def test_a_late_rekey_offer_is_no_reason_to_refuse_the_next_one() -> None:
    link = linked()
    initiator, responder = link.sides
    initiator.connection.rekey(link.now)
    link.now += 3.0  # on its way
    link.pump()
    assert initiator.epochs_sent == 1
    link.now += REKEY_RATE_SECONDS - 3.0
    with pytest.raises(LocalProtocolError, match="10 s"):
        initiator.connection.rekey(link.now)
    link.now += 3.0
    initiator.connection.rekey(link.now)
    link.pump()
    assert responder.end is None
    assert initiator.epochs_sent == responder.epochs_received == 2


def test_a_rekey_asked_for_during_another_is_that_one() -> None:
    link = linked()
    initiator, responder = link.sides
    initiator.connection.rekey(link.now)
    initiator.connection.rekey(link.now)
    link.pump()
    link.advance(REKEY_RATE_SECONDS)
    link.pump()
    assert initiator.epochs_sent == responder.epochs_received == 1
