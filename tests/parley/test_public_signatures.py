"""Every type of this package in a public signature is exported by a public module."""

import ast
import builtins
import dataclasses
import inspect
import sys
import textwrap
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from pkgutil import walk_packages
from typing import Any, TypeVar, get_overloads

import parley._node.cli
from tests.api_pages import HIDDEN, PACKAGE, find

EXPORTED = {dotted.rpartition(".")[2] for dotted in HIDDEN}


def functions(dotted: str) -> Iterator[tuple[str, Any]]:
    """Return the public functions of a public name."""
    found = find(dotted)
    if inspect.isfunction(found):
        yield dotted, inspect.unwrap(found)
    if not inspect.isclass(found):
        return
    for owner in found.__mro__:
        if owner.__module__.partition(".")[0] != PACKAGE:
            continue
        for name, value in vars(owner).items():
            if name in HIDDEN[dotted] or (name.startswith("_") and name != "__init__"):
                continue
            if isinstance(value, property):
                value = value.fget
            elif isinstance(value, cached_property):
                value = value.func
            elif isinstance(value, classmethod | staticmethod):
                value = value.__func__
            if name == "__init__" and dataclasses.is_dataclass(owner):
                continue  # it has no source
            if inspect.isfunction(value) and value.__module__.partition(".")[0] == PACKAGE:
                yield f"{dotted}.{name}", inspect.unwrap(value)


def named_types(function: Any) -> Iterator[str]:
    """Return the names in the annotations of a function and its overloads."""
    for one in (function, *get_overloads(function)):
        tree = ast.parse(textwrap.dedent(inspect.getsource(one))).body[0]
        assert isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef)
        given = tree.args
        arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
        annotations = [tree.returns, *(one.annotation for one in arguments if one)]
        for annotation in filter(None, annotations):
            yield from names_in(annotation)


def names_in(node: ast.expr) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            try:
                yield from names_in(ast.parse(part.value, mode="eval").body)
            except SyntaxError:
                continue  # text of a Literal
        elif isinstance(part, ast.Name):
            yield part.id


def is_ours(name: str, module: str) -> bool:
    """Return whether a name of a module is one of this package's types, but not a type variable."""
    source = sys.modules[module]
    found = getattr(source, name, None)
    if found is None:
        return not hasattr(builtins, name) and is_imported_from_ours(name, module)
    if isinstance(found, TypeVar) or name in ("Any", "Self"):
        return False
    home = getattr(found, "__module__", "")
    return home.partition(".")[0] == PACKAGE or is_imported_from_ours(name, module)


def is_imported_from_ours(name: str, module: str) -> bool:
    for node in ast.walk(ast.parse(inspect.getsource(import_module(module)))):
        if isinstance(node, ast.ImportFrom) and any(
            name == (one.asname or one.name) for one in node.names
        ):
            return (node.module or "").partition(".")[0] == PACKAGE
    return False


def test_public_signatures_name_public_types() -> None:
    missing = {
        (where, name)
        for dotted in HIDDEN
        for where, function in functions(dotted)
        for name in named_types(function)
        if name not in EXPORTED and is_ours(name, function.__module__)
    }
    assert missing == set()


# A function with more parameters uses an options class.
MOST_PARAMETERS = 8


def test_public_functions_have_few_parameters() -> None:
    given = {
        where: [name for name in inspect.signature(one).parameters if name not in ("self", "cls")]
        for dotted in HIDDEN
        for where, one in functions(dotted)
    }
    assert {where for where, names in given.items() if len(names) > MOST_PARAMETERS} == set()


def test_functions_of_the_command_line_have_few_parameters() -> None:
    modules = [
        import_module(found.name)
        for found in walk_packages(parley._node.cli.__path__, "parley._node.cli.")
        if not found.name.endswith("__main__")
    ]
    given = {
        f"{module.__name__}.{name}": len(inspect.signature(inspect.unwrap(one)).parameters)
        for module in modules
        for name, one in vars(module).items()
        if inspect.isfunction(one) and one.__module__ == module.__name__
    }
    assert {name for name, count in given.items() if count > MOST_PARAMETERS} == set()
