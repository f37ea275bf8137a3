"""A real redis-server on a private port, with an append-only file, which ends when it is closed.

It leaves no process, port or file behind, however this process ends: a watcher ends the server and
removes its directory when this end of a pipe closes. It is independent of clients.
"""

import shutil
import socket
import subprocess
import time
from pathlib import Path
from tempfile import mkdtemp
from types import TracebackType
from typing import Final, Self

PROGRAM: Final = "redis-server"
HOST: Final = "127.0.0.1"
# Seconds in which a server is to answer, or to end.
PATIENCE: Final = 10.0
_STEP: Final = 0.01
# Waits for a line, or for the end of the process that would write it; after a line all is in order.
_WATCHER: Final = 'read line || { kill -9 "$0" 2>/dev/null; rm -rf "$1"; }'


def redis_program() -> str | None:
    """Return the program's path; None on a machine without it."""
    return shutil.which(PROGRAM)


class RedisServer:
    """A server with its own directory inside the system's temporary one.

        with RedisServer() as server:
            ...  # server.url

    Attributes: port: of 127.0.0.1; it stays the same when the server is restarted. directory: its
    data, and its Unix socket.
    """

    def __init__(self, *options: str, appendonly: bool = True, appendfsync: str = "everysec"):
        """Prepare the server; `options` are more command-line options of redis-server."""
        self._options = (
            *("--appendonly", "yes" if appendonly else "no", "--appendfsync", appendfsync),
            *options,
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        self.port = 0
        self.directory = Path()

    def __enter__(self) -> Self:
        self.directory = Path(mkdtemp(prefix="parley-redis-"))
        try:
            self.port = _free_port()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Database 0, over TCP."""
        return f"redis://{HOST}:{self.port}/0"

    @property
    def unix_url(self) -> str:
        """Database 0, over a Unix socket."""
        return f"unix://{self.directory}/redis.sock"

    @property
    def pid(self) -> int:
        """The server's process.

        Raises:
            RuntimeError: it does not run.
        """
        if self._process is None:
            raise RuntimeError("redis-server does not run")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it on what its directory holds, and wait until it answers.

        Raises:
            RuntimeError: it does not answer within `PATIENCE`, or there is no such program.
        """
        program = redis_program()
        if program is None:
            raise RuntimeError(f"there is no {PROGRAM} on this machine")
        self._process = subprocess.Popen(
            [
                *(program, "--bind", HOST, "--port", str(self.port), "--save", ""),
                *("--dir", str(self.directory), "--unixsocket", f"{self.directory}/redis.sock"),
                *("--logfile", f"{self.directory}/log", "--daemonize", "no", *self._options),
            ],
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # an interrupt from the terminal is ours alone
        )
        self._watcher = subprocess.Popen(
            ["sh", "-c", _WATCHER, str(self._process.pid), str(self.directory)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        for _ in range(int(PATIENCE / _STEP)):
            if self.running and self._answers():
                return
            if not self.running:
                break
            time.sleep(_STEP)
        self.kill()
        log = self.directory / "log"
        raise RuntimeError(f"redis-server did not start: {log.read_text() if log.exists() else ''}")

    def kill(self) -> None:
        """Kill it (SIGKILL): unwritten data is lost."""
        if self._process is not None:
            self._process.kill()
            self._ended()

    def stop(self) -> None:
        """End it in order (SIGTERM): all is written."""
        if self._process is not None:
            self._process.terminate()
            self._ended()

    def restart(self) -> None:
        """Stop it if it runs, and start it on the same port and directory."""
        self.stop()
        self.start()

    def close(self) -> None:
        """End it and remove its data; a second call has no effect."""
        self.kill()
        if self.directory != Path():
            shutil.rmtree(self.directory, ignore_errors=True)

    def command(self, *words: str) -> bytes:
        """The first line of what the server answers to a command, as it sends it.

        Raises:
            OSError: it cannot be reached.
        """
        text = [f"*{len(words)}", *(line for word in words for line in (f"${len(word)}", word))]
        with socket.create_connection((HOST, self.port), timeout=PATIENCE) as connection:
            connection.sendall(("\r\n".join(text) + "\r\n").encode("ascii"))
            with connection.makefile("rb") as answers:
                return answers.readline().rstrip()

    def _answers(self) -> bool:
        try:
            return self.command("PING") in (b"+PONG", b"-NOAUTH Authentication required.")
        except OSError:
            return False

    def _ended(self) -> None:
        process, watcher = self._process, self._watcher
        self._process = self._watcher = None
        if process is not None:
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if watcher is not None:
            watcher.communicate(b"all is in order\n")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
