"""The service protocol of systemd (`sd_notify(3)`): ready, reloading, stopping, and the watchdog.

Without `NOTIFY_SOCKET`, nothing is sent. A failure is logged once and otherwise ignored.
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

# Keep-alive messages in each watchdog interval.
SIGNS: Final = 3
# Maximum characters of a status.
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
        """Report to systemd that the settings are being reloaded while the block runs."""
        now = (
            time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000
        )  # systemd orders reloads by this time
        self._notify("RELOADING=1", f"MONOTONIC_USEC={now}")
        try:
            yield
        finally:
            self._notify("READY=1")

    async def keep_alive(self) -> None:
        """Send keep-alive messages to the watchdog while the event loop runs; return if there is no
        watchdog.
        """
        while self._pause is not None:
            self._notify("WATCHDOG=1")
            await anyio.sleep(self._pause)

    # Implementation.

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
                    "cannot notify the supervisor of %s: %s",
                    lines[0],
                    os_reason(error),
                    extra={"event": "supervisor.unheard"},
                )


def _address(text: str) -> str | None:
    """Return the address of the socket: a path, or `@` and the name of an abstract socket."""
    if text.startswith("@"):
        return "\0" + text[1:]
    return text if text.startswith("/") else None


def _pause(environ: Mapping[str, str]) -> float | None:
    """Return the seconds between keep-alive messages; None without a watchdog."""
    microseconds, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not microseconds.isdecimal() or pid not in ("", str(os.getpid())):
        return None
    return int(microseconds) / 1e6 / SIGNS or None


def _status(text: str) -> str:
    return f"STATUS={one_line(text)[:LONGEST_STATUS]}"
