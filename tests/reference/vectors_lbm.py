"""Vectors for section 3 (LBM values) and section 7 (padding).

Accepted values are written as a tagged tree, refused ones as bytes
that each break one rule only.
"""

import struct
from typing import Any

from tests.reference.cbor import (
    DEFAULT_DEPTH,
    DEFAULT_ITEMS,
    LbmError,
    decode_payload,
    encode_payload,
    encode_value,
)
from tests.reference.padding import padded, rule_size

Vector = dict[str, Any]


def tree(value: Any) -> Any:
    """Return a value in a form that survives JSON: every leaf names its type."""
    match value:
        case None:
            return {"null": True}
        case bool():
            return {"bool": value}
        case int():
            return {"int": str(value)}
        case float():
            return {"float": struct.pack(">d", value).hex()}
        case bytes():
            return {"bytes": value.hex()}
        case str():
            return {"text": value}
        case list():
            return {"array": [tree(item) for item in value]}
        case _:
            return {"map": [[tree(key), tree(item)] for key, item in value.items()]}


ACCEPTED: dict[str, Any] = {
    "the empty payload map": {},
    "cell numbers up to the greatest": {1: 0, 23: 1, 24: 2, 255: 3, 256: 4, 65536: 5, 2**64 - 1: 6},
    "unsigned integers at each width": {
        256: [0, 23, 24, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**64 - 1]
    },
    "negative integers at each width": {
        256: [-1, -24, -25, -256, -257, -65536, -65537, -(2**32), -(2**32) - 1, -(2**64)]
    },
    "byte strings at each width": {
        256: [b"", b"\x00", bytes(23), bytes(24), bytes(255), bytes(256)]
    },
    "text": {256: ["", "a", "é", "日本語", "\U0001f600", "\x00"]},
    "text that is not normalised stays as it is": {256: ["e\u0301", "\u00e9"]},
    "booleans and null": {256: [False, True, None]},
    "floats are 64 bits, also where less would do": {256: [1.0, 1.5, 0.1, 1e300, 5e-324]},
    "minus zero and the infinities are kept": {256: [-0.0, float("inf"), float("-inf")]},
    "the one NaN": {256: float("nan")},
    "a float is not turned into an integer": {256: [1.0, 1]},
    "maps of unsigned keys inside a value": {256: {0: "key 0 is data here", 1: 2, 300: None}},
    "maps of text keys, the shorter text first": {256: {"z": 1, "aa": 2, "ab": 3}},
    "empty array and empty maps": {256: [[], {}]},
    "depth 16: the payload and 15 arrays": {256: [[[[[[[[[[[[[[[]]]]]]]]]]]]]]]},
}

