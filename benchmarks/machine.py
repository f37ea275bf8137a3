"""The machine and the versions that a figure belongs to.

What cannot be found out is said to be unknown; a host's name is nobody's business.
"""

import os
import platform
import ssl
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("uvloop", "anyio", "trio", "cryptography", "pynacl", "cbor2")


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
    return found


def _linux() -> bool:
    return platform.system() == "Linux"


def _processor() -> str:
    if _linux():
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
