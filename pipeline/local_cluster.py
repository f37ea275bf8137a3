"""A standalone Spark cluster on this machine: a master and workers, each in its own process.

They listen only on 127.0.0.1. Spark's processes authenticate each other with a random secret and
encrypt their connections and temporary files. The secret is in a file that only its owner can read,
because command lines and Spark's web pages are visible to others.
"""

import json
import os
import signal
import socket
import subprocess
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from time import perf_counter, sleep
from typing import Final

import pyspark

from parley._crypto.randomness import random_bytes
from parley._node.errors import UnreachableError
from parley._pipeline.spark import find_java, shim_home

_HOST: Final = "127.0.0.1"
_CLASSES: Final = "org.apache.spark.deploy"
_DAEMON_MEMORY: Final = "256m"  # Java heap of the master, and of each worker without its executor
# Seconds until all workers must be registered, and until a process must have ended.
_START: Final = 120.0
_STOP: Final = 15.0
_PAUSE: Final = 0.1
_TAIL: Final = 500  # characters of a log in an error


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """The running processes of a cluster.

    `master` is the URL for `open_session`. Programs that use the cluster need the environment
    variable SPARK_CONF_DIR with the value `configuration`. `page` is the master's web page.
    """

    master: str
    page: str
    configuration: Path
    processes: Mapping[str, Popen[bytes]]

    def ended(self) -> list[str]:
        """Return the names of the processes that have ended, such as `worker 1`."""
        return [name for name, process in self.processes.items() if process.poll() is not None]


@contextmanager
def local_cluster(
    directory: Path,
    *,
    workers: int = 2,
    cores: int = 1,
    memory: str = "1g",
    stopped: Callable[[], bool] = lambda: False,
) -> Iterator[LocalCluster]:
    """Start a master and workers, and end them when the block ends.

    Each worker has `cores` cores and one executor with a Java heap of `memory`. Configuration, logs
    and temporary files are written to `directory`, which must be empty. `stopped` is polled while
    the cluster starts; if it returns True, the start is given up.

    Raises:
        UnreachableError: A process ended early or didn't register within two minutes; or stopped.
        NoJavaError: No Java runtime of version 17 or later was found.
        OSError: A file cannot be written.
    """
    configuration = directory / "conf"
    _configure(configuration, directory / "temporary", memory)
    port, page = _free_port(), _free_port()
    master = f"spark://{_HOST}:{port}"
    options = {"host": _HOST, "port": port, "webui-port": page}
    commands = {"master": ["master.Master", *_arguments(options)]}
    for number in range(1, workers + 1):
        options = {"host": _HOST, "webui-port": 0, "cores": cores, "memory": memory}
        options["work-dir"] = str(directory / f"worker-{number}")
        commands[f"worker {number}"] = ["worker.Worker", *_arguments(options), master]
    environment = _environment(configuration)
    processes: dict[str, Popen[bytes]] = {}
    with ExitStack() as ending:
        ending.callback(_end, processes)
        for name, command in commands.items():
            log = directory / f"{name.replace(' ', '-')}.log"
            processes[name] = _start(command, environment, log)
        cluster = LocalCluster(master, f"http://{_HOST}:{page}/", configuration, processes)
        _wait(cluster, page, workers, directory, stopped)
        yield cluster


def _configure(configuration: Path, temporary: Path, memory: str) -> None:
    secret = urlsafe_b64encode(random_bytes(32)).decode()
    settings = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": secret,
        "spark.network.crypto.enabled": "true",
        "spark.io.encryption.enabled": "true",
        "spark.driver.bindAddress": _HOST,
        "spark.driver.host": _HOST,
        "spark.executor.memory": memory,
        "spark.local.dir": str(temporary),
        # The server that accepts jobs over HTTP has no authentication.
        "spark.master.rest.enabled": "false",
        "spark.ui.port": "0",
        "spark.ui.killEnabled": "false",
    }
    configuration.mkdir(mode=0o700, parents=True)
    temporary.mkdir(mode=0o700)
    lines = "".join(f"{name} {value}\n" for name, value in settings.items())
    for name, text in (
        ("spark-defaults.conf", lines),
        ("spark-env.sh", f"export SPARK_LOCAL_IP={_HOST}\n"),  # also for the web pages
    ):
        (configuration / name).touch(mode=0o600)
        (configuration / name).write_text(text)


def _arguments(options: Mapping[str, object]) -> list[str]:
    return [part for name, value in options.items() for part in (f"--{name}", str(value))]


def _environment(configuration: Path) -> dict[str, str]:
    return {
        **os.environ,
        "JAVA_HOME": str(shim_home(find_java())),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_CONF_DIR": str(configuration),
        "SPARK_DAEMON_MEMORY": _DAEMON_MEMORY,
        # Fail if a port was taken meanwhile, instead of using the next one.
        "SPARK_DAEMON_JAVA_OPTS": "-Dspark.port.maxRetries=0 -XX:+UseSerialGC",
    }


def _start(command: list[str], environment: Mapping[str, str], log: Path) -> Popen[bytes]:
    program = Path(environment["SPARK_HOME"]) / "bin" / "spark-class"
    name, *arguments = command
    with log.open("wb") as output:
        # Processes in other sessions don't receive the terminal's Ctrl-C.
        return subprocess.Popen(  # noqa: S603  (Spark's own program)
            [str(program), f"{_CLASSES}.{name}", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def _wait(
    cluster: LocalCluster, page: int, workers: int, directory: Path, stopped: Callable[[], bool]
) -> None:
    deadline = perf_counter() + _START
    while perf_counter() < deadline:
        if stopped():
            raise UnreachableError("cannot start the Spark cluster: it was interrupted")
        for name in cluster.ended():
            log = directory / f"{name.replace(' ', '-')}.log"
            tail = log.read_text(errors="replace")[-_TAIL:]
            raise UnreachableError(
                f"cannot start the Spark cluster: the {name} ended early: {tail}"
            )
        if _registered(page) >= workers:
            return
        sleep(_PAUSE)
    raise UnreachableError(
        f"cannot start the Spark cluster: fewer than {workers} workers registered within "
        f"{_START:.0f} s; reduce their number or the load of this machine"
    )


def _registered(page: int) -> int:
    """Return the number of workers that are registered with the master."""
    connection = HTTPConnection(_HOST, page, timeout=5)
    try:
        connection.request("GET", "/json/")
        return int(json.loads(connection.getresponse().read())["aliveworkers"])
    except (OSError, HTTPException, ValueError, KeyError):
        return 0  # the master has not started yet
    finally:
        connection.close()


def _end(processes: Mapping[str, Popen[bytes]]) -> None:
    """End all processes: the workers first, which end their executors."""
    last_first = list(processes.values())[::-1]
    for process in last_first:
        process.terminate()
    for process in last_first:
        try:
            process.wait(_STOP)
        except TimeoutExpired:
            process.kill()
            process.wait()
        # Executors of a worker that was killed are in its process group.
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _free_port() -> int:
    with socket.create_server((_HOST, 0)) as server:
        return int(server.getsockname()[1])
