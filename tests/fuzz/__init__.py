"""Coverage-guided fuzzing: one target a file, each of them a function of some bytes.

A target raises only what `allowed.py` lists for it; all else is a bug. Targets
know nothing of the fuzzer, so that the corpus is replayed without it.
"""
