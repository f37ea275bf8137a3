"""A process that uses the crate bromine for named events: how it is built and controlled.

Every wait has a timeout, and no process outlives its block. bromine/src/peer.rs describes the
program's commands; this module doesn't handle the wire format. `python -m
tests.interop.bromine_peer` builds it ahead of the tests.
"""

import json
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from shutil import which
from typing import Any, Final, Literal, TypeAlias

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

Version = Literal["0.17", "0.22"]
Reading = Literal["serde", "tandem", "raw"]
Line: TypeAlias = dict[str, Any]

VERSIONS: Final[tuple[Version, ...]] = ("0.17", "0.22")
SOURCE: Final = Path(__file__).parent / "bromine"
# Long enough for a busy machine; a test that needs as much of it has failed.
PATIENCE: Final = 10.0
FETCH_SECONDS: Final = 120.0
BUILD_SECONDS: Final = 240.0
LONGEST_LINE: Final = 1 << 22
# Without a network, cargo should fail immediately; a backtrace isn't useful.
ENVIRONMENT: Final = {
    "CARGO_NET_RETRY": "0",
    "CARGO_HTTP_TIMEOUT": "20",
    "CARGO_TERM_COLOR": "never",
    "RUST_BACKTRACE": "0",
}


class NotAvailableError(Exception):
    """This machine has no cargo, or cargo can't reach its packages. Text: which, and why."""


def build() -> Path:
    """Build the program if its source changed, and return its path.

    Two processes may do so at the same time, because cargo locks its directories. Raises
    NotAvailableError, and `subprocess.CalledProcessError` if the program does not build.
    """
    cargo = which("cargo")
    if cargo is None:
        raise NotAvailableError("there is no cargo")
    if _run(cargo, "fetch", "--offline").returncode:
        fetched = _run(cargo, "fetch")
        if fetched.returncode:
            reason = (fetched.stderr.strip() or "it gives no reason").splitlines()[-1]
            raise NotAvailableError(f"cargo can't fetch the crate bromine: {reason.strip()}")
    target = SOURCE / "target"
    built = _run(cargo, "build", "--offline", "--quiet", "--target-dir", str(target))
    if built.returncode:
        raise subprocess.CalledProcessError(
            built.returncode, "cargo build", built.stdout, built.stderr
        )
    return target / "debug" / "bromine-peer"


