"""The server of `benchmarks.metered`: `python metered_server.py counted|uncounted`.

It imports nothing of the benchmarks, so that it runs on another checkout as well, one from before
there were metrics: there it is `uncounted`. It says its addresses as a line of JSON, and ends when
its standard input does.
"""

import asyncio
import contextlib
import json
import sys
from typing import Any

import uvloop

from parley import Identity, Node


def count_nothing() -> None:
    """Have this process count neither turns nor requests, as before there were metrics."""
    try:
        from node.messaging.pending import untold
        from node.metrics.families import Histogram
        from node.peer import endpoint
        from node.transport.turns import Line
    except ImportError:
        return  # it is from before
    made = Line.__init__
    silent: Any = type("_Silent", (Histogram,), {"observe": lambda self, value: None})

    def make(self: Line, *arguments: Any) -> None:
        made(self, *arguments)
        self.seconds = silent()

    # For this process alone, which has made nothing yet.
    vars(endpoint)["partial"] = lambda *_: untold  # of `count_final`
    type.__setattr__(Line, "__init__", make)


async def serve(*, counted: bool) -> None:
    """Echo, and tell metrics if anything is counted."""
    async with contextlib.AsyncExitStack() as stack:
        node = await stack.enter_async_context(Node(Identity.create()))

        @node.on_call("echo")
        async def echo(call: Any) -> Any:
            return call.data

        said = {"address": await node.listen("tcp://127.0.0.1:0")}
        if counted:
            from node.web.metrics import metrics_app, reasons_unready
            from node.web.server import serving

            app = metrics_app(node.metrics, lambda: reasons_unready(node))
            stack.enter_context(node.metrics.watched())
            said["url"] = await stack.enter_async_context(serving(app, "127.0.0.1:0"))
        print(json.dumps(said), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    if sys.argv[1] == "uncounted":
        count_nothing()
    uvloop.run(serve(counted=sys.argv[1] == "counted"))
