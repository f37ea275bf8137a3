"""Values of LBM to what a type hint says, and back: msgspec does both, pydantic its own models.

LBM has byte strings and maps with integers as keys, so both stay what they are; what it has not
(dates, UUIDs, decimals) travels as text.
"""

import re
from contextlib import suppress
from typing import Any, Final

import msgspec

# What msgspec would turn into base64.
_NATIVE: Final = (bytes, bytearray, memoryview)
# Where msgspec says what does not fit: "Expected `int`, got `str` - at `$.items[2].price`".
_PLACE: Final = re.compile(r"(?s)(.*) - at (`key` in )?`(\$.*)`")
# pydantic goes on after the first misfit, and tells of none alone. What it says of each takes a
# kilobyte and microseconds: of a million in 130 KB, 500 MB and two seconds.
MOST_TOLD: Final = 100

# What a hint is made of, as msgspec sees it.
_Part = msgspec.inspect.Type | msgspec.inspect.Field


class Misfit(Exception):
    """Data that does not fit a hint: `what` is wrong at `place`, `$` for all of it."""

    def __init__(self, place: str, what: str) -> None:
        super().__init__(f"{place}: {what}")
        self.place = place
        self.what = what


def check_hint(hint: Any) -> None:
    """Raise TypeError if msgspec knows nothing of what `hint` is or has in it."""
    found: list[_Part] = [msgspec.inspect.type_info(hint)]
    seen = {id(found[0])}
    for part in found:  # which grows meanwhile, by what is new in each
        if isinstance(part, msgspec.inspect.CustomType):
            _require_model(part.cls)
        for name in part.__struct_fields__:
            inside = getattr(part, name)
            for one in inside if isinstance(inside, tuple) else (inside,):
                if isinstance(one, _Part) and id(one) not in seen:
                    seen.add(id(one))
                    found.append(one)
    # What can be no union is found out when it is converted to.
    with suppress(msgspec.ValidationError):
        msgspec.convert(None, hint, builtin_types=_NATIVE, dec_hook=_read_model)


def convert(data: object, hint: Any) -> Any:
    """`data`, plain values of LBM, as `hint` says. No text becomes a number.

    Raises:
        Misfit: it does not fit.
    """
    try:
        return msgspec.convert(data, hint, builtin_types=_NATIVE, dec_hook=_read_model)
    except msgspec.ValidationError as error:
        raise _misfit(error) from error
    except TypeError as error:  # a list within a set
        raise Misfit("$", str(error)) from error


def plain_values(data: object) -> Any:
    """`data` with each model in it as a map, what LBM has nothing for as text.

    Raises:
        TypeError: msgspec knows nothing of what is in it.
    """
    return msgspec.to_builtins(data, builtin_types=_NATIVE, enc_hook=_write_model)


def _require_model(hint: Any) -> None:
    if hint is not object and not hasattr(hint, "model_validate"):
        name = hint.__name__ if isinstance(hint, type) else hint
        raise TypeError(f"{name} is not a type of data")


def _read_model(hint: Any, data: object) -> Any:
    return data if hint is object else hint.model_validate(data)


def _write_model(value: object) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"{type(value).__name__} has no encoding")
    return dump(by_alias=True)


def _misfit(error: msgspec.ValidationError) -> Misfit:
    found = _PLACE.fullmatch(str(error))
    what, in_key, place = found.groups() if found else (str(error), None, "$")
    # pydantic's own error tells its place apart from what is wrong there.
    cause: Any = error.__cause__
    if not hasattr(cause, "error_count"):
        pass
    elif cause.error_count() > MOST_TOLD:
        what = f"{cause.error_count():,} values do not fit"
    else:
        first, *others = cause.errors(include_url=False, include_context=False, include_input=False)
        what = first["msg"] + (f" (and {len(others)} more)" if others else "")
        place += "".join(
            f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]
        )
    what = what.replace("`", "")
    return Misfit(place, what + " (a key)" if in_key else what)


def json_schema(hint: Any) -> dict[str, Any]:
    """What `convert` takes for `hint`, as JSON Schema (draft 2020-12), with what it refers to in
    its `$defs`. Byte strings, which JSON has not, are text of the format `binary` there.

    Raises:
        TypeError: there is no schema of it.
    """
    models: dict[str, Any] = {}

    def of_model(kind: Any) -> dict[str, Any]:
        if kind is object:
            return {}
        schema: dict[str, Any] = kind.model_json_schema(ref_template="#/$defs/{model}")
        models.update(schema.pop("$defs", {}))
        return schema

    try:
        schema = msgspec.json.schema(hint, schema_hook=of_model)
    except Exception as error:  # a model's own code may raise anything
        raise TypeError(f"no JSON Schema: {error}") from error
    if models:
        schema["$defs"] = {**models, **schema.get("$defs", {})}
    _tell_bytes(schema)
    return schema


def _tell_bytes(part: Any) -> None:
    """Byte strings travel as they are, and not in base64."""
    if isinstance(part, dict):
        if part.get("contentEncoding") == "base64":
            del part["contentEncoding"]
            part["format"] = "binary"
        part = list(part.values())
    if isinstance(part, list):
        for one in part:
            _tell_bytes(one)
