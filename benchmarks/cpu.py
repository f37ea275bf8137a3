"""Who used the processor: ours, theirs, and everybody else's processes.

On a machine that is shared, processor time for an operation is steadier than operations
for a second, and a measurement says how much others used meanwhile.
"""

import platform
import time
from time import perf_counter

import psutil

# Cores used by others from which a measurement counts as disturbed.
NOISE = 0.2
QUIET_WAIT = 4.0
LOOK = 0.25


def process_seconds(pid: int) -> float:
    """Processor time of a process, user and system."""
    if platform.system() == "Linux":
        # The process's own clock, in nanoseconds (clock_getcpuclockid(3)): /proc and psutil
        # count in hundredths of a second.
        return time.clock_gettime((~pid << 3) | 2)
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def busy_seconds() -> float:
    """Processor time that the whole machine has used, stolen time included."""
    times = psutil.cpu_times()._asdict()
    guest = times.get("guest", 0.0) + times.get("guest_nice", 0.0)  # in user and nice already
    return float(sum(times.values()) - times["idle"] - times.get("iowait", 0.0) - guest)


class Meter:
    """Processor time of some processes and of all others, since it was made."""

    def __init__(self, *pids: int) -> None:
        self._pids = pids
        self._own = time.process_time()
        self._busy = busy_seconds()
        self._before = [process_seconds(pid) for pid in pids]
        self._start = perf_counter()

    def read(self) -> tuple[list[float], float]:
        """Seconds of each process, and how many cores all others used on average."""
        elapsed = perf_counter() - self._start
        used = [
            process_seconds(pid) - was for pid, was in zip(self._pids, self._before, strict=True)
        ]
        busy = busy_seconds() - self._busy
        others = busy - sum(used) - (time.process_time() - self._own)
        return used, max(0.0, others / elapsed)


def wait_until_quiet(*pids: int, limit: float = QUIET_WAIT) -> None:
    """Wait, for a bounded time, until others leave the machine to us."""
    end = perf_counter() + limit
    while perf_counter() < end:
        meter = Meter(*pids)
        time.sleep(LOOK)
        if meter.read()[1] < NOISE:
            return
