"""Parley compared with alternatives: `uv run --group peers python -m benchmarks.peers`.

Each peer is used as its documentation recommends, encrypted and with mutual authentication. All of
them alternate with Parley and with hand-made TLS streams in the same run, each measurement with
fresh processes. Peers that are not installed are left out, and the run reports it.
"""
