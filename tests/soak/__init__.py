"""Long runs: two nodes in two processes at full load, a network that cuts them, and a judge.

`python -m tests.soak --seconds 600` runs it; docs/guides/long-runs.md lists the guarantees. Every
guarantee has a number on both sides, and the judge compares the two.
"""
