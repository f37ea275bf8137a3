"""Who consumes what in one bus: each consumer of a group under a name of its own.

One rule: two of one group never share a name, or one would take what is the other's; and names
are the lowest that are free, so that after a restart they are the same again.
"""

import os
import socket
from collections import defaultdict
from typing import Final

from crypto.randomness import random_bytes
from node.bus.consuming.terms import Terms
from node.errors import ConfigError

# So that with `-NUMBER` behind it, and a node's id before it, a store still takes the name.
LONGEST_CONSUMER: Final = 190
# Of the host's name, in a consumer's.
_HOST_LENGTH: Final = 64


class Seats:
    """The consumers of one bus; `name` is what the first of each group is called.

    Raises:
        ConfigError: the name is too long.
    """

    __slots__ = ("_name", "_taken")

    def __init__(self, name: str) -> None:
        if len(name) > LONGEST_CONSUMER:
            raise ConfigError(
                f"consumer has {len(name)} characters; it must have {LONGEST_CONSUMER} or less"
            )
        self._name = name
        self._taken: defaultdict[tuple[str, str], set[int]] = defaultdict(set)

    def take(self, terms: Terms) -> str:
        """A name for one more."""
        taken = self._taken[terms.stream, terms.group]
        number = next(number for number in range(1, len(taken) + 2) if number not in taken)
        taken.add(number)
        return self._name if number == 1 else f"{self._name}-{number}"

    def leave(self, terms: Terms, consumer: str) -> None:
        """The name is free again."""
        key = (terms.stream, terms.group)
        rest = consumer[len(self._name) + 1 :]
        self._taken[key].discard(int(rest) if rest else 1)
        if not self._taken[key]:
            del self._taken[key]


def process_name() -> str:
    """What this process is called among the consumers: its host, its id, and by chance."""
    host = "".join(letter for letter in socket.gethostname() if "!" <= letter <= "~")
    return f"{host[:_HOST_LENGTH] or 'host'}-{os.getpid()}-{random_bytes(2).hex()}"
