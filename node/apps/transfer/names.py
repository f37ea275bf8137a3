"""The names that received files may have, and the names of partial files.

A safe name refers to one file inside one directory on every system, and its appearance isn't
misleading.
"""

import hashlib
import unicodedata
from typing import Final

from parley._node.errors import ConfigError

LONGEST_NAME: Final = 255  # bytes of UTF-8, the limit of file systems
PARTIAL_ENDING: Final = ".parley-part"

_HEX: Final = 32  # digits of a hash
_HEX_DIGITS: Final = frozenset("0123456789abcdef")
_OWNER_MARK: Final = "-"
_LONGEST_HINT = 96  # bytes of the name that are visible in the name of its partial file
_SEPARATORS = frozenset("/\\:")  # of Unix and Windows, including drives and alternate streams
_JOINERS = "\u200c\u200d"  # used inside words and emoji
_UNSEEN = frozenset(
    {"Cc", "Cf", "Cs", "Zl", "Zp"}
)  # control characters, text directions, line ends
_PORTS = frozenset(f"{port}{n}" for port in ("com", "lpt") for n in "123456789¹²³")
_DEVICES = frozenset({"con", "conin$", "conout$", "clock$", "prn", "aux", "nul"}) | _PORTS


class UnsafeNameError(ConfigError):
    """Raised for a file name that cannot be sent. The text has the reason, without the name."""


def require_safe(name: str) -> str:
    """Return the name if it is safe.

    Raises:
        UnsafeNameError: it is empty, longer than 255 bytes, begins with a dot (including `.` and
            `..`), ends with a dot or space, contains a separator of any system or an invisible
            character, or is a device name on Windows.
    """
    if not name:
        raise UnsafeNameError("the name is empty")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise UnsafeNameError("the name is not UTF-8") from None
    if size > LONGEST_NAME:
        raise UnsafeNameError(f"the name has {size} bytes; at most {LONGEST_NAME} are allowed")
    if name[0] == ".":
        raise UnsafeNameError("the name begins with a dot")
    if name[-1] in ". ":
        raise UnsafeNameError("the name ends with a dot or a space")
    if not _SEPARATORS.isdisjoint(name):
        raise UnsafeNameError("the name contains one of / \\ :")
    if any(unicodedata.category(c) in _UNSEEN and c not in _JOINERS for c in name):
        raise UnsafeNameError("the name contains a non-printable character")
    if name.partition(".")[0].rstrip(" ").lower() in _DEVICES:
        raise UnsafeNameError("the name is a device name on Windows")
    return name


def same_file_key(name: str) -> str:
    """Return a key that is equal for names that some file systems regard as the same, because of
    case or Unicode composition.
    """
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def is_partial(name: str) -> bool:
    """Return whether a name has the form of `partial_name`; complete files never have such
    names.
    """
    return name[:1] == "." and name.endswith(PARTIAL_ENDING)


def partial_name(name: str, size: int, sha256: bytes, sender: str = "") -> str:
    """Return the name of a file while it is received from `sender`.

    It begins with a dot, so that an offer cannot contain it. It includes a hash of name, size and
    content. So data is never appended to the partial file of other content, and two senders never
    write to the same file.
    """
    key = hashlib.sha256(b"parley partial" + size.to_bytes(8, "big") + sha256 + name.encode())
    hint = name.encode()[:_LONGEST_HINT].decode(errors="ignore")
    owner = f"{_OWNER_MARK}{sender_key(sender)}" if sender else ""
    return f".{hint}.{key.hexdigest()[:_HEX]}{owner}{PARTIAL_ENDING}"


def sender_key(sender: str) -> str:
    """Return the key that identifies a sender in the name of a partial file."""
    return hashlib.sha256(b"parley sender" + sender.encode()).hexdigest()[:_HEX]


def split_partial(name: str) -> tuple[str, str]:
    """Split the name of a partial file into the part for its content and the `sender_key` of its
    first sender.

    The key is empty if the name doesn't contain one.
    """
    content = name.removesuffix(PARTIAL_ENDING)
    before, mark, key = content.rpartition(_OWNER_MARK)
    if mark and len(key) == _HEX and set(key) <= _HEX_DIGITS and before[-_HEX - 1 : -_HEX] == ".":
        return before, key
    return content, ""
