"""Values that a command is given: text, JSON, or bytes from standard input.

One rule: what is no value is a usage error with one clear sentence. Whether it can be
sent is the encoder's to say.
"""

import json
import sys

from lbm.codec import Encodable
from node.errors import ConfigError, FileError
from node.protocol.limits import NEGOTIATED


def given_value(text: str | None, as_json: str | None, *, name: str = "DATA") -> Encodable:
    """What `name` says (`-` is for standard input), or in its place `--data-json`.

    Raises:
        ConfigError: both are given, or it is not JSON. FileError: there is no input.
    """
    if as_json is not None:
        if text is not None:
            raise ConfigError(f"give {name} or --data-json, not both")
        try:
            return parse_json(as_json)
        except ValueError as error:
            raise ConfigError(f"--data-json is {error}") from error
    if text != "-":
        return text
    if sys.stdin is None:
        raise FileError("standard input is closed")
    # One byte more than can ever be sent is enough to be refused as too large.
    return sys.stdin.buffer.read(NEGOTIATED["max_payload"].maximum + 1)


def parse_json(text: str | bytes) -> Encodable:
    """A value that is written as JSON.

    Raises:
        ValueError: it is none; the text says why.
    """
    try:
        value: Encodable = json.loads(text)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from error
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return value
