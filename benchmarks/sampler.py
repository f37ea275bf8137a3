"""Where a process spends its processor time: a sample at each tick of its own CPU clock.

Nothing is wrapped or traced, so what is measured runs as it does without. A sample names the
innermost function of ours or of the loop; what was called in C counts for its caller.
"""

import opcode
import signal
from collections import Counter
from types import FrameType, TracebackType
from typing import Self, TypeAlias

# Function ("module:name") to how many samples hit it.
Samples: TypeAlias = dict[str, int]

# Seconds of processor time; kernels tick less often than that (100 to 1,000 times a second).
# A timer by the wall clock would be finer, and wrong: it counts waiting.
INTERVAL = 0.001
LOOP = "loop:"
# Packages whose functions are told apart; others count for whoever called them.
PACKAGES = frozenset({"lbm", "crypto", "node", "benchmarks", "asyncio", "anyio", "trio"})

_RESUME = opcode.opmap["RESUME"]


class Sampler:
    """Samples the main thread inside its `with`, if it is `active`."""

    def __init__(self, *, active: bool) -> None:
        self._active = active
        self._counts: Counter[str] = Counter()

    @property
    def samples(self) -> Samples:
        """What was seen up to now."""
        return dict(self._counts)

    def __enter__(self) -> Self:
        if self._active:
            signal.signal(signal.SIGPROF, self._tick)
            signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        if self._active:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            signal.signal(signal.SIGPROF, signal.SIG_IGN)

    def _tick(self, number: int, frame: FrameType | None) -> None:
        self._counts[function_of(frame)] += 1


def function_of(frame: FrameType | None) -> str:
    """To whom a sample belongs.

    The interpreter looks at signals after calls and where a function begins or resumes. In
    the latter case the time had passed before: in the caller, or in the loop's own code if
    it was the loop that called.
    """
    while frame is not None and frame.f_code.co_code[frame.f_lasti] == _RESUME:
        frame = frame.f_back
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] in PACKAGES:
            return f"{module}:{frame.f_code.co_qualname}"
        frame = frame.f_back
    return LOOP
