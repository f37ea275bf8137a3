"""Metrics and traces for external monitoring; requires the `metrics` extra."""

from parley._node.logs import extra_required

with extra_required("parley.telemetry", "metrics"):
    from parley._node.handlers.tracing import Intercepting, trace
    from parley._node.metrics.otel import Observed, observed
    from parley._node.metrics.prometheus import prometheus_text

__all__ = [
    "Intercepting",
    "Observed",
    "observed",
    "prometheus_text",
    "trace",
]
