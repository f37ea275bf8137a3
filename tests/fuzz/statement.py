"""Target `statement`: key statements, their files, cell 14 and the statements of a Proof match the
reference (section 22).

The input's first byte picks the reader; the rest is a statement, a statement file, a payload with
cell 14, the payload of a Proof, or a node ID and such a payload.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from parley._crypto.errors import StatementError
from parley._crypto.identity import NODE_ID_SIZE, NodeId, PrimaryKey
from parley._crypto.statements import Statement, parse_chain
from parley._lbm.codec import decode, encode
from parley._lbm.keys import CONTENT, IDENTITY_KEYS
from parley._node.protocol.handshake import read_statements
from parley._node.protocol.handshake_messages import decode_handshake
from parley._node.trust.statement_file import format_statement, read_statement
from tests.fuzz.allowed import ALLOWED
from tests.reference import cbor, statements
from tests.reference.identity import node_id, read_origin
from tests.reference.primitives import CryptoFailure
from tests.reference.wire import Violation

MAX_SIZE: Final = 2048
STATEMENT, FILE, ORIGIN, PROOF, CHAIN = range(5)
_ALLOWED: Final = ALLOWED["statement"]


def fuzz(data: bytes) -> None:
    """Read it by both."""
    READERS[data[0] % len(READERS) if data else 0](data[1:])


def _parsed(parse: Callable[[bytes], Statement], data: bytes) -> Statement | str:
    """The statement, or the reason for which it is refused."""
    try:
        return parse(data)
    except StatementError as error:
        return error.reason


def _wanted(data: bytes, *, file: bool = False) -> statements.ReadStatement | str:
    try:
        return statements.read(statements.read_file(data) if file else data)
    except statements.Invalid as invalid:
        return invalid.reason


def _read_statement(data: bytes) -> None:
    statement, wanted = _parsed(Statement.parse, data), _wanted(data)
    if isinstance(statement, str) or isinstance(wanted, str):
        assert statement == wanted, "the second implementation has another result"
        return
    assert (statement.kind, statement.origin) == (wanted.kind, wanted.origin)
    assert (statement.successor, statement.made_ms) == (wanted.successor, wanted.made_ms)
    assert statement.by_recovery == (wanted.recovery_key is not None)
    assert statement.slot == wanted.slot
    cells = decode(data)
    content = cells[CONTENT]
    assert isinstance(content, bytes)
    assert encode(cells) == data, "a statement with two encodings"
    assert encode(decode(content)) == content, "a content with two encodings"
    assert _verdict(statement) == _wanted_verdict(wanted), "another verdict"


def _verdict(statement: Statement) -> str:
    try:
        statement.verify()
    except StatementError as error:
        return error.reason
    return ""


def _wanted_verdict(statement: statements.ReadStatement) -> str:
    try:
        statements.check(statement)
    except statements.Invalid as invalid:
        return invalid.reason
    return ""


def _read_file(data: bytes) -> None:
    statement, wanted = _parsed(read_statement, data), _wanted(data, file=True)
    if isinstance(statement, str) or isinstance(wanted, str):
        assert statement == wanted, "the second implementation has another result"
        return
    assert statement.encoded == statements.read_file(data)
    assert read_statement(format_statement(statement)) == statement


def _read_origin(data: bytes) -> None:
    wanted: bytes | None = None
    try:
        cell = cbor.decode_payload(data)[IDENTITY_KEYS]
        wanted = node_id(*read_origin(cell))
    except (cbor.LbmError, KeyError, CryptoFailure):
        pass
    try:
        primary = PrimaryKey.parse(decode(data).get(IDENTITY_KEYS))
    except _ALLOWED:
        assert wanted is None, "the second implementation reads it"
        return
    assert primary.node_id == wanted, "the second implementation does not read it"
    assert PrimaryKey.parse(primary.cells()) == primary


def _presented(data: bytes) -> tuple[bytes, ...] | None:
    """The statements in the payload of a Proof, once both agree on them."""
    wanted: tuple[bytes, ...] | None = None
    with suppress(cbor.LbmError, Violation):
        cells = cbor.decode_payload(data, max_items=cbor.HANDSHAKE_ITEMS, keep_noise=True)
        wanted = statements.read_presented(cells)
    presented: tuple[bytes, ...] | None = None
    with suppress(*_ALLOWED):
        presented = read_statements(decode_handshake(data))
    assert presented == wanted, "the second implementation reads other statements"
    return presented


def _read_proof(data: bytes) -> None:
    _presented(data)


def _read_chain(data: bytes) -> None:
    peer, presented = data[:NODE_ID_SIZE], _presented(data[NODE_ID_SIZE:])
    if presented is None:
        return
    outcome: list[bytes] | str
    try:
        outcome = [one.slot for one in parse_chain(presented, NodeId(peer))]
    except StatementError as error:
        outcome = error.reason
    wanted: list[bytes] | str
    try:
        wanted = [one.slot for one in statements.read_chain(presented, peer)]
    except statements.Invalid as invalid:
        wanted = invalid.reason
    assert outcome == wanted, "the second implementation has another chain"


READERS: Final[tuple[Callable[[bytes], None], ...]] = (
    _read_statement,
    _read_file,
    _read_origin,
    _read_proof,
    _read_chain,
)
