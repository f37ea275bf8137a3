"""How fast Parley is: `uv run --group dev python -m benchmarks [CASE...] [--json] [--seconds N]`.

The benchmarks measure the public API with its default settings. Server and client are two processes
and alternate with a lean baseline in the same run; no test asserts a time.
"""
