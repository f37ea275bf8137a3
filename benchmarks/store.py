"""Measured figures as files: docs/performance/NAME.json, with the machine they belong to.

What a document shows is made from these files alone. Of the machine, what cannot be found out is
said to be unknown, and a host's name is not kept.
"""

import json
import os
import platform
import ssl
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from node.protocol import connection

DOCS = Path(__file__).parent.parent / "docs"
DIRECTORY = DOCS / "performance"


def save(name: str, rows: list[dict[str, Any]], directory: Path = DIRECTORY) -> None:
    """Write rows, one a line, so that a change of one shows as one."""
    directory.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    head = json.dumps(machine())
    text = f'{{\n"machine": {head},\n"rows": [\n{lines}\n]\n}}\n'
    (directory / f"{name}.json").write_text(text)


def load(name: str, directory: Path = DIRECTORY) -> list[dict[str, Any]]:
    """The rows of a file; none if it was never written."""
    return list(_read(name, directory).get("rows", []))


def machine_of(name: str, directory: Path = DIRECTORY) -> dict[str, str]:
    """Where the rows were measured."""
    return dict(_read(name, directory).get("machine", {}))


def _read(name: str, directory: Path) -> dict[str, Any]:
    path = directory / f"{name}.json"
    if not path.exists():
        return {}
    found: dict[str, Any] = json.loads(path.read_text())
    return found


PACKAGES = ("uvloop", "anyio", "trio", "cryptography", "pynacl", "blake3", "cbor2")


def machine() -> dict[str, str]:
    """Processor, cores, system, and the versions of all that does the work."""
    found = {
        "cpu": _processor(),
        "cores": str(len(os.sched_getaffinity(0)) if _linux() else os.cpu_count()),
        "os": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    found["openssl"] = ssl.OPENSSL_VERSION
    found["core"] = "compiled" if core_is_compiled() else "pure Python"
    return found


def core_is_compiled() -> bool:
    """Whether what runs is an extension module of our core, not its source."""
    return not str(connection.__file__).endswith(".py")


def _linux() -> bool:
    return platform.system() == "Linux"


def _processor() -> str:
    if _linux():
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
