"""Target `statement`: key statements, their files and cell 14 match the reference (section 22).

The input's first byte picks the reader; the rest is a statement, a statement file, or a payload
with cell 14.
"""

from collections.abc import Callable
from typing import Final

from parley._crypto.errors import StatementError
from parley._crypto.identity import PrimaryKey
from parley._crypto.statements import Statement
from parley._lbm.codec import decode, encode
from parley._lbm.keys import CONTENT, IDENTITY_KEYS
from parley._node.trust.statement_file import format_statement, read_statement
from tests.fuzz.allowed import ALLOWED
from tests.reference import cbor, statements
from tests.reference.identity import node_id, read_origin
from tests.reference.primitives import CryptoFailure

MAX_SIZE: Final = 2048
STATEMENT, FILE, ORIGIN = range(3)
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


READERS: Final[tuple[Callable[[bytes], None], ...]] = (_read_statement, _read_file, _read_origin)
