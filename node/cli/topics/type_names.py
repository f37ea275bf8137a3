"""JSON Schema in a few words, for people: `Order`, `[integer]`, `text or null`.

The schema is another node's: whatever is in it, the words have an end.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

# Levels that are looked into, and characters of the words for one type.
_DEEPEST: Final = 4
LONGEST: Final = 120
_WORDS: Final = {
    "string": "text",
    "integer": "integer",
    "number": "number",
    "boolean": "true or false",
    "null": "null",
    "object": "map",
    "array": "list",
}


def type_name(schema: Any) -> str:
    """The words for what a schema is of, at most `LONGEST` characters."""
    return _short(_words(schema, _DEEPEST))


def fields_of(schema: Any) -> Iterator[tuple[str, str, str]]:
    """Each model that a schema defines: its name, its fields in a few words, and its own text."""
    definitions = schema.get("$defs") if isinstance(schema, Mapping) else None
    for name, model in (definitions if isinstance(definitions, Mapping) else {}).items():
        if isinstance(model, Mapping):
            text = model.get("description")
            yield str(name), _short(_fields(model)), text if isinstance(text, str) else ""


def _fields(model: Mapping[str, Any]) -> str:
    properties, required = model.get("properties"), model.get("required")
    if not isinstance(properties, Mapping):
        return _words(model, _DEEPEST)
    needed = required if isinstance(required, list) else []
    return ", ".join(
        f"{name}{'' if name in needed else '?'}: {_words(field, _DEEPEST)}"
        for name, field in properties.items()
    )


def _words(schema: Any, levels: int) -> str:
    if not isinstance(schema, Mapping) or not levels:
        return "anything" if levels else ".."
    below = levels - 1
    match schema:
        case {"$ref": str(place)}:
            return place.rpartition("/")[2]
        case {"enum": list(values)}:
            return " or ".join(map(repr, values))
        case {"const": value}:
            return repr(value)
        case {"anyOf": list(choices)} | {"oneOf": list(choices)}:
            return " or ".join(dict.fromkeys(_words(one, below) for one in choices))
        case {"type": "string", "format": str(kind)}:
            return "bytes" if kind == "binary" else kind
        case {"type": "array", "items": Mapping() as items}:
            return f"[{_words(items, below)}]"
        case {"type": "array", "prefixItems": list(items)}:
            return f"[{', '.join(_words(one, below) for one in items)}]"
        case {"type": "object", "additionalProperties": Mapping() as values}:
            return f"{{{_words(values, below)}}}"
        case {"title": str(title), "properties": Mapping()}:
            return title
        case {"type": str(kind)}:
            return _WORDS.get(kind, kind)
    return "anything"


def _short(words: str) -> str:
    return words if len(words) <= LONGEST else words[: LONGEST - 2] + ".."
