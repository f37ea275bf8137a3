"""Each of the 25 mistakes that docs/threat-model.md lists has its tests in a file that its
number finds.

That the document links every one of these files, in its row, is held by test_threat_model.py.
"""

import ast
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROWS = range(1, 26)


def files_of(row: int) -> list[Path]:
    """The files whose name begins with the row's number."""
    return sorted(HERE.glob(f"test_row_{row:02d}_*.py"))


def functions_of_tests(tree: ast.Module) -> list[str]:
    """The tests of a file, those of its classes too."""
    return [
        each.name
        for each in ast.walk(tree)
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        and each.name.startswith("test_")
    ]


@pytest.mark.parametrize("row", ROWS)
def test_a_row_has_its_tests(row: int) -> None:
    files = files_of(row)
    assert files
    for path in files:
        tree = ast.parse(path.read_text("utf-8"))
        assert functions_of_tests(tree), path.name
        said = ast.get_docstring(tree) or ""
        assert re.match(rf"Row {row}\b", said), f"{path.name} says which row it is of"


def test_there_are_no_other_rows() -> None:
    numbers = {int(path.name[9:11]) for path in HERE.glob("test_row_*.py")}
    assert numbers == set(ROWS)
