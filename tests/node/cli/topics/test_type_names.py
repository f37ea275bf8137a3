"""Words for JSON Schema, whatever it is."""

from typing import Any

from parley._node.cli.topics.type_names import LONGEST, fields_of, type_name
from tests.sweep import sweep

TEXT = {"type": "string"}


@sweep(
    ("schema", "words"),
    [
        (TEXT, "text"),
        ({"type": "string", "format": "binary"}, "bytes"),
        ({"type": "string", "format": "date-time"}, "date-time"),
        ({"$ref": "#/$defs/Order"}, "Order"),
        ({"title": "Order", "type": "object", "properties": {}}, "Order"),
        ({"type": "array", "items": TEXT}, "[text]"),
        ({"type": "array", "prefixItems": [TEXT, {"type": "null"}]}, "[text, null]"),
        ({"type": "object", "additionalProperties": TEXT}, "{text}"),
        ({"anyOf": [TEXT, {"type": "null"}, TEXT]}, "text or null"),
        ({"enum": ["a", 1]}, "'a' or 1"),
        ({"const": 3}, "3"),
        ({"type": "boolean"}, "true or false"),
        ({"type": ["string", "null"]}, "anything"),
        ({}, "anything"),
        ([], "anything"),
        (None, "anything"),
    ],
)
def test_words(schema: Any, words: str) -> None:
    assert type_name(schema) == words


def test_they_have_an_end() -> None:
    schema: Any = TEXT
    for _ in range(200):
        schema = {"type": "array", "items": schema}
    assert type_name(schema) == "[[[[..]]]]"
    long = type_name({"$ref": "x" * 1_000})
    assert (len(long), long[-2:]) == (LONGEST, "..")


def test_fields_of_what_is_no_model() -> None:
    assert list(fields_of({"$defs": {"A": 1, "B": {"enum": [1]}, "C": {"properties": 2}}})) == [
        ("B", "1", ""),
        ("C", "anything", ""),
    ]
    assert list(fields_of({"$defs": []})) == list(fields_of(None)) == []
