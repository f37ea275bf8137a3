"""Long runs: two nodes in two processes at full load, a network that cuts them, and a judge.

`python -m tests.soak --seconds 600` starts one; docs/guides/long-runs.md lists the promises. Each
promise is a number that both sides count, and the judge compares the two.
"""
