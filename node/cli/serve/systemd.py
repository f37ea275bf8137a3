"""The service protocol of systemd (`sd_notify(3)`): ready, reloading, stopping, and the watchdog.

Without `NOTIFY_SOCKET` nothing is sent. A failure is logged once and ends nothing.
"""

import logging
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import anyio

from parley._node.errors import os_reason
from parley._node.logs import one_line

logger = logging.getLogger("parley.supervisor")

# Signs of life in the time that the watchdog gives.
SIGNS: Final = 3
# Characters of a status.
LONGEST_STATUS: Final = 256


class Supervisor:
    """The service manager that started this process, according to `environ`, if any."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        environ = os.environ if environ is None else environ
        self._address = _address(environ.get("NOTIFY_SOCKET", ""))
        self._pause = _pause(environ)
        self._warned = False

    def ready(self, status: str) -> None:
        self._notify("READY=1", _status(status))

    def stopping(self) -> None:
        self._notify("STOPPING=1", _status("closing connections"))

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """Report that the settings are being reloaded, until the block is left."""
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000  # by which systemd orders them
        self._notify("RELOADING=1", f"MONOTONIC_USEC={now}")
        try:
            yield
        finally:
            self._notify("READY=1")

    async def keep_alive(self) -> None:
        """Send the watchdog's signs of life while the event loop runs; returns if there is none."""
        while self._pause is not None:
            self._notify("WATCHDOG=1")
            await anyio.sleep(self._pause)

    # Inside.

    def _notify(self, *lines: str) -> None:
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            if not self._warned:
                self._warned = True
                logger.warning(
                    "the supervisor cannot be told %s: %s",
                    lines[0],
                    os_reason(error),
                    extra={"event": "supervisor.unheard"},
                )


def _address(text: str) -> str | None:
    """Return the socket's address: a path, or `@` and the name of an abstract socket."""
    if text.startswith("@"):
        return "\0" + text[1:]
    return text if text.startswith("/") else None


def _pause(environ: Mapping[str, str]) -> float | None:
    """Return the seconds between signs of life; None if this process sends none."""
    microseconds, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not microseconds.isdecimal() or pid not in ("", str(os.getpid())):
        return None
    return int(microseconds) / 1e6 / SIGNS or None


def _status(text: str) -> str:
    return f"STATUS={one_line(text)[:LONGEST_STATUS]}"
