"""The key statements that a Proof presents (section 22), each verified without the others."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from parley._crypto.errors import StatementError
from parley._crypto.statements import Statement, StatementKind
from parley._lbm.codec import Value
from parley._lbm.errors import LbmDecodeError
from parley._node.journal.audit.rows import MALFORMED, OK
from parley._node.protocol.handshake import read_statements

_KEPT: Final = 256  # A node presents the same statements in all of its sessions.


class Presented(NamedTuple):
    """A presented statement. `status` is `ok`, or the reason of the StatementError.

    Without a valid form, the other fields are None.
    """

    status: str
    kind: StatementKind | None = None
    origin: str | None = None
    successor: str | None = None
    by_recovery: bool | None = None
    made_ms: int | None = None


def read_presented(cells: Mapping[int, Value]) -> list[Presented]:
    """Verify the statements in the cells of a Proof.

    A malformed cell counts as one malformed statement. Nodes of earlier versions accepted it, so it
    doesn't make the Proof invalid.
    """
    try:
        return [_verified(encoded) for encoded in read_statements(cells)]
    except LbmDecodeError:
        return [Presented(MALFORMED)]


@lru_cache(_KEPT)
def _verified(encoded: bytes) -> Presented:
    status = OK
    try:
        statement = Statement.parse(encoded)
    except StatementError as error:
        return Presented(error.reason)
    try:
        statement.verify()
    except StatementError as error:
        status = error.reason
    return Presented(
        status,
        statement.kind,
        statement.origin.text,
        None if statement.successor is None else statement.successor.text,
        statement.by_recovery,
        statement.made_ms,
    )
