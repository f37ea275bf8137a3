"""`NoteKey`: the key of a note, for a topic that keeps the newest note of each key."""

from collections.abc import Callable, Mapping
from typing import Any

from parley._lbm.codec import Encodable, encode_value
from parley._node.errors import APPLICATION_ERRORS, MalformedDataError
from parley._node.transport.callables import require_callable

# The name of the note's field that holds its key, or a function that returns the key.
KeepLastBy = str | Callable[[Any], Encodable]


class NoteKey:
    """The option `keep_last_by` of the topic `name`."""

    def __init__(self, name: str, given: KeepLastBy) -> None:
        if not isinstance(given, str):
            require_callable(given, f"keep_last_by= of topic {name!r}", "note", plain=True)
        self._name = name
        self._given = given

    def read(self, data: object, plain: Any) -> bytes:
        """Return the encoded key of the note `data`, which is `plain` as an LBM value.

        Raises:
            MalformedDataError: it has no key, or the key has no encoding.
        """
        given = self._given
        if isinstance(given, str):
            if not isinstance(plain, Mapping) or given not in plain:
                raise MalformedDataError(
                    "$", f"no field {given!r}, which keep_last_by= of topic {self._name!r} names"
                )
            return encode_value(plain[given])
        try:
            return encode_value(given(data))
        except APPLICATION_ERRORS as error:
            raise MalformedDataError(
                "$", f"keep_last_by= of topic {self._name!r} failed: {error!r}"
            ) from error
