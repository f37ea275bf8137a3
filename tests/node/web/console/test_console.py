"""Failures of the data that the console fetches in the background."""

from typing import Any

import anyio

from parley._node.web.console.console import Console
from tests.node.network import new_node


async def test_findings_that_fail_do_not_end_the_node(anyio_backend: Any) -> None:
    asked = anyio.Event()

    def fail() -> list[dict[str, str]]:
        anyio.from_thread.run_sync(asked.set)
        raise OSError("of a disk")

    async with new_node() as node, Console(node, findings=fail) as console:
        console.view()
        with anyio.fail_after(5):
            await asked.wait()
        await anyio.sleep(0.1)
        assert console.view()["findings"] is None
