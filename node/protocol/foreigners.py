"""What met a native port, or answers at one, and is not a node: told from its first bytes.

Only for the log: what a node says to it does not depend on it.
"""

from typing import Final

# The beginnings of what cannot be a frame: the first four bytes would be a length beyond limits.
# Methods of HTTP are those of RFC 9110 (section 9) and RFC 5789, and HTTP/2's preface (RFC 9113,
# section 3.4). A record of TLS has its type, 22 (handshake) or 21 (alert), and a version that
# begins with 3 (RFC 8446, section 5.1). SSH is RFC 4253, section 4.2.
_BEGINNINGS: Final = (
    *((method, "an HTTP client") for method in (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE")),
    *((method, "an HTTP client") for method in (b"CONN", b"OPTI", b"TRAC", b"PATC", b"PRI ")),
    (b"HTTP", "an HTTP server"),
    (b"\x16\x03", "TLS"),
    (b"\x15\x03", "TLS"),
    (b"SSH-", "SSH"),
)


def foreign_name(data: bytes) -> str:
    """What begins with `data`, of which 4 bytes are enough, for a sentence; empty if it is nothing
    that is known."""
    return next((name for beginning, name in _BEGINNINGS if data.startswith(beginning)), "")
