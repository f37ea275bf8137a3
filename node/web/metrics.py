"""HTTP endpoints for monitoring: `/metrics`, `/healthz` and `/readyz`."""

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from parley._node.metrics.metrics import Metrics
from parley._node.metrics.prometheus import prometheus_text
from parley._node.node import Node


def metrics_app(metrics: Metrics, unready: Callable[[], list[str]]) -> Starlette:
    """Return the application. `unready` returns the reasons why the node accepts no traffic now."""

    async def expose(request: Request) -> Response:
        await metrics.refresh()
        text, content_type = prometheus_text(metrics.collect(), request.headers.get("accept", ""))
        return Response(text, headers={"content-type": content_type})

    async def healthy(request: Request) -> Response:
        return PlainTextResponse("ok\n")  # The event loop runs, or there would be no response.

    async def ready(request: Request) -> Response:
        reasons = unready()
        text = "".join(f"{reason}\n" for reason in reasons) or "ok\n"
        return PlainTextResponse(text, status_code=503 if reasons else 200)

    pages = {"/metrics": expose, "/healthz": healthy, "/readyz": ready}
    return Starlette(routes=[Route(path, page) for path, page in pages.items()])


def reasons_unready(node: Node) -> list[str]:
    """Return the reasons why a node accepts no connections now; empty if it does."""
    reasons = []
    if not node.addresses:
        reasons.append("the node is not listening: it is starting or stopping")
    if node.journal is not None and node.journal.failed is not None:
        reasons.append("the journal cannot be written")
    if len(node.peers) >= node.config.max_connections:
        reasons.append("the node has the maximum number of connections")
    return reasons
