"""Where each microsecond of one call or one note goes: `python -m benchmarks.profile call`.

Shares come from samples, microseconds from the processor time of the same run; the two
processes are told apart.
"""

import argparse
import json
from collections import Counter
from typing import Any

from benchmarks.cases import CASES
from benchmarks.dialects.cases import DIALECT_CASES
from benchmarks.rounds import measure
from benchmarks.sampler import Samples
from benchmarks.task import Backend, SideName, Task

# The layer of a module; the longest prefix decides, so a new module counts for its package.
LAYERS: dict[str, str] = {
    "lbm": "LBM: encode, decode",
    "crypto": "keys and key schedule",
    "crypto.ciphers": "AEAD: encrypt, decrypt",
    "crypto.streamkeys": "AEAD: encrypt, decrypt",
    "crypto.hashing": "hash chain",
    "crypto.chain": "hash chain",
    "crypto.signing": "seals: sign, verify",
    "crypto.identity": "seals: sign, verify",
    "node": "node: calls, topics, handlers",
    "node.messaging": "messaging: requests, notes",
    "node.dialects": "dialects: frames, dialogs, routing",
    "node.gateways": "gateways and their clients",
    "node.protocol": "core: connection, session",
    "node.protocol.event": "events and frames",
    "node.protocol.frames": "events and frames",
    "node.protocol.sealing": "core: sealing",
    "node.protocol.multiplexer": "core: streams, credit",
    "node.protocol.streams": "core: streams, credit",
    "node.protocol.window": "core: streams, credit",
    "node.protocol.outbox": "core: streams, credit",
    "node.transport": "transport, with writing",
    "benchmarks": "the benchmark itself",
    "asyncio": "loop: tasks, polling, reading",
    "anyio": "loop: tasks, polling, reading",
    "trio": "loop: tasks, polling, reading",
    "loop": "loop: tasks, polling, reading",
}


def layer_of(function: str) -> str:
    """The layer of a "module:name"."""
    name = function.partition(":")[0]
    while name not in LAYERS:
        above = name.rpartition(".")[0]
        if not above:
            return "other"
        name = above
    return LAYERS[name]


# Of the cases, and of those of the dialects.
PROFILES = {"call": "calls-64", "call-alone": "calls", "note": "notes-1", "bulk": "bulk-1m"}
DIALECT_PROFILES = [name for name in DIALECT_CASES if name not in CASES and name != "notes"]


def profile(
    name: str, seconds: float, backend: Backend = "uvloop", quiet: float = 4.0
) -> list[dict[str, Any]]:
    """A row for each process: microseconds of an operation, by layer and by function."""
    side: SideName = "ours"
    if name in PROFILES:
        task = CASES[PROFILES[name]].lasting(seconds)
    else:
        side, task = DIALECT_CASES[name].side, DIALECT_CASES[name].lasting(seconds)
    found = measure(side, Task.from_json({**task.to_json(), "profile": True}), backend, quiet)
    parts = (
        ("client", found.client_us, found.client_samples),
        ("server", found.server_us, found.server_samples),
    )
    return [
        {
            "profile": name,
            "process": process,
            "us": round(us, 3),
            "samples": sum(samples.values()),
            "layers": _by_layer(samples, us),
            "functions": _shares(samples, us),
        }
        for process, us, samples in parts
    ]


def _by_layer(samples: Samples, us: float) -> dict[str, float]:
    layers: Counter[str] = Counter()
    for function, count in samples.items():
        layers[layer_of(function)] += count
    return _shares(layers, us)


def _shares(counts: dict[str, int], us: float) -> dict[str, float]:
    """Microseconds of each, the greatest first."""
    each = us / max(1, sum(counts.values()))
    ordered = sorted(counts.items(), key=lambda entry: -entry[1])
    return {name: round(count * each, 3) for name, count in ordered}


def lines(row: dict[str, Any], functions: int) -> list[str]:
    """A row as text, with so many functions."""
    head = f"{row['profile']}, {row['process']}: {row['us']} us of processor time"
    text = [f"{head} ({row['samples']} samples)"]
    parts = [*row["layers"].items(), *list(row["functions"].items())[:functions]]
    text += [f"  {us:9.3f} {us / (row['us'] or 1.0):6.1%}  {name}" for name, us in parts]
    return text


def main() -> None:
    """Print the profiles asked for."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.profile", description=__doc__)
    known = [*PROFILES, *DIALECT_PROFILES]
    options.add_argument("profiles", nargs="*", metavar="PROFILE", help=", ".join(known))
    options.add_argument("--seconds", type=float, default=10.0)
    options.add_argument("--backend", choices=["uvloop", "asyncio", "trio"], default="uvloop")
    options.add_argument("--functions", type=int, default=0, metavar="N", help="the N dearest")
    options.add_argument("--json", action="store_true", help="one JSON object a line")
    given = options.parse_args()
    unknown = set(given.profiles) - set(known)
    if unknown:
        options.error(f"no such profile: {', '.join(sorted(unknown))}")
    for name in given.profiles or ["call", "note"]:
        for row in profile(name, given.seconds, given.backend):
            print(json.dumps(row) if given.json else "\n".join(lines(row, given.functions)))


if __name__ == "__main__":
    main()
