"""Run each target in its own process, and report findings.

A finding is printed so that it can be reproduced from the log alone, and the exit code tells
whether there was one. The tree stays clean; only `--corpus` keeps the fuzzer's new inputs.
"""

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

CORPUS: Final = Path(__file__).with_name("corpus")
# Of one input: seconds, and MiB of the whole process. The usual are milliseconds and 150.
INPUT_SECONDS: Final = 5
MEMORY_MIB: Final = 512
# How long a process may take to begin and to end, in seconds, beyond its share.
SPARE_SECONDS: Final = 60
# The prefixes of libFuzzer's files of findings, by kind.
_KINDS: Final = {
    "crash": "it raises",
    "timeout": f"it needs more than {INPUT_SECONDS} s",
    "oom": f"it takes more than {MEMORY_MIB} MiB",
    "leak": "it leaks",
}
_STATISTIC: Final = re.compile(r"^stat::(\w+):\s+(\d+)$", re.MULTILINE)
_TRACEBACK: Final = re.compile(
    r"=== Uncaught Python exception: ===\n(.*?)(?=\n==\d+== |\Z)", re.DOTALL
)


@dataclass(frozen=True)
class Finding:
    """An input that a target does not take, and what the fuzzer said of it."""

    target: str
    kind: str
    data: bytes
    said: str

    def __str__(self) -> str:
        hex_text = self.data.hex()
        return (
            f"FOUND by {self.target}: {_KINDS.get(self.kind, self.kind)}, {len(self.data)} bytes\n"
            f"{self.said.strip()}\n"
            f"input: {hex_text}\n"
            f"again: python -m tests.fuzz {self.target} --input <(xxd -r -p <<< {hex_text})"
        )


@dataclass(frozen=True)
class Outcome:
    """The result of one target. `failed` is the output of its process if it crashed."""

    target: str
    executions: int
    per_second: int
    memory: int
    findings: tuple[Finding, ...]
    failed: str = ""

    @property
    def is_good(self) -> bool:
        """Return whether it ran without findings."""
        return not self.findings and not self.failed

    def __str__(self) -> str:
        line = (
            f"{self.target:<12}{self.executions:>10,} inputs  {self.per_second:>7,}/s  "
            f"{self.memory:>4} MiB  {len(self.findings)} found"
        )
        return "\n\n".join([line, *map(str, self.findings), *filter(None, [self.failed])])


def run(targets: Sequence[str], seconds: int, corpus: Path | None) -> Iterator[Outcome]:
    """Fuzz the targets one after the other for `seconds` in all, and one at least each."""
    share = max(1, seconds // len(targets))
    for target in targets:
        with ExitStack() as stack:
            made = Path(stack.enter_context(TemporaryDirectory(prefix="parley-fuzz-")))
            learnt = corpus / target if corpus is not None else made / "learnt"
            learnt.mkdir(parents=True, exist_ok=True)
            yield _run(target, share, learnt, made)


def minimise(target: str, learnt: Path, wanted: Path) -> None:
    """Copy to `wanted` few inputs of `learnt`, which reach what those there do not.

    Raises:
        CalledProcessError: the fuzzer failed.
    """
    # Without counters new code counts, and how often it runs does not.
    options = ["-set_cover_merge=1", "-use_counters=0", str(wanted), str(learnt)]
    _start(target, options, None).check_returncode()


def _run(target: str, seconds: int, learnt: Path, made: Path) -> Outcome:
    found = made / "found"
    found.mkdir()
    options = [
        f"-max_total_time={seconds}",
        f"-timeout={INPUT_SECONDS}",
        f"-rss_limit_mb={MEMORY_MIB}",
        f"-artifact_prefix={found}/",
        "-print_final_stats=1",
        str(learnt),
    ]
    if (CORPUS / target).is_dir():
        options.append(str(CORPUS / target))
    done = _start(target, options, seconds + SPARE_SECONDS)
    counts = {name: int(count) for name, count in _STATISTIC.findall(done.stdout)}
    said = _said(done.stdout)
    findings = tuple(
        Finding(target, path.name.partition("-")[0], path.read_bytes(), said)
        for path in sorted(found.iterdir())
        if not path.name.startswith("slow-unit")
    )
    return Outcome(
        target,
        counts.get("number_of_executed_units", 0),
        counts.get("average_exec_per_sec", 0),
        counts.get("peak_rss_mb", 0),
        findings,
        done.stdout if done.returncode and not findings else "",
    )


def _start(
    target: str, options: list[str], timeout: float | None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.fuzz.process", target, *options]
    return subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,  # the traceback goes to one, the rest to the other
        text=True,
        errors="replace",
        timeout=timeout,
        check=False,
    )


def _said(log: str) -> str:
    """The traceback in what a process wrote, or its last lines."""
    match = _TRACEBACK.search(log)
    return match[1] if match else "\n".join(log.splitlines()[-20:])
