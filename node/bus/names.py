"""What may be the name of an event, a group, a consumer, and an idempotency key.

One rule: what passes here can be a key of Redis, a label on a terminal and a cell of the wire
without being escaped. Knows nothing of what is named.
"""

import re
from functools import lru_cache
from typing import Final

from node.bus.errors import InvalidEventError

LONGEST_NAME: Final = 256
LONGEST_KEY: Final = 256
# What is added to the name of a stream for the events of it that could not be processed; others
# leave room for it.
DEAD: Final = "dead"
# The name of the stream of all events of an API ends so, where there is such a one.
ALL: Final = ".*"
LONGEST_EVENT: Final = LONGEST_NAME - len(f".{DEAD}")
# Names whose parts are remembered: they are asked for several times for each event.
REMEMBERED: Final = 1_024

_EVENT: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_][A-Za-z0-9_-]*)+")
_WORD: Final = re.compile(r"[!-~]+")


def split_name(name: object) -> tuple[str, str]:
    """The API and the event of `API.EVENT`; an API may have dots itself.

    Raises:
        InvalidEventError: it is no such name, or longer than 251 characters (256, where its event
            is `dead`).
    """
    if isinstance(name, str) and len(name) <= LONGEST_NAME and (parts := _parts(name)) is not None:
        return parts
    raise InvalidEventError(
        f"{_shown(name)} is no name of an event: API.EVENT, of letters, digits, _ and -, "
        f"at most {LONGEST_EVENT} characters"
    )


@lru_cache(REMEMBERED)
def _parts(name: str) -> tuple[str, str] | None:
    """The API and the event, if it is a name."""
    if not _EVENT.fullmatch(name):
        return None
    api, _, event = name.rpartition(".")
    return (api, event) if len(name) <= LONGEST_EVENT or event == DEAD else None


def api_of(name: str) -> str:
    """The API of `API.EVENT`, or of `API.*`: all events of an API, where they are one stream.

    Raises:
        InvalidEventError: it is no such name.
    """
    return split_name(f"{name.removesuffix(ALL)}.all" if name.endswith(ALL) else name)[0]


def dead_name(name: str) -> str:
    """The name of the dead-letter stream of `name`."""
    return f"{name}.{DEAD}"


def check_word(kind: str, word: object) -> None:
    """Raise InvalidEventError unless `word` may name a `kind`: a group or a consumer."""
    if not isinstance(word, str) or len(word) > LONGEST_NAME or not _WORD.fullmatch(word):
        raise InvalidEventError(
            f"{_shown(word)} is no name of a {kind}: 1 to {LONGEST_NAME} printable ASCII "
            "characters, no spaces"
        )


def check_key(key: object) -> None:
    """Raise InvalidEventError unless `key` may be an idempotency key."""
    if not isinstance(key, str) or len(key) > LONGEST_KEY or not _WORD.fullmatch(key):
        raise InvalidEventError(
            f"{_shown(key)} is no idempotency key: 1 to {LONGEST_KEY} printable ASCII characters, "
            "no spaces"
        )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
