"""What mypyc compiles: one source serves both cores, and uses only what both of them do."""

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.compiled import CORE, is_compiled

ROOT = Path(__file__).parent.parent
HOOK = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"][
    "targets"
]["wheel"]["hooks"]["custom"]


def compiled_files() -> set[str]:
    """The files that are compiled, as a wheel's hook has it."""
    found = {
        path.relative_to(ROOT).as_posix()
        for package in HOOK["packages"]
        for path in (ROOT / package).rglob("*.py")
        if path.name != "__init__.py"
    }
    return (found - set(HOOK["pure"])) | set(HOOK["also"])


def parsed(names: Iterable[str]) -> Iterator[tuple[str, ast.Module]]:
    """Those of the files that are here: a wheel is tested in a folder that has no source."""
    for name in sorted(names):
        if (ROOT / name).is_file():
            yield name, ast.parse((ROOT / name).read_text("utf-8"))


def functions() -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions of each module that is compiled."""
    for name, tree in parsed(compiled_files()):
        for found in ast.walk(tree):
            if isinstance(found, ast.FunctionDef):
                yield f"{name}: {found.name}", found


def classes(names: Iterable[str]) -> Iterator[tuple[str, set[str]]]:
    """The classes of some files, and the names of what each inherits from, except errors: these
    may be inherited from anywhere."""
    for _, tree in parsed(names):
        for found in ast.walk(tree):
            if isinstance(found, ast.ClassDef) and not found.name.endswith("Error"):
                yield found.name, {ast.unparse(base).partition("[")[0] for base in found.bases}


def test_all_of_the_core_is_of_one_kind() -> None:
    assert len({is_compiled(module) for module in CORE}) == 1


def test_what_is_named_is_there() -> None:
    if not is_compiled(CORE[0]):  # a wheel is tested in a folder that has no source
        named = HOOK["pure"] + HOOK["also"]
        assert [name for name in named if not (ROOT / name).is_file()] == []


def test_only_what_is_compiled_inherits_from_what_is_compiled() -> None:
    """Whoever else does gets a TypeError when an object is made."""
    core = compiled_files()
    others = {
        path.relative_to(ROOT).as_posix()
        for package in ("crypto", "lbm", "node", "parley", "pipeline")
        for path in (ROOT / package).rglob("*.py")
    }
    made = {name for name, _ in classes(core)}
    assert {name: bases & made for name, bases in classes(others - core) if bases & made} == {}


def test_a_name_of_caught_errors_has_one_type_in_a_function() -> None:
    """mypyc holds what the second `except` catches to the type of the first, and raises TypeError
    in its place."""
    wrong = []
    for place, function in functions():
        types = defaultdict(set)
        for found in ast.walk(function):
            if isinstance(found, ast.ExceptHandler) and found.name and found.type:
                types[found.name].add(ast.unparse(found.type))
        wrong += [f"{place}: {name}" for name, of in types.items() if len(of) > 1]
    assert wrong == []
