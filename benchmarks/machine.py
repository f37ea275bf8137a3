"""The machine that figures belong to: processor, system, and the versions of the packages used."""

import os
import platform
import ssl
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from parley._node.protocol import connection

PACKAGES: Final = ("uvloop", "anyio", "trio", "cryptography", "pynacl", "blake3", "cbor2")


def machine() -> dict[str, str]:
    """Return processor, cores, system and versions; never the name of the host."""
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
    """Return whether the core is an extension module."""
    return not str(connection.__file__).endswith(".py")


def _linux() -> bool:
    return platform.system() == "Linux"


def _processor() -> str:
    if _linux():
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
