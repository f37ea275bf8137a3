"""SIGTERM ends `parley run`, also if a handler of the application doesn't end."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
DRAIN = 0.2
# `parley` that waits for a shorter time.
PROGRAM = """
from parley._node.cli import signals
from parley._node.transport import asyncio_backend, trio_backend
signals.CLOSING = 3.0
asyncio_backend.CLOSE_PATIENCE = trio_backend.CLOSE_PATIENCE = 0.2
from parley._node.cli.main import main
main()
"""
APPLICATION = """
import time
import anyio, anyio.to_thread
from parley import Identity, Node, NodeConfig

node = Node(Identity.create(), config=NodeConfig(drain_timeout={drain}))

@node.on_call("thread")
async def thread(call):
    await anyio.to_thread.run_sync(time.sleep, 600)

@node.on_call("stubborn")
async def stubborn(call):
    with anyio.CancelScope(shield=True):  # for trio
        while True:
            try:
                await anyio.sleep(600)
            except BaseException:
                pass
"""
CALLER = """
import sys
import anyio
from parley import Identity, Node, ParleyError

async def main():
    async with Node(Identity.create()) as node:
        peer = await node.connect(sys.argv[1])
        print("connected", flush=True)
        try:
            await peer.call(sys.argv[2], timeout=600)
        except ParleyError:
            pass

anyio.run(main)
"""


@pytest.mark.process
@pytest.mark.parametrize("loop", ["asyncio", "trio"])
@pytest.mark.parametrize("handler", ["thread", "stubborn"])
def test_a_handler_that_does_not_end(tmp_path: Path, handler: str, loop: str) -> None:
    (tmp_path / "shop.py").write_text(APPLICATION.format(drain=DRAIN))
    env = os.environ | {"PYTHONPATH": str(ROOT), "PARLEY_HOME": str(tmp_path)}
    command = ["-c", PROGRAM, "run", "shop:node", "--listen", "tcp://127.0.0.1:0", "--loop", loop]
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(
            [sys.executable, *command],
            cwd=tmp_path,
            env=env,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as server,
    ):
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            while "tcp://" not in line:
                line = server.stdout.readline()
            address = next(word for word in line.split() if word.startswith("tcp://"))
            with subprocess.Popen(
                [sys.executable, "-c", CALLER, address, handler],
                env=env,
                stdout=subprocess.PIPE,
                text=True,
            ) as caller:
                try:
                    assert caller.stdout is not None
                    assert caller.stdout.readline() == "connected\n"
                    time.sleep(0.3)  # long enough for the call to arrive, which cannot be observed
                    server.send_signal(signal.SIGTERM)
                    assert server.wait(timeout=40) == 128 + signal.SIGTERM
                finally:
                    caller.kill()
        finally:
            server.kill()
    said = (tmp_path / "log").read_text()
    assert "tasks did not end within 3.2 s of the signal" in said, said
    if handler == "thread":
        assert re.search(r"running threads: .*run_sync_in_worker|AnyIO worker thread", said), said
    elif loop == "asyncio":
        assert "1 tasks ignore cancellation and are left running: stubborn (" in said, said
    else:
        assert "tasks that ignore cancellation" in said, said
