"""Tests of lbm against the vectors of payloads, padding and base cells."""

import pytest

from parley._lbm.codec import decode, encode
from parley._lbm.errors import LbmDecodeError, LbmEncodeError, LbmError
from parley._lbm.keys import KEYS
from parley._lbm.limits import DEFAULT_LIMITS, LbmLimits
from parley._lbm.padding import pad, parse_padding
from tests.vectors.load import Vector, from_tree, read, to_tree, unhex, vectors

CELL_NUMBERS = {
    vector["name"].removeprefix("cells: "): vector["value"]
    for vector in read("tables")["vectors"]
    if vector["table"] == "cells"
}


def limits(vector: Vector) -> LbmLimits:
    stated = vector.get("limits", {})
    return LbmLimits(
        max_bytes=stated.get("bytes", DEFAULT_LIMITS.max_bytes),
        max_items=stated.get("items", DEFAULT_LIMITS.max_items),
        max_depth=stated.get("depth", DEFAULT_LIMITS.max_depth),
    )


def input_of(vector: Vector) -> bytes:
    parts = vector.get("input_parts") or [[vector["input"], 1]]
    return b"".join(unhex(part) * count for part, count in parts)


@vectors("lbm", fails=False)
def test_an_accepted_payload(vector: Vector) -> None:
    cells = decode(input_of(vector), limits(vector))
    if "elements_of_22" in vector["expected"]:
        assert cells == {22: [[0]] * vector["expected"]["elements_of_22"]}
        return
    assert to_tree(cells) == vector["expected"]
    if not vector.get("noise"):
        assert encode(from_tree(vector["expected"])).hex() == vector["input"]


@vectors("lbm", lambda vector: "encode" not in vector, fails=True)
def test_a_refused_payload(vector: Vector) -> None:
    with pytest.raises(LbmDecodeError):
        decode(input_of(vector), limits(vector))


@vectors("lbm", lambda vector: "encode" in vector, fails=True)
def test_what_has_no_encoding(vector: Vector) -> None:
    with pytest.raises(LbmEncodeError):
        encode(from_tree(vector["encode"]))


@vectors("padding", lambda vector: "input" in vector, fails=False)
def test_a_padded_payload(vector: Vector) -> None:
    plain = unhex(vector["input"])
    padded = pad(plain, parse_padding(vector["rule"]), vector["limit"])
    assert padded.hex() == vector["expected"]
    assert len(padded) == vector["size"]


@vectors("padding", lambda vector: "plain_size" in vector, fails=False)
def test_the_size_of_a_padded_payload(vector: Vector) -> None:
    rule, size = parse_padding(vector["rule"]), vector["plain_size"]
    assert rule.round_up(max(size, 32)) == vector["rule_size"]
    plain = next(
        (
            payload
            for length in range(max(0, size - 16), size)
            if len(payload := encode({256: bytes(length)})) == size
        ),
        unhex(vector.get("input", "")),
    )
    assert len(pad(plain, rule, vector["limit"])) == vector["size"]


@vectors("padding", fails=True)
def test_no_rule_of_padding(vector: Vector) -> None:
    with pytest.raises(LbmError):
        parse_padding(vector["rule"])


@vectors("payloads", fails=False)
def test_the_payload_of_an_event(vector: Vector) -> None:
    cells = {CELL_NUMBERS[name]: from_tree(tree) for name, tree in vector["cells"].items()}
    payload = unhex(vector["expected"])
    if not payload:
        assert not cells
    elif vector.get("read_only"):
        read_cells = decode(payload)
        assert to_tree({key: read_cells[key] for key in cells}) == to_tree(cells)
    else:
        assert encode(cells) == payload
        assert to_tree(decode(payload)) == to_tree(dict(sorted(cells.items())))


@vectors("tables", lambda vector: vector["table"] == "cells", fails=False)
def test_the_number_of_a_cell(vector: Vector) -> None:
    name = vector["name"].removeprefix("cells: ").replace("_", " ")
    assert name.split()[0] in KEYS[vector["value"]].name.replace("_", " ")
