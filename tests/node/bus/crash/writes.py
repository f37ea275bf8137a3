"""The system calls with which SQLite writes in this process: counted, and one of them the last.

SQLite allows its system calls to be replaced (`sqlite3_vfs.xSetSystemCall`), so that this needs no
other program, and all writes before the last one are the real ones.
"""

import _sqlite3
import ctypes
import os
import signal
import sqlite3
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_ssize_t, c_void_p
from typing import Any, Final

WRITES: Final = (b"pwrite64", b"pwrite")
WRITE: Final = ctypes.CFUNCTYPE(c_ssize_t, c_int, c_void_p, c_size_t, c_int64, use_errno=True)
# The functions that SQLite calls, which must live as long as the process.
_kept: list[object] = []


class _Vfs(ctypes.Structure):
    """`sqlite3_vfs`, version 3."""

    _fields_ = (
        ("iVersion", c_int),
        ("szOsFile", c_int),
        ("mxPathname", c_int),
        ("pNext", c_void_p),
        ("zName", c_char_p),
        ("pAppData", c_void_p),
        ("methods", c_void_p * 13),  # xOpen to xCurrentTimeInt64
        ("xSetSystemCall", ctypes.CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p)),
        ("xGetSystemCall", ctypes.CFUNCTYPE(c_void_p, c_void_p, c_char_p)),
        ("xNextSystemCall", c_void_p),
    )


def kill_in_write(number: int, *, torn: bool) -> None:
    """Kill this process in its `number`-th write from now on, before it or halfway through."""
    left = number

    def write(file: int, data: int, size: int, offset: int) -> int:
        nonlocal left
        left -= 1
        if not left:
            if torn:
                original(file, data, size // 2, offset)
            os.kill(os.getpid(), signal.SIGKILL)
        return int(original(file, data, size, offset))

    original = _replace(write)


def _replace(function: Callable[[int, int, int, int], int]) -> Callable[..., Any]:
    """Replace SQLite's write function; return the previous one."""
    find = ctypes.CDLL(_sqlite3.__file__).sqlite3_vfs_find
    find.restype = POINTER(_Vfs)
    vfs = find(None)
    for name in WRITES:
        address = vfs.contents.xGetSystemCall(vfs, name)
        if address:
            replacement = WRITE(function)
            _kept.append(replacement)
            done = vfs.contents.xSetSystemCall(vfs, name, ctypes.cast(replacement, c_void_p))
            assert done == sqlite3.SQLITE_OK
            return WRITE(address)
    raise RuntimeError("SQLite does not write by pwrite here")
