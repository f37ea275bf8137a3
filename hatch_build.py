"""Compiles the core of a wheel that is to be faster: `HATCH_BUILD_HOOKS_ENABLE=1 uv build --wheel`.

mypyc makes C of the `packages` in pyproject.toml, from the same source that runs uncompiled, and
the C compiler makes of it what Python imports instead. Without that variable a wheel is pure
Python, and so is whatever runs in a clone: nothing is ever written there.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# The library in which all of it is, beside what each module is imported by.
LIBRARY = "parley._lbm.compiled"
# A build with -O3 takes much longer, and most of this code runs once or waits for libraries.
OPTIMISATION = "1"


class CompiledCore(BuildHookInterface[Any]):
    """What hatchling calls when a wheel is built, if it was asked to."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and have the wheel take what came of it."""
        if version != "standard":  # a clone is used where it is
            return
        # Until the wheel is written, since it is read from here.
        self._made = TemporaryDirectory()
        with chdir(self.root):
            made = compile_core(core_files(self.config), Path(self._made.name))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"] |= {str(path): name for path, name in made}

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """The wheel is there."""
        if version == "standard":
            self._made.cleanup()


def core_files(config: dict[str, list[str]]) -> list[str]:
    """What is compiled: what is in the `packages` and not `pure`, and the files of `also`."""
    found = [
        name
        for package in config["packages"]
        for path in Path(package).rglob("*.py")
        if (name := path.as_posix()) not in config["pure"] and path.name != "__init__.py"
    ]
    return sorted(found + config["also"])


def compile_core(sources: list[str], made: Path) -> list[tuple[Path, str]]:
    """Compile the files; each one that was made, in the directory `made`, and its place in the
    wheel."""
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    class Parallel(build_ext):
        """Takes all processors for one library's files; setuptools takes one."""

        def build_extensions(self) -> None:
            one_by_one = self.compiler.compile

            def compile(sources: list[str], *args: Any, **options: Any) -> list[str]:
                with ThreadPoolExecutor(os.cpu_count()) as pool:
                    made = pool.map(lambda source: one_by_one([source], *args, **options), sources)
                    return [path for paths in made for path in paths]

            self.compiler.compile = compile
            super().build_extensions()

    options = [
        "--config-file=",
        "--follow-imports=silent",
        "--ignore-missing-imports",
        # What mypyc compiles has one type from beginning to end.
        "--disallow-redefinition",
        f"--cache-dir={made / 'cache'}",
    ]
    extensions = mypycify(
        [*options, *sources],
        opt_level=OPTIMISATION,
        debug_level="0",
        multi_file=True,
        group_name=LIBRARY,
        target_dir=str(made / "c"),
    )
    for extension in extensions:
        extension.include_dirs.append(str(Path(made, "c", *LIBRARY.split(".")[:-1])))
    build = Parallel(Distribution({"ext_modules": extensions}))
    build.build_lib, build.build_temp = str(made / "lib"), str(made / "o")
    build.ensure_finalized()
    build.run()
    return [
        (Path(path), Path(path).relative_to(made / "lib").as_posix())
        for path in build.get_outputs()
    ]
