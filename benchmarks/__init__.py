"""How fast Parley is: `uv run python -m benchmarks [CASE...] [--json] [--seconds N]`.

One rule: what is measured is the public API with its default settings, server and client
as two processes; figures are for comparing side by side, never for a test to pass.
"""
