"""What mypyc compiles: one source serves both cores, and uses only what both of them do."""

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.compiled import CORE, is_compiled

ROOT = Path(__file__).parent.parent
HOOK = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"][
    "targets"
]["wheel"]["hooks"]["custom"]


def functions() -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions of each module that is compiled."""
    for package in HOOK["packages"]:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if name not in HOOK["pure"]:
                for found in ast.walk(ast.parse(path.read_text("utf-8"))):
                    if isinstance(found, ast.FunctionDef):
                        yield f"{name}: {found.name}", found


def test_all_of_the_core_is_of_one_kind() -> None:
    assert len({is_compiled(module) for module in CORE}) == 1


def test_what_stays_pure_is_there() -> None:
    if not is_compiled(CORE[0]):  # a wheel is tested in a folder that has no source
        assert [name for name in HOOK["pure"] if not (ROOT / name).is_file()] == []


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
