"""Parley beside what a user would pick instead: `uv run --group peers python -m benchmarks.peers`.

Each peer is used as its own documents recommend, and encrypted, with both sides proving who they
are. All take turns with Parley and with hand-made TLS streams in the same run, each measurement
with fresh processes; one that is not installed is left out, and the run says so.
"""