# name: (bytes, rule, why, limits)
REFUSED: dict[str, tuple[str, str, str]] = {
    "nothing at all": ("", "not-a-map", "a payload is a map"),
    "an array": ("80", "not-a-map", "a payload is a map"),
    "an integer": ("00", "not-a-map", "a payload is a map (00 as an event's payload is none)"),
    "trailing byte": ("a000", "trailing", "bytes after the map"),
    "trailing second map": ("a0a0", "trailing", "bytes after the map"),
    "text keys in the payload's map": ("a1616101", "payload-keys", "its keys are unsigned"),
    "negative key": ("a12001", "map-keys", "keys are unsigned or text"),
    "byte string key": ("a1416101", "map-keys", "keys are unsigned or text"),
    "boolean key": ("a1f501", "map-keys", "keys are unsigned or text"),
    "unsigned and text keys in one map": ("a1190100a20101616102", "map-keys", "only one kind"),
    "duplicate key": ("a201010102", "duplicate", "a key twice"),
    "duplicate text key": ("a1190100a2616101616102", "duplicate", "a key twice"),
    "keys out of order": ("a202010102", "unordered", "keys ascend by their encoded bytes"),
    "text keys in alphabetical order only": (
        "a1190100a262616101617a02",
        "unordered",
        "'z' is shorter and comes before 'aa'",
    ),
    "integer in two bytes that fits one": ("a119010018 17", "not-shortest", "23 is 17"),
    "integer in three bytes": ("a11901001900ff", "not-shortest", "255 is 18ff"),
    "integer in five bytes": ("a11901001a0000ffff", "not-shortest", "65535 is 19ffff"),
    "integer in nine bytes": ("a11901001b00000000ffffffff", "not-shortest", "fits five bytes"),
    "negative integer not shortest": ("a11901003817", "not-shortest", "-24 is 37"),
    "string length not shortest": ("a1190100580161", "not-shortest", "length 1 is 41"),
    "text length not shortest": ("a1190100780161", "not-shortest", "length 1 is 61"),
    "array length not shortest": ("a1190100980101", "not-shortest", "length 1 is 81"),
    "map length not shortest": ("b8010101", "not-shortest", "length 1 is a1"),
    "key not shortest": ("a1180101", "not-shortest", "key 1 is 01"),
    "indefinite map": ("bf0101ff", "indefinite", "no indefinite lengths"),
    "indefinite array": ("a11901009f01ff", "indefinite", "no indefinite lengths"),
    "indefinite bytes": ("a11901005f4161ff", "indefinite", "no indefinite lengths"),
    "indefinite text": ("a11901007f6161ff", "indefinite", "no indefinite lengths"),
    "a lone break": ("a1190100ff", "indefinite", "a break belongs to nothing"),
    "reserved additional information": ("a11901001c", "reserved", "28 to 30 are reserved"),
    "a tag": ("a1190100c000", "tag", "no tags"),
    "a bignum": ("a1190100c249010000000000000000", "tag", "no bignums"),
    "undefined": ("a1190100f7", "simple", "no other simple values"),
    "simple value 16": ("a1190100f0", "simple", "no other simple values"),
    "simple value in two bytes": ("a1190100f8ff", "simple", "no other simple values"),
    "false in two bytes": ("a1190100f814", "simple", "no other simple values"),
    "half float": ("a1190100f93c00", "float-width", "floats are 64 bits"),
    "single float": ("a1190100fa3f800000", "float-width", "floats are 64 bits"),
    "NaN with a payload": ("a1190100fb7ff8000000000001", "nan", "one NaN only"),
    "negative NaN": ("a1190100fbfff8000000000000", "nan", "one NaN only"),
    "signalling NaN": ("a1190100fb7ff0000000000001", "nan", "one NaN only"),
    "overlong UTF-8": ("a119010062c080", "utf-8", "valid UTF-8"),
    "a surrogate in UTF-8": ("a119010063eda080", "utf-8", "valid UTF-8"),
    "cut UTF-8": ("a119010061c3", "utf-8", "valid UTF-8"),
    "beyond U+10FFFF": ("a119010064f4908080", "utf-8", "valid UTF-8"),
    "invalid UTF-8 in a key": ("a1190100a161ff01", "utf-8", "valid UTF-8"),
    "cut in the head": ("a1", "truncated", "ends too early"),
    "cut in an argument": ("a1190100 1901", "truncated", "ends too early"),
    "cut in a string": ("a119010042 61", "truncated", "ends too early"),
    "a map without its last value": ("a101", "truncated", "ends too early"),
    "a string of 4 GiB declared": ("a11901005affffffff", "truncated", "refused without memory"),
    "a string of 2^64-1 declared": ("a11901005bffffffffffffffff", "truncated", "likewise"),
    "an array of 2^32 declared": ("a11901009b0000000100000000", "truncated", "likewise"),
    "a map of 2^32 declared": ("bb0000000100000000", "truncated", "likewise"),
    "noise that is text": ("a1006161", "noise-type", "key 0 is a byte string"),
    "noise that is null": ("a100f6", "noise-type", "key 0 is a byte string"),
    "depth 17": ("a1190100" + "81" * 15 + "80", "depth", "the payload's map counts as 1"),
    "100,000 open arrays": ("a1190100" + "81" * 100_000, "depth", "no recursion without end"),
}
LIMITED: dict[str, tuple[str, dict[str, int], str | None]] = {
    "exactly max_bytes": ("a1010a", {"bytes": 3}, None),
    "one byte over max_bytes": ("a10118ff", {"bytes": 3}, "bytes"),
    "far below 256 items": ("a119010098c8" + "00" * 200, {"items": 256}, None),
    "300 items where 256 are allowed": ("a119010099012c" + "00" * 300, {"items": 256}, "items"),
    "exactly depth 3": ("a11901008180", {"depth": 3}, None),
    "depth 4 where 3 is allowed": ("a1190100818180", {"depth": 3}, "depth"),
}


def lbm_vectors() -> dict[str, Any]:
    """lbm.json."""
    vectors: list[Vector] = []
    for name, value in ACCEPTED.items():
        vectors.append(
            {"name": name, "input": encode_payload(value).hex(), "expected": tree(value)}
        )
    noisy = {0: bytes(7), 16: 0, 256: {0: b"data"}}
    vectors.append(
        {
            "name": "noise of the payload's own map is dropped, elsewhere key 0 is data",
            "input": encode_payload(noisy).hex(),
            "expected": tree({16: 0, 256: {0: b"data"}}),
            "noise": True,
        }
    )
    for name, (text, rule, why) in REFUSED.items():
        vectors.append({"name": name, **_refused(text, {}, rule), "why": why})
    for name, (text, limits, limited) in LIMITED.items():
        entry = _refused(text, limits, limited) if limited else {"input": text, "limits": limits}
        if limited is None:
            entry["expected"] = tree(decode_payload(bytes.fromhex(text)))
        vectors.append({"name": name, **entry})
    vectors.extend(_container_vectors())
    for name, bad, rule in (
        ("encode 2^64", 2**64, "integer-range"),
        ("encode -2^64-1", -(2**64) - 1, "integer-range"),
    ):
        vectors.append(
            {
                "name": name,
                "encode": tree({256: bad}),
                "fails": "malformed",
                "rule": rule,
                "why": "integers are -2^64..2^64-1",
            }
        )
        _must_raise(rule, lambda bad=bad: encode_value(bad))
    return {
        "about": "LBM payloads: bytes in, cells out (as a tagged tree), or refused.",
        "section": "3",
        "vectors": vectors,
    }


