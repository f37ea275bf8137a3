"""How fast Parley is: `uv run --group dev python -m benchmarks [CASE...] [--json] [--seconds N]`.

What is measured is the public API with its default settings, server and client as two
processes, in turn with a lean baseline in the same run; no test asserts a time.
"""
