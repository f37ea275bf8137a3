"""Messages of a chat room, and the people in it, as values on the wire.

Values from other nodes are validated before they are displayed: a name cannot look like another
line of the chat, and the sizes are limited.
"""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Self

from parley._crypto.errors import IdentityError
from parley._crypto.identity import NodeId

NAME_LENGTH: Final = 32  # characters
TEXT_LENGTH: Final = 4_096

Kind = Literal["text", "join", "leave"]
_KINDS: Final[Mapping[object, Kind]] = {"text": "text", "join": "join", "leave": "leave"}
_PUNCTUATION: Final = " -_.'"


def topic_of(room: str) -> str:
    """Return the name of the topic on which the events of a room are published."""
    return f"chat.{room}"


def say_of(room: str) -> str:
    """Return the name of the call that sends a message to a room."""
    return f"chat.{room}.say"


def clean_name(name: object) -> str:
    """Return a name in its displayed form: letters and digits of any script, blanks and `- _ . '`.

    Raises:
        ValueError: the name is invalid or longer than 32 characters.
    """
    if not isinstance(name, str) or len(name) > 4 * NAME_LENGTH:
        raise ValueError(f"a name is text of 1 to {NAME_LENGTH} characters")
    # Normalise, so that names which look the same are the same where Unicode defines it.
    name = " ".join(unicodedata.normalize("NFKC", name).split())
    if not 1 <= len(name) <= NAME_LENGTH or not name[0].isalnum() or not all(map(_fits, name)):
        raise ValueError(
            f"a name has 1 to {NAME_LENGTH} letters, digits, blanks and - _ . ', a letter or "
            "digit first"
        )
    return name


def require_text(text: object) -> str:
    """Return the text of a message.

    Raises:
        ValueError: it is not text of 1 to 4,096 characters.
    """
    if not isinstance(text, str) or not 1 <= len(text) <= TEXT_LENGTH:
        raise ValueError(f"a message is text of 1 to {TEXT_LENGTH:,} characters")
    return text


@dataclass(frozen=True, slots=True)
class Person:
    """A person in a room: the node ID that was proved to the host, and a name."""

    node_id: NodeId
    name: str

    def encode(self) -> dict[str, Any]:
        """Return the value that `parse` reads."""
        return {"id": str(self.node_id), "name": self.name}

    @classmethod
    def parse(cls, value: object) -> Self:
        """Parse a person; raise ValueError if the value is invalid."""
        if not isinstance(value, Mapping):
            raise ValueError(f"a person is a map, not {ascii(value)[:80]}")
        try:
            return cls(NodeId.parse(str(value.get("id"))), clean_name(value.get("name")))
        except IdentityError as error:
            raise ValueError(str(error)) from error


@dataclass(frozen=True, slots=True)
class Message:
    """An event in a room. Only the kind `text` has a text."""

    kind: Kind
    person: Person
    text: str = ""

    def encode(self) -> dict[str, Any]:
        """Return the value that `parse` reads."""
        value = {"kind": self.kind, "from": self.person.encode()}
        return {**value, "text": self.text} if self.kind == "text" else value

    @classmethod
    def parse(cls, value: object) -> Self:
        """Parse a message; raise ValueError if the value is invalid."""
        if not isinstance(value, Mapping):
            raise ValueError(f"a message is a map, not {ascii(value)[:80]}")
        kind = _KINDS.get(str(value.get("kind")))
        if kind is None:
            raise ValueError(
                f"a message is a text, a join or a leave, not {ascii(value.get('kind'))[:40]}"
            )
        text = require_text(value.get("text")) if kind == "text" else ""
        return cls(kind, Person.parse(value.get("from")), text)


def _fits(character: str) -> bool:
    # In many scripts, marks belong to the preceding letter.
    return (
        character.isalnum()
        or character in _PUNCTUATION
        or unicodedata.category(character).startswith("M")
    )
