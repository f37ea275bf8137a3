"""Test that a server on asyncio without file descriptors logs a few lines and recovers."""

import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, os, resource, socket
from contextlib import ExitStack
from parley._crypto.identity import Identity
from parley._node.node import Node

async def main():
    async with Node(Identity.create()) as server, Node(Identity.create()) as client:
        address = await server.listen("tcp://127.0.0.1:0")
        port = int(address.partition("#")[0].rpartition(":")[2])
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        with ExitStack() as stack:
            for _ in range(100):
                one = stack.enter_context(socket.socket())
                one.setblocking(False)
                one.connect_ex(("127.0.0.1", port))
            used = len(os.listdir("/proc/self/fd"))
            resource.setrlimit(resource.RLIMIT_NOFILE, (used, limits[1]))
            await asyncio.sleep(2.5)  # asyncio tries again each second
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        await (await client.connect(address)).ping()
    print("served")

asyncio.run(main())
"""


@pytest.mark.process
@pytest.mark.slow
def test_few_lines_are_logged_and_it_serves_again() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.stdout == "served\n", done.stderr[-2000:]
    assert "Too many open files" in done.stderr
    assert len(done.stderr) < 20_000
