"""A script in Lua, and the name under which a Redis knows it.

One rule: the digest is the server's name for the text, and protects nothing. Runs nothing.
"""

from hashlib import sha1
from typing import NamedTuple


class Script(NamedTuple):
    """A script, and the digest by which the server knows it."""

    text: bytes
    digest: bytes


def script(text: str) -> Script:
    """The script with this text."""
    body = text.encode()
    return Script(body, sha1(body, usedforsecurity=False).hexdigest().encode())
