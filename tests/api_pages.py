"""The public names on the API pages, from their mkdocstrings directives."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

PACKAGE = "parley"
PAGES = sorted((Path(__file__).parents[1] / "docs" / "reference" / "api").glob("[a-z]*.md"))
_DIRECTIVE = re.compile(
    r'^::: (\S+)(?:\n    options:\n      filters: .*"!\^\((.*)\)\$")?', re.MULTILINE
)

# The members that a page leaves out, by the dotted name of their class or function.
HIDDEN = {
    name: frozenset(filter(None, hidden.split("|")))
    for page in PAGES
    for name, hidden in _DIRECTIVE.findall(page.read_text())
}


def find(dotted: str) -> Any:
    """Return the object with a dotted name."""
    module, _, name = dotted.rpartition(".")
    return getattr(import_module(module), name)
