"""The command line of long runs: `python -m tests.soak --seconds 600 --backend uvloop`."""

import argparse
import json
import sys
from random import SystemRandom  # noqa: TID251  # for a seed that is printed

from tests.soak.plan import BACKENDS, Plan
from tests.soak.run import run


def main() -> int:
    """Run it and print the results; return 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="of full load")
    parser.add_argument("--seed", type=int, help="of an earlier run; by default a new one")
    parser.add_argument("--backend", choices=BACKENDS, default="uvloop")
    parser.add_argument("--links", type=int, default=3, help="connections at a time")
    parser.add_argument(
        "--resume", type=float, default=30.0, help="seconds that a session waits; 0: it is cut off"
    )
    given = parser.parse_args()
    seed = SystemRandom().randrange(2**32) if given.seed is None else given.seed
    print(f"seed {seed}", file=sys.stderr, flush=True)
    plan = Plan(
        seconds=given.seconds,
        seed=seed,
        backend=given.backend,
        links=given.links,
        resume=given.resume,
    )
    report = run(plan, _progress)
    print(file=sys.stderr)
    print(json.dumps(report.data(), indent=2))
    return 1 if report.violations else 0


def _progress(line: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{line:100}", end="", file=sys.stderr, flush=True)
    else:
        print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
