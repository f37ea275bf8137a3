"""The dialects beside each other and beside the native protocol: `python -m
benchmarks.dialects [CASE...] [--json] [--seconds N] [--rounds N]`.

All cases of a round run one after another, and a ratio is of one round. The processes,
the works and the meters are those of the other benchmarks.
"""
