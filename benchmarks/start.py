"""How long commands take to start, compared with a program of click that greets.

    uv run --group dev python -m benchmarks.start [--rounds N] [--json]

Each command runs in a separate process, alternating with the others. The result is the processor
time of the fastest run, which is stable on a busy machine. The ratios have limits, which a test
checks. `call` calls a running `parley serve`; completion is requested as a shell does.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

BARE: Final = "bare click"
_PROGRAM: Final = """
import click


@click.command()
@click.argument("name")
def main(name: str) -> None:
    print(f"Hello {name}")


main()
"""


@dataclass(frozen=True)
class Start:
    """A command: its arguments, and the maximum ratio of its time to `BARE`; None for no limit.
    With `line`, it is a shell that requests completions.
    """

    arguments: tuple[str, ...] = ()
    bound: float | None = None
    line: str = ""


ADDRESS: Final = "ADDRESS"  # Replaced by the server's address.
STARTS: Final[dict[str, Start]] = {
    "--version": Start(("--version",), 1.5),
    "completion of commands": Start(bound=1.5, line="parley "),
    "completion of options": Start(bound=1.5, line="parley serve --"),
    "completion of addresses": Start(bound=3.0, line="parley call "),
    "call": Start(("call", ADDRESS, "parley.echo", "hello"), 8.0),
    "--help": Start(("--help",)),
    "call --help": Start(("call", "--help")),
    "id show --help": Start(("id", "show", "--help")),
}


def measure(names: Sequence[str] = tuple(STARTS), rounds: int = 7) -> dict[str, float]:
    """Seconds of processor time of `BARE` and of each named start, the least of all rounds.

    Raises:
        RuntimeError: one of them failed.
    """
    with tempfile.TemporaryDirectory() as home, _server(Path(home)) as address:
        bare = Path(home) / "bare.py"
        bare.write_text(_PROGRAM)
        best: dict[str, float] = {}
        for _ in range(rounds):
            _keep(best, BARE, _seconds([str(bare), "world"], _environment(home)))
            for name in names:
                start = STARTS[name]
                arguments = [address if each == ADDRESS else each for each in start.arguments]
                environment = _environment(home, start.line)
                _keep(best, name, _seconds(["-m", "parley", *arguments], environment))
    return best


def too_slow(found: Mapping[str, float]) -> dict[str, float]:
    """The ratios that are above their bounds."""
    ratios = {name: seconds / found[BARE] for name, seconds in found.items() if name != BARE}
    bounds = {name: STARTS[name].bound for name in ratios}
    return {
        name: ratio
        for name, ratio in ratios.items()
        if (bound := bounds[name]) is not None and ratio > bound
    }


def _keep(best: dict[str, float], name: str, seconds: float) -> None:
    best[name] = min(seconds, best.get(name, seconds))


def _environment(home: str, line: str = "") -> dict[str, str]:
    asked = {"_PARLEY_COMPLETE": "complete_lines", "_PARLEY_COMPLETE_LINE": line}
    # As for users: compiled bytecode is kept, which some test environments disable.
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PARLEY_HOME": home, **(asked if line else {})}


def _seconds(arguments: Sequence[str], environment: Mapping[str, str]) -> float:
    process = subprocess.Popen(
        [sys.executable, *arguments],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    with process.stderr:
        said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: {said.decode(errors='replace')}")
    return used.ru_utime + used.ru_stime


@contextmanager
def _server(home: Path) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "parley", "serve", "--json", "--listen", f"unix://{home}/socket"],
        env=_environment(str(home)),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            said = json.loads(line)
            if said["event"] == "ready":
                yield said["addresses"][0]
                break
        else:
            raise RuntimeError("the server ended at once")
    finally:
        process.terminate()
        process.communicate()


def main() -> int:
    """Measure all, and print seconds and ratios; 1 if one is above its bound."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.start", description=__doc__)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--json", action="store_true", help="one JSON object a line")
    given = options.parse_args()
    found = measure(rounds=given.rounds)
    for name, seconds in found.items():
        ratio, bound = seconds / found[BARE], STARTS[name].bound if name in STARTS else None
        if given.json:
            print(json.dumps({"start": name, "seconds": seconds, "ratio": ratio, "bound": bound}))
        else:
            limit = "" if bound is None else f"   at most {bound}"
            print(f"{name:26} {seconds * 1e3:6.0f} ms   {ratio:4.2f} times{limit}")
    return 1 if too_slow(found) else 0


if __name__ == "__main__":
    sys.exit(main())
