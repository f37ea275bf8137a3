"""Which names an event, a group and a consumer may have, and which idempotency keys: those that
can be a key of Redis, a label on a terminal and a cell of the wire without being escaped.
"""

from functools import lru_cache
from typing import Final

from parley._node.bus.errors import InvalidEventError
from parley._node.protocol.event_types import DEAD as DEAD
from parley._node.protocol.event_types import LONGEST_EVENT as LONGEST_EVENT
from parley._node.protocol.event_types import LONGEST_NAME as LONGEST_NAME
from parley._node.protocol.event_types import is_name, is_word

LONGEST_KEY: Final = LONGEST_NAME
# The name of the stream of all events of an API ends so, where a store has such a stream.
ALL: Final = ".*"
# Names whose parts are remembered: they are needed several times for each event.
REMEMBERED: Final = 1_024


def split_name(name: object) -> tuple[str, str]:
    """The API and the event of `API.EVENT`; an API may have dots itself.

    Raises:
        InvalidEventError: it is not such a name, or longer than 251 characters (256 if its event
            is `dead`).
    """
    if isinstance(name, str) and len(name) <= LONGEST_NAME and (parts := _parts(name)) is not None:
        return parts
    raise InvalidEventError(
        f"{_shown(name)} is not the name of an event: API.EVENT, of letters, digits, _ and -, "
        f"at most {LONGEST_EVENT} characters"
    )


@lru_cache(REMEMBERED)
def _parts(name: str) -> tuple[str, str] | None:
    """The API and the event, if it is a name."""
    if not is_name(name):
        return None
    api, _, event = name.rpartition(".")
    return api, event


def api_of(name: str) -> str:
    """The API of `API.EVENT`, or of `API.*`: all events of an API, where they are one stream.

    Raises:
        InvalidEventError: it is not such a name.
    """
    return split_name(f"{name.removesuffix(ALL)}.all" if name.endswith(ALL) else name)[0]


def dead_name(name: str) -> str:
    """The name of the dead-letter stream of `name`."""
    return f"{name}.{DEAD}"


def check_word(kind: str, word: object) -> None:
    """Raise InvalidEventError unless `word` may name a `kind`: a group or a consumer."""
    if not is_word(word):
        raise InvalidEventError(
            f"{_shown(word)} is not the name of a {kind}: 1 to {LONGEST_NAME} printable ASCII "
            "characters, no spaces"
        )


def check_key(key: object) -> None:
    """Raise InvalidEventError unless `key` may be an idempotency key."""
    if not is_word(key, LONGEST_KEY):
        raise InvalidEventError(
            f"{_shown(key)} is not an idempotency key: 1 to {LONGEST_KEY} printable ASCII "
            "characters, no spaces"
        )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
