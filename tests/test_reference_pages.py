"""The reference pages: made from the docstrings, of all that is public."""

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import parley.errors
from docs.build_reference import DIRECTORY, build, find, main
from docs.docstring_markdown import paragraphs, summary
from docs.reference_pages import PAGES
from docs.reference_shown import SHOWN, Shown

LISTED = [name for page in PAGES.values() for name in page.names]
NAMES = {name.rpartition(".")[2] for name in LISTED}


@pytest.mark.slow
def test_the_pages_are_what_the_docstrings_say() -> None:
    found = {path.name: path.read_text("utf-8") for path in DIRECTORY.glob("*.md")}
    assert found == build(), "run `python -m docs.build_reference`"
    assert main(["--check"]) == 0


def public() -> dict[str, set[str]]:
    """The public modules, and what each of them has."""
    files = Path(parley.__file__).parent.glob("[a-z]*.py")
    names = [f"parley.{file.stem}" for file in files if file.stem != "shadows"]
    return {name: set(import_module(name).__all__) for name in ["parley", *names]}


def test_all_that_is_public_is_on_a_page_and_nothing_else() -> None:
    names = {f"{module}.{name}" for module, names in public().items() for name in names}
    # The errors that `parley` itself has too are described with the others.
    twice = {name for name in names if name.replace("parley.", "parley.errors.") in names}
    assert names - twice == set(LISTED)


@pytest.mark.parametrize("part", ["node", "node.bus", "node.journal", "pipeline"])
def test_every_error_of_a_part_is_public(part: str) -> None:
    module = import_module(f"{part}.errors")
    own = {
        name
        for name, value in vars(module).items()
        if inspect.isclass(value)
        and issubclass(value, Exception)
        and value.__module__ == module.__name__
        and not name.startswith("_")
    }
    assert own
    assert own - set(parley.errors.__all__) == set()


def test_nothing_is_on_two_pages() -> None:
    assert len(NAMES) == len(LISTED)


def test_what_is_hidden_is_there() -> None:
    classes = {name.rpartition(".")[2]: find(name) for name in LISTED}
    assert SHOWN.keys() <= classes.keys()
    absent = [
        f"{name}.{member}"
        for name, shown in SHOWN.items()
        for member in shown.hidden
        if not hasattr(classes[name], member)
    ]
    assert absent == []


@pytest.mark.parametrize("name", LISTED)
def test_every_public_member_has_a_docstring(name: str) -> None:
    found = find(name)
    if not inspect.isclass(found):
        return
    silent = [
        member
        for member, value in vars(found).items()
        if not member.startswith("_")
        and (inspect.isfunction(value) or isinstance(value, property))
        and not value.__doc__
    ]
    assert silent == []


def test_what_is_given_by_name_only_is_shown_so() -> None:
    pages = "".join(build().values())
    seen = 0
    for name in LISTED:
        found, short = find(name), name.rpartition(".")[2]
        if not (inspect.isclass(found) or inspect.isfunction(found)):
            continue
        entry = pages.partition(f"\n## {short}\n")[2].partition("\n##")[0]
        shown = re.search(rf"^(?:\w+ )*({short}\(.*?\))(?: ->.*?)?\n```", entry, re.S | re.M)
        if shown is None or not SHOWN.get(short, Shown()).made:
            continue  # it is not called
        (tree,) = ast.parse(f"def {shown[1]}: ...").body
        assert isinstance(tree, ast.FunctionDef)
        real = inspect.signature(found).parameters.values()
        by_name = [one.name for one in real if one.kind is inspect.Parameter.KEYWORD_ONLY]
        assert (name, [one.arg for one in tree.args.kwonlyargs]) == (name, by_name)
        seen += bool(by_name)
    assert seen > 10


def test_so_is_what_methods_take() -> None:
    classes = {name.rpartition(".")[2]: find(name) for name in LISTED}
    method = r"^### (\w+)\.(\w+)\n\n```python\n(?:@classmethod\n)?((?:async )?def .*?)\n```"
    seen = 0
    for cls, member, code in re.findall(method, "".join(build().values()), re.S | re.M):
        overloads = [ast.parse(f"{one}: ...").body[0] for one in code.split("\n\n")]
        real = inspect.signature(getattr(classes[cls], member)).parameters.values()
        by_name = [one.name for one in real if one.kind is inspect.Parameter.KEYWORD_ONLY]
        for tree in overloads:
            assert isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef)
            shown = [one.arg for one in tree.args.kwonlyargs]
            assert (cls, member, shown) == (cls, member, by_name)
        seen += bool(by_name)
    assert seen > 40


def test_sections_become_lists() -> None:
    text = """Do it.

    More of it.

    Returns:
        What was done.

    Raises:
        AError, BError: not this time. CError: never, or
            hardly so.
    """
    assert list(paragraphs(text)) == [
        "Do it.\n\nMore of it.",
        "Returns: what was done.",
        "Raises:\n\n- `AError`, `BError`: not this time.\n- `CError`: never, or hardly so.",
    ]
    assert list(
        paragraphs("A.\n\nAttributes:\n    a, b: of one\n        kind.\n    c: another.")
    ) == [
        "A.",
        "- `a`, `b`: of one kind.\n- `c`: another.",
    ]


def test_a_summary_is_a_sentence() -> None:
    assert summary("Say `a`: and more; also b.\n\nNot this.") == "Say `a`: and more; also b."
    assert summary("Made by `a`. It ends.") == "Made by `a`."
    assert summary("Of version 1.2, e.g. of this. More.") == "Of version 1.2, e.g. of this."
    assert summary("A name") == "A name."
    assert (
        summary("One line\nand the next (section 9). More.") == "One line and the next (section 9)."
    )
