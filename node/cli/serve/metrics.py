"""The metrics of `parley serve`, at an HTTP address of their own."""

import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from parley._node.cli.output import Output
from parley._node.errors import ConfigError
from parley._node.logs import needs_extra
from parley._node.node import Node
from parley._node.settings import ServeSettings

# A program that has imported this has somebody who reads what goes through OpenTelemetry's API:
# it does nothing by itself.
_OPENTELEMETRY: Final = "opentelemetry.metrics"


@asynccontextmanager
async def metered(node: Node, settings: ServeSettings, out: Output) -> AsyncIterator[None]:
    """While it lasts, tell the numbers of `node`, which need not run yet, as the settings have it.

    Raises:
        ConfigError: the extra `metrics` is not installed. AddressError: not an address.
        UnreachableError: it cannot be listened on.
    """
    async with AsyncExitStack() as stack:
        if _OPENTELEMETRY in sys.modules:
            from parley._node.handlers.tracing import trace
            from parley._node.metrics.otel import observed

            stack.enter_context(observed(node))
            trace(node)
        if settings.metrics is not None:
            # Here: HTTP and its libraries take longer to import than a node to start.
            try:
                from parley._node.web.http_server import serving
                from parley._node.web.metrics import metrics_app, reasons_unready
            except ImportError as error:
                raise ConfigError(needs_extra(f"--metrics ({error.name})", "metrics")) from error
            app = metrics_app(node.metrics, lambda: reasons_unready(node))
            stack.enter_context(node.metrics.watched())
            url = await stack.enter_async_context(serving(app, settings.metrics))
            out.say(f"telling metrics at {url}/metrics")
            out.event("metrics", url=url)
        yield
