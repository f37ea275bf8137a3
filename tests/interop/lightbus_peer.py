"""A running Lightbus service, lightbus_service/bus.py: how it is started, controlled and ended.

Every wait has a timeout, and no process outlives its block: the service ends when its input does. A
thread collects its output, for either event loop.
"""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Condition, Thread
from time import sleep
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeAlias

from anyio import to_thread

from parley._node.bus.config import BusConfig
from parley._node.bus.redis.format import Layout, RedisFormat
from tests.interop.lightbus_environment import environment, lightbus_command
from tests.redis_server import RedisServer

Line: TypeAlias = dict[str, Any]

PROGRAM: Final = Path(__file__).parent / "lightbus_service"
SERVICE: Final = "accounts"
# Long enough for a busy machine; a test that needs as much of it has failed.
PATIENCE: Final = 15.0
# By event, the names of their listeners: a group is SERVICE-LISTENER.
LISTENERS: Final = {"user_registered": "mailer", "profile_changed": "profiles"}
_STEP: Final = 0.01


class LightbusBeside(NamedTuple):
    """A running service, and the Redis that is shared with it."""

    server: RedisServer
    service: "LightbusService"
    layout: Layout

    def config(self, service: str = SERVICE, **settings: Any) -> BusConfig:
        """Return the settings of a Parley bus that matches it."""
        return config_beside(self.layout, service, **settings)

    def key(self, name: str) -> str:
        """Where the events of this name are in Redis."""
        return key_of(name, self.layout)


def config_beside(layout: Layout, service: str = SERVICE, **settings: Any) -> BusConfig:
    """Return the settings of a Parley bus that takes part in this layout."""
    return BusConfig(service=service, formats={"*": RedisFormat(layout=layout)}, **settings)


def key_of(name: str, layout: Layout) -> str:
    """Where Lightbus keeps the events of this name."""
    api, _, _ = name.rpartition(".")
    return f"{name}:stream" if layout == "per_event" else f"{api}.*:stream"


class LightbusService:
    """One process of the service; its listeners run once it is entered.

        with LightbusService(server, "per_event", acknowledgement_timeout=0.5) as service:
            ...

    Attributes: pid: the process of Lightbus; the started process is uv, its parent.
    """

    def __init__(
        self,
        server: RedisServer,
        layout: Layout,
        *,
        process: str = "lightbus",
        listeners: Mapping[str, str] = LISTENERS,
        validate: bool = True,
        **transport: object,
    ) -> None:
        """Prepare the service; `transport` is Lightbus's configuration of events."""
        self._server = server
        self._layout: Layout = layout
        self._listeners = listeners
        redis = {"redis": {"url": server.url}}
        self._config = {
            "service_name": SERVICE,
            "process_name": process,
            "bus": {"log_level": "warning", "schema": {"transport": redis}},
            "apis": {
                "default": {
                    "validate": validate,
                    "event_transport": {
                        "redis": {"url": server.url, "stream_use": layout, **transport}
                    },
                    "rpc_transport": redis,
                    "result_transport": redis,
                }
            },
        }
        self._directory = TemporaryDirectory(prefix="parley-lightbus-")
        self._process: subprocess.Popen[str] | None = None
        self._reader = Thread(target=self._read, name="lines of Lightbus")
        self._lines: list[Line] = []
        self._grown = Condition()
        self._ended = False
        self.pid = 0

    def __enter__(self) -> Self:
        place = Path(self._directory.name)
        (place / "lightbus.json").write_text(json.dumps(self._config))
        with (place / "log").open("w") as log:
            self._process = subprocess.Popen(
                [
                    *(*lightbus_command(), "lightbus", "run", "--bus", "bus"),
                    *("--config", str(place / "lightbus.json"), "--only", "events,tasks"),
                ],
                cwd=PROGRAM,
                env=environment() | {"LISTENERS": json.dumps(self._listeners)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._reader.start()
        try:
            self.pid = self.take(lambda line: "ready" in line)["ready"]
            for event, listener in self._listeners.items():
                self._await_group(key_of(f"auth.{event}", self._layout), f"{SERVICE}-{listener}")
        except BaseException:
            self.kill()
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

    def close(self) -> None:
        """End it, in order if it still can."""
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
        self._reader.join(PATIENCE)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._directory.cleanup()

    def kill(self) -> None:
        """End it at once (SIGKILL)."""
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.kill(self.pid or self._process.pid, signal.SIGKILL)
        self._process.wait(PATIENCE)

    async def end(self) -> int:
        """Wait until it has ended without a signal, and return its exit code."""
        assert self._process is not None
        return await to_thread.run_sync(self._process.wait, PATIENCE)

    @property
    def log(self) -> str:
        """Return its log so far."""
        return (Path(self._directory.name) / "log").read_text()

    def take(self, wanted: Callable[[Line], bool]) -> Line:
        """The first line that is `wanted` of those that came or will come; it is then gone."""

        def found() -> Line | None:
            return next((line for line in self._lines if wanted(line)), None)

        with self._grown:
            self._grown.wait_for(lambda: self._ended or found() is not None, PATIENCE)
            line = found()
            if line is None:
                raise AssertionError(f"no such line in {self._lines}; its log: {self.log}")
            self._lines.remove(line)
            return line

    def untaken(self, key: str) -> list[Any]:
        """Return the messages with this key that were not consumed."""
        with self._grown:
            return [line[key] for line in self._lines if key in line]

    async def find(self, key: str, wanted: Callable[[Any], bool] = lambda value: True) -> Any:
        """As `take`: the value of the first line with this key whose value is `wanted`."""

        def of_the_key(line: Line) -> bool:
            return key in line and wanted(line[key])

        return (await to_thread.run_sync(self.take, of_the_key))[key]

    async def began(self, id: str) -> Line:
        """Wait until it handles the event with this id in its stream: what its handler was given,
        `name`, `id` (of the message), `native_id` (in the stream), `version` and `data`."""
        event: Line = await self.find("began", lambda event: bool(event["native_id"] == id))
        return event

    async def acknowledged(self, id: str) -> None:
        """Wait until it has acknowledged the event with this id in its stream."""
        await self.find("acknowledged", lambda acknowledged: bool(acknowledged == id))

    async def fire(self, event: str, *data: Line) -> list[Line]:
        """Fire events of the API `auth`: for each its `id` (of the message) and `native_id` (in the
        stream), or `error`."""
        self._ask(fire=event, data=data)
        fired: list[Line] = await self.find("fired")
        return fired

    async def hold(self, holding: bool) -> None:
        """From now on handlers begin and do not end, or all of them end."""
        self._ask(hold=holding)
        await self.find("held", lambda held: held is holding)

    def _await_group(self, key: str, group: str) -> None:
        """Wait until a group exists: it begins with the next published event."""
        for _ in range(int(PATIENCE / _STEP)):
            if self._server.command("XINFO", "CONSUMERS", key, group).startswith(b"*"):
                return
            sleep(_STEP)
        raise AssertionError(f"{key} has no consumer in the group {group}")

    def _ask(self, **line: object) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(line) + "\n")
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for text in self._process.stdout:
            with self._grown:
                self._lines.append(json.loads(text))
                self._grown.notify_all()
        with self._grown:
            self._ended = True
            self._grown.notify_all()
