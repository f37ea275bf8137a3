from collections.abc import Sequence

import pytest

from node.dialects.relay.codec import BROADCAST, SERVER
from node.dialects.relay.router import Piece, Router
from tests.node.dialects.relay.hall import A, B


class Listener:
    """A member without a connection."""

    def __init__(self) -> None:
        self.got: list[bytes] = []

    def deliver(self, pieces: Sequence[Piece], held: int, now: float) -> None:
        self.got.append(b"".join(pieces))


def test_a_uuid_has_one_member_at_a_time() -> None:
    router = Router()
    one, two = Listener(), Listener()
    router.join(A, one)
    with pytest.raises(ValueError, match="already"):
        router.join(A, two)
    router.leave(A, two)  # who is not in does not put another out
    assert router.members[A] is one
    router.leave(A, one)
    router.leave(A, one)
    router.join(A, two)
    assert router.members[A] is two


@pytest.mark.parametrize("uuid", [BROADCAST, SERVER, A[:15]])
def test_nobody_is_called_as_the_server_or_all(uuid: bytes) -> None:
    with pytest.raises(ValueError, match="not a UUID"):
        Router().join(uuid, Listener())


def test_a_member_without_a_connection_reaches_all_others() -> None:
    router, own, other = Router(), Listener(), Listener()
    router.join(A, own)
    router.join(B, other)
    router.broadcast(A, [b"one ", b"two"], 7, 0.0)
    assert (own.got, other.got) == ([], [b"one two"])