def _run(cargo: str, command: str, *options: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [cargo, command, *options],
            cwd=SOURCE,
            env=os.environ | ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=FETCH_SECONDS if command == "fetch" else BUILD_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise NotAvailableError(f"cargo {command} took more than {error.timeout:g} s") from error


@dataclass(slots=True)
class Answers:
    """The answers to one emission of a client, in order."""

    replies: list[Line] = field(default_factory=list)
    # {"code", "message"} of an error event.
    error: Line | None = None
    # The crate's own error, as Rust writes it: "Timeout".
    failed: str | None = None

    @property
    def reply(self) -> Line:
        """The only reply."""
        assert self.error is None, self
        assert self.failed is None, self
        assert len(self.replies) == 1, self
        return self.replies[0]


@dataclass(slots=True, eq=False)
class BrominePeer:
    """One running process, server or client."""

    process: Process
    _lines: list[Line] = field(default_factory=list)
    _grown: anyio.Event = field(default_factory=anyio.Event)
    _ended: bool = False
    _writing: anyio.Lock = field(default_factory=anyio.Lock)
    _tags: Iterator[int] = field(default_factory=count)

    async def find(self, wanted: Callable[[Line], bool]) -> Line:
        """Take the first line that is `wanted` out of those that came or will come."""
        with anyio.move_on_after(PATIENCE):
            while True:
                for position, line in enumerate(self._lines):
                    if wanted(line):
                        return self._lines.pop(position)
                if self._ended:
                    break
                await self._grown.wait()
        raise AssertionError(f"no such line; there are {self._lines}")

    async def handled(self, name: str, namespace: str | None = None) -> Line:
        """The next event of this name that ran a handler: name, namespace, id, ref, type, data."""

        def wanted(line: Line) -> bool:
            event = line.get("handled", {})
            return (event.get("name"), event.get("namespace")) == (name, namespace)

        return dict((await self.find(wanted))["handled"])

    def unread(self, key: str) -> list[Line]:
        """Return the messages with this key that were not consumed."""
        return [dict(line[key]) for line in self._lines if key in line]

    async def emit(
        self,
        name: str,
        payload: Line | None = None,
        *,
        namespace: str | None = None,
        wait: Literal["nothing", "reply", "stream"] = "nothing",
        read: Reading = "serde",
        timeout: float = PATIENCE,
    ) -> Answers:
        """Emit one event as a client, and collect the answers until the crate is done with it.

        `payload` is {"raw": hex}, {"rmp": value}, {"json": value}, {"default": value} or {"tandem":
        [payload, payload]}; None is no bytes. Replies are decoded as `read` specifies: `value` is
        the crate's value, or `unreadable` the reason. Only 0.22 has streams.
        """
        tag = next(self._tags)
        command = {
            "tag": tag,
            "emit": name,
            "namespace": namespace,
            "payload": payload,
            "wait": wait,
            "read": read,
            "timeout_ms": int(timeout * 1000),
        }
        assert self.process.stdin is not None
        async with self._writing:
            await self.process.stdin.send(json.dumps(command).encode() + b"\n")
        answers = Answers()
        while True:
            line = await self.find(lambda line: bool(line.get("tag") == tag))
            if "finished" in line:
                return answers
            if "reply" in line:
                answers.replies.append(line["reply"])
            answers.error = line.get("error", answers.error)
            answers.failed = line.get("failed", answers.failed)

    async def read_lines(self) -> None:
        """Read until the process closes its output; runs alongside the waiting functions."""
        assert self.process.stdout is not None
        lines = BufferedByteReceiveStream(self.process.stdout)
        try:
            while True:
                self._lines.append(json.loads(await lines.receive_until(b"\n", LONGEST_LINE)))
                self._wake()
        except (anyio.EndOfStream, anyio.IncompleteRead):
            self._ended = True
            self._wake()

    def _wake(self) -> None:
        self._grown.set()
        self._grown = anyio.Event()


@asynccontextmanager
async def bromine_server(
    program: Path, version: Version, address: str
) -> AsyncIterator[tuple[BrominePeer, str]]:
    """A server of the crate at `address` (port 0 is any); where it listens comes with it."""
    async with _running(program, "--version", version, "server", "--listen", address) as peer:
        line = await peer.find(lambda line: "ready" in line or "fatal" in line)
        assert "ready" in line, line
        yield peer, line["ready"]


@asynccontextmanager
async def bromine_client(
    program: Path, version: Version, address: str
) -> AsyncIterator[BrominePeer]:
    """A client of the crate that is connected to `address`."""
    async with _running(program, "--version", version, "client", "--connect", address) as peer:
        line = await peer.find(lambda line: "connected" in line or "fatal" in line)
        assert "connected" in line, line
        yield peer


@asynccontextmanager
async def _running(program: Path, *arguments: str) -> AsyncIterator[BrominePeer]:
    process = await anyio.open_process(
        [program, *arguments], stderr=None, env=os.environ | ENVIRONMENT
    )
    peer = BrominePeer(process)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(peer.read_lines)
            yield peer
            # The end of its input is its end; its output ends with it.
            assert process.stdin is not None
            await process.stdin.aclose()
            with anyio.fail_after(PATIENCE):
                assert await process.wait() == 0
    except BaseExceptionGroup as group_error:
        # The test or the process failed; the reading task does not report it.
        if len(group_error.exceptions) == 1:
            raise group_error.exceptions[0] from None
        raise
    finally:
        if process.returncode is None:
            process.kill()
        with anyio.CancelScope(shield=True):
            await process.aclose()


if __name__ == "__main__":
    try:
        print(build())
    except NotAvailableError as error:
        print(f"not built: {error}")
