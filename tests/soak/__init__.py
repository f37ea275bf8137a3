"""Long runs: two nodes in two processes at full load, a network that cuts them, a judge.

`python -m tests.soak --seconds 600` runs it; docs/guides/long-runs.md says what is promised.
Every promise has a number on both sides, and the judge compares the two.
"""
