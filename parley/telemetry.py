"""A node's metrics and spans for others' programs; it needs the extra `metrics`."""

from node.handlers.tracing import trace
from node.metrics.otel import observed
from node.metrics.prometheus import prometheus_text

__all__ = ["observed", "prometheus_text", "trace"]
