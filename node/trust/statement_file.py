"""Statement files: a key statement as text, to pass on by mail or on paper (section 22).

parley1 statement
base64 (RFC 4648, padded), in lines of at most 76 characters
"""

import binascii
import os
from base64 import b64decode, b64encode
from typing import Final

from parley._crypto.errors import StatementError
from parley._crypto.files import create_file
from parley._crypto.keyfile import PathLike
from parley._crypto.statements import Statement
from parley._node.errors import FileError, os_reason

FIRST_LINE: Final = b"parley1 statement"
LINE_SIZE: Final = 76
MAX_FILE_SIZE: Final = 32_768


def save_statement(path: PathLike, statement: Statement) -> None:
    """Write a statement to a new file, readable only by its owner.

    Raises:
        FileError: there is a file at `path`, or it can't be written.

    Example:

        from parley import Identity, create_revocation, load_statement, save_statement

        statement = create_revocation(Identity.create())
        save_statement("revocation", statement)
        assert load_statement("revocation") == statement
    """
    try:
        # A new file: a revocation that is kept for later must not be replaced by mistake.
        create_file(path, format_statement(statement))
    except OSError as error:
        raise FileError(
            f"cannot create the statement file '{os.fspath(path)}': {os_reason(error)}"
        ) from error


def load_statement(path: PathLike) -> Statement:
    """Read the statement in a file and verify it.

    Raises:
        FileError: the file can't be read.
        StatementError: it is not a statement file, or the statement is invalid.

    Example:

        from parley import Identity, create_revocation, load_statement, save_statement

        save_statement("revocation", create_revocation(Identity.create()))
        print(load_statement("revocation").origin)
    """
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_SIZE + 1)
    except OSError as error:
        raise FileError(
            f"cannot read the statement file '{os.fspath(path)}': {os_reason(error)}"
        ) from error
    try:
        statement = read_statement(data)
        statement.verify()
    except StatementError as error:
        raise StatementError(error.reason, error.text, os.fspath(path)) from error
    return statement


def format_statement(statement: Statement) -> bytes:
    """Return the contents of the file of a statement."""
    text = b64encode(statement.encoded)
    lines = [text[start : start + LINE_SIZE] for start in range(0, len(text), LINE_SIZE)]
    return b"\n".join([FIRST_LINE, *lines, b""])


def read_statement(data: bytes) -> Statement:
    """Parse the contents of a statement file, without verifying the statement.

    Raises:
        StatementError: the contents or the statement are `malformed`, or the statement is
            `unsupported`.
    """
    if len(data) > MAX_FILE_SIZE:
        raise _malformed(f"has more than {MAX_FILE_SIZE:,} bytes")
    # A file may have passed through a program that ends lines with CR and LF.
    first, *lines = data.replace(b"\r\n", b"\n").removesuffix(b"\n").split(b"\n")
    if first != FIRST_LINE:
        raise _malformed(f"does not begin with the line '{FIRST_LINE.decode()}'")
    if not all(1 <= len(line) <= LINE_SIZE for line in lines):
        raise _malformed(f"has an empty line, or one of more than {LINE_SIZE} characters")
    text = b"".join(lines)
    try:
        encoded = b64decode(text, validate=True)
    except binascii.Error as error:
        raise _malformed(f"has invalid base64 ({error})") from error
    if b64encode(encoded) != text:
        raise _malformed("has base64 that is not in its only form")
    return Statement.parse(encoded)


def _malformed(what: str) -> StatementError:
    return StatementError("malformed", f"the file {what}")
