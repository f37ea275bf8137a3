"""The checked-in vectors, as cases of sweeps.

A vector is found by its file and its shape, never by its number, and is named
after its `name`. The format is in README.md; what a vector means, each test knows.
"""

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from struct import pack, unpack
from typing import Any

from parley._node.protocol.codes import CloseCode
from tests.sweep import sweep

Vector = Mapping[str, Any]


@cache
def read(name: str) -> Mapping[str, Any]:
    """The content of `name`.json."""
    content: Mapping[str, Any] = json.loads(Path(__file__).with_name(f"{name}.json").read_text())
    return content


def select(
    name: str, wanted: Callable[[Vector], bool] = lambda _: True, *, fails: bool | None = None
) -> list[Vector]:
    """All vectors of a file that are wanted.

    `fails` picks those that must be refused, or those that must not. None at all is an
    error, so that no test can be emptied by a change of the files.
    """
    chosen = [
        vector
        for vector in read(name)["vectors"]
        if (fails is None or ("fails" in vector) == fails) and wanted(vector)
    ]
    assert chosen, f"no vector of {name}.json is tested"
    return chosen


def vectors(
    name: str, wanted: Callable[[Vector], bool] = lambda _: True, *, fails: bool | None = None
) -> Callable[[Callable[..., Any]], Any]:
    """Sweep over the argument `vector`, with those that `select` returns."""
    return sweep("vector", select(name, wanted, fails=fails), ids=lambda vector: vector["name"])


def of_kind(kind: str) -> Callable[[Vector], bool]:
    """Vectors of one `kind`."""
    return lambda vector: bool(vector["kind"] == kind)


def unhex(text: str) -> bytes:
    """The bytes of a field."""
    return bytes.fromhex(text)


def codes(vector: Vector) -> set[int]:
    """The close codes that a vector allows; empty where the document leaves it open."""
    if "ambiguous" in vector:
        return set()
    names = {vector["fails"], vector.get("also", vector["fails"])}
    return {CloseCode[name.upper().replace("-", "_")] for name in names}


def from_tree(tree: Any) -> Any:
    """The value of a tagged tree."""
    ((tag, content),) = tree.items()
    match tag:
        case "int":
            return int(content)
        case "float":
            return unpack(">d", unhex(content))[0]
        case "bytes":
            return unhex(content)
        case "text" | "bool":
            return content
        case "null":
            return None
        case "array":
            return [from_tree(item) for item in content]
        case "map":
            return {from_tree(key): from_tree(value) for key, value in content}
        case _:
            raise ValueError(f"an unknown tag: {tag}")


def to_tree(value: Any) -> Any:
    """The tagged tree of a value, which tells 1 from 1.0 and True, and has one NaN."""
    match value:
        case None:
            return {"null": True}
        case bool():
            return {"bool": value}
        case int():
            return {"int": str(value)}
        case float():
            return {"float": pack(">d", value).hex()}
        case bytes():
            return {"bytes": value.hex()}
        case str():
            return {"text": value}
        case list():
            return {"array": [to_tree(item) for item in value]}
        case dict():
            return {"map": [[to_tree(key), to_tree(item)] for key, item in value.items()]}
        case _:
            raise ValueError(f"no value of LBM: {value!r}")