def _container_vectors() -> list[Vector]:
    """As many containers that hold something as a payload may have, and one more. The payload's
    own map is not among them, the array in cell 22 is."""

    def parts(count: int) -> list[list[Any]]:
        return [["a11699" + count.to_bytes(2).hex(), 1], ["8100", count]]

    def fits(count: int) -> bool:
        data = b"".join(bytes.fromhex(text) * times for text, times in parts(count))
        try:
            decode_payload(data)
        except LbmError:
            return False
        return True

    least, most = 1, 65_000
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (middle, most) if fits(middle) else (least, middle)
    accepted = {"input_parts": parts(least), "expected": {"elements_of_22": least}}
    refused = {"fails": "malformed", "rule": "containers", "input_parts": parts(most)}
    return [
        {"name": "as many containers as may be: the payload's own map is not counted", **accepted},
        {"name": "one container more than may be", **refused, "why": "section 3"},
    ]


def _refused(text: str, limits: dict[str, int], rule: str | None) -> Vector:
    data = bytes.fromhex(text)
    _must_raise(rule, lambda: _limited(data, limits))
    vector: Vector = {"fails": "malformed", "rule": rule}
    if len(data) > 2_000:
        vector["input_parts"] = [["a1190100", 1], ["81", 100_000]]
    else:
        vector["input"] = data.hex()
    return {**vector, **({"limits": limits} if limits else {})}


def _limited(data: bytes, limits: dict[str, int]) -> None:
    items, depth = limits.get("items", DEFAULT_ITEMS), limits.get("depth", DEFAULT_DEPTH)
    decode_payload(data, max_bytes=limits.get("bytes"), max_items=items, max_depth=depth)


def _must_raise(rule: str | None, action: Any) -> None:
    try:
        action()
    except LbmError as error:
        if error.rule != rule:
            raise AssertionError(f"{error.rule} instead of {rule}") from error
        return
    raise AssertionError(f"accepted what breaks {rule}")


def padding_vectors() -> dict[str, Any]:
    """padding.json."""
    vectors: list[Vector] = []
    limit = 1 << 20
    cases: list[tuple[str, dict[int, Any]]] = [
        ("empty map", {}),
        ("a Result", {16: 0, 22: "hello"}),
    ]
    cases.extend(
        (f"{size} bytes", _of_size(size))
        for size in (20, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 60, 63, 64, 65, 100, 250, 1000)
    )
    cases += [(f"{size} bytes", _of_size(size)) for size in (4_093, 4_095, 4_096, 65_000, 70_000)]
    cases.append(("23 cells: the map's header grows", dict.fromkeys(range(1, 24), 0)))
    cases.append(("255 cells: the map's header grows again", dict.fromkeys(range(1, 256), 0)))
    for rule in ("padme", "bucket:1", "bucket:26", "bucket:64", "bucket:256"):
        for name, cells in cases:
            plain = encode_payload(cells)
            result = padded(plain, rule, limit)
            vectors.append(_padding_vector(f"{rule}, {name}", plain, rule, limit, result))
    near = encode_payload(_of_size(1_000))
    for limit in (1_000, 1_023, 1_024, 1_025):
        result = padded(near, "bucket:1024", limit)
        vectors.append(
            _padding_vector(
                f"bucket:1024 near a limit of {limit}", near, "bucket:1024", limit, result
            )
        )
    vectors.append(
        {
            "name": "a payload that is not LBM is not padded",
            "rule": "padme",
            "limit": limit,
            "input": "ff00ff",
            "lbm": False,
            "size": 3,
            "expected": "ff00ff",
        }
    )
    vectors.extend(
        {
            "name": f"no such rule: {rule}",
            "rule": rule,
            "fails": "configuration",
            "why": "padding is none, padme or bucket:N with N from 1",
        }
        for rule in ("bucket:0", "bucket:-1", "bucket:x", "bucket", "padded")
    )
    return {
        "about": "Padding by the noise cell: payload in, payload (or its size) out. Noise bytes "
        "are free; `expected` has zeros. Long payloads have only `size` and `noise`.",
        "section": "7",
        "vectors": vectors,
    }


def _of_size(size: int) -> dict[int, Any]:
    """Cells that encode to exactly `size` bytes: {22: bytes, 16: number that fills up}."""
    for filler in (0, 24, 256):
        for length in range(max(0, size - 16), size):  # all else takes 16 bytes at most
            cells = {16: filler, 22: bytes(length)}
            if len(encode_payload(cells)) == size:
                return cells
    raise AssertionError(size)


def _padding_vector(name: str, plain: bytes, rule: str, limit: int, result: bytes) -> Vector:
    noise = decode_payload(result, keep_noise=True).get(0)
    vector: Vector = {
        "name": name,
        "rule": rule,
        "limit": limit,
        "plain_size": len(plain),
        "rule_size": rule_size(rule, max(32, len(plain))),
        "noise": None if noise is None else len(noise),
        "size": len(result),
    }
    if len(result) <= 600:
        vector |= {"input": plain.hex(), "expected": result.hex()}
    return vector
