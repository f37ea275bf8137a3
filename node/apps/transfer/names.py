"""Names that a file from somebody else may have, and those of partial files.

A name that passes stands for one file inside one directory, on every system, and looks like what it
is.
"""

import hashlib
import unicodedata
from typing import Final

from parley._node.errors import ConfigError

LONGEST_NAME: Final = 255  # bytes of UTF-8: what file systems take
PARTIAL_ENDING: Final = ".parley-part"

_HEX: Final = 32  # digits of a hash
_HEX_DIGITS: Final = frozenset("0123456789abcdef")
_OWNER_MARK: Final = "-"
_LONGEST_HINT = 96  # bytes of a name that its partial file shows
_SEPARATORS = frozenset("/\\:")  # of Unix; of Windows and its drives and streams
_JOINERS = "\u200c\u200d"  # written inside of words and emoji
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})  # controls, directions, line ends
_PORTS = frozenset(f"{port}{n}" for port in ("com", "lpt") for n in "123456789¹²³")
_DEVICES = frozenset({"con", "conin$", "conout$", "clock$", "prn", "aux", "nul"}) | _PORTS


class UnsafeNameError(ConfigError):
    """A file cannot be sent under its name; the text says why, without the name."""


def require_safe(name: str) -> str:
    """The name, if it is one that a receiver takes.

    Raises:
        UnsafeNameError: it is empty, above 255 bytes, begins with a dot (so also `.` and
            `..`), ends with a dot or space, has a separator of any system or a character
            that cannot be seen, or is a device of Windows.
    """
    if not name:
        raise UnsafeNameError("the name is empty")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise UnsafeNameError("the name is not UTF-8") from None
    if size > LONGEST_NAME:
        raise UnsafeNameError(f"the name has {size} bytes; at most {LONGEST_NAME} are taken")
    if name[0] == ".":
        raise UnsafeNameError("the name begins with a dot")
    if name[-1] in ". ":
        raise UnsafeNameError("the name ends with a dot or a space")
    if not _SEPARATORS.isdisjoint(name):
        raise UnsafeNameError("the name has one of / \\ : in it")
    if any(unicodedata.category(c) in _UNSEEN and c not in _JOINERS for c in name):
        raise UnsafeNameError("the name has a character in it that cannot be seen")
    if name.partition(".")[0].rstrip(" ").lower() in _DEVICES:
        raise UnsafeNameError("the name is that of a device on Windows")
    return name


def same_file_key(name: str) -> str:
    """Equal for names that some disk takes for the same: case and composition do not count."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def is_partial(name: str) -> bool:
    """Whether `partial_name` makes such names: no file that arrived whole has one."""
    return name[:1] == "." and name.endswith(PARTIAL_ENDING)


def partial_name(name: str, size: int, sha256: bytes, sender: str = "") -> str:
    """Return the name of a file while it arrives from `sender`. It begins with a dot, so that an
    offer cannot have it.

    It contains a hash of name, size and content: other content is never appended to what has
    arrived of this file, and two senders never write to one file.
    """
    key = hashlib.sha256(b"parley partial" + size.to_bytes(8, "big") + sha256 + name.encode())
    hint = name.encode()[:_LONGEST_HINT].decode(errors="ignore")
    owner = f"{_OWNER_MARK}{sender_key(sender)}" if sender else ""
    return f".{hint}.{key.hexdigest()[:_HEX]}{owner}{PARTIAL_ENDING}"


def sender_key(sender: str) -> str:
    """Return what stands for a sender in the name of a partial file."""
    return hashlib.sha256(b"parley sender" + sender.encode()).hexdigest()[:_HEX]


def split_partial(name: str) -> tuple[str, str]:
    """Split the name of a partial file into the part for its content and the `sender_key` of the
    sender that began it, which is empty if the name doesn't contain one."""
    content = name.removesuffix(PARTIAL_ENDING)
    before, mark, key = content.rpartition(_OWNER_MARK)
    if mark and len(key) == _HEX and set(key) <= _HEX_DIGITS and before[-_HEX - 1 : -_HEX] == ".":
        return before, key
    return content, ""
