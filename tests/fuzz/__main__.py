"""`python -m tests.fuzz [TARGET...] [--seconds N] [--corpus DIR] [--input FILE]`.

Exit codes: 0 no findings, 1 findings, 2 fuzzing cannot run on this machine.
"""

import sys
from argparse import ArgumentParser, Namespace
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tests.fuzz.runner import minimise, run
from tests.fuzz.targets import PLANTED, TARGETS, load

GOOD: Final = 0
FOUND: Final = 1
UNABLE: Final = 2


def main(arguments: list[str]) -> int:
    """Fuzz, or run one input, and print the result."""
    options = _parse(arguments)
    if options.input is not None:
        load(options.targets[0]).run(options.input.read_bytes())
        print(f"{options.targets[0]} takes it")
        return GOOD
    if find_spec("atheris") is None:
        print("atheris is not there: it has wheels for Linux and CPython 3.11 to 3.13")
        return UNABLE
    if options.minimise is not None:
        for target in options.targets:
            minimise(target, options.corpus / target, options.minimise / target)
        return GOOD
    good = True
    for outcome in run(options.targets, options.seconds, options.corpus):
        print(outcome, flush=True)
        good = good and outcome.is_good
    return GOOD if good else FOUND


def _parse(arguments: list[str]) -> Namespace:
    parser = ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "targets", nargs="*", metavar="TARGET", help=f"{', '.join(TARGETS)}; all without it"
    )
    parser.add_argument("--seconds", type=int, default=60, help="for all of them (60)")
    parser.add_argument("--corpus", type=Path, help="where to keep what the fuzzer learns")
    parser.add_argument("--minimise", type=Path, help="copy there what --corpus has beyond it")
    parser.add_argument("--input", type=Path, help="give one TARGET the bytes of a file")
    options = parser.parse_args(arguments)
    unknown = set(options.targets) - {*TARGETS, PLANTED}
    if unknown:
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    options.targets = options.targets or list(TARGETS)
    if options.input is not None and len(options.targets) != 1:
        parser.error("--input needs one TARGET")
    if options.minimise is not None and options.corpus is None:
        parser.error("--minimise needs --corpus")
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
