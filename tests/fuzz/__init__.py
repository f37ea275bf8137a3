"""Coverage-guided fuzzing with one target per file; each target is a function of bytes.

A target raises only the exceptions that `allowed.py` lists for it; all others are bugs. Targets
don't depend on the fuzzer, so the corpus can be replayed without it.
"""
