"""What is said in a room, and by whom, as values on the wire.

What comes from another node is checked here before it is shown: a name cannot pass for a line of
the chat, and nothing is longer than agreed.
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
    """The topic on which all that happens in a room is published."""
    return f"chat.{room}"


def say_of(room: str) -> str:
    """What is called to say something in a room."""
    return f"chat.{room}.say"


def clean_name(name: object) -> str:
    """A name as it is shown: letters and digits of any script, blanks and `- _ . '`.

    Raises:
        ValueError: not a name, or longer than 32 characters.
    """
    if not isinstance(name, str) or len(name) > 4 * NAME_LENGTH:
        raise ValueError(f"a name is text of 1 to {NAME_LENGTH} characters")
    # One spelling for what looks the same, as far as Unicode says so.
    name = " ".join(unicodedata.normalize("NFKC", name).split())
    if not 1 <= len(name) <= NAME_LENGTH or not name[0].isalnum() or not all(map(_fits, name)):
        raise ValueError(
            f"a name has 1 to {NAME_LENGTH} letters, digits, blanks and - _ . ', a letter or "
            "digit first"
        )
    return name


def require_text(text: object) -> str:
    """What may be said.

    Raises:
        ValueError: not a text of 1 to 4,096 characters.
    """
    if not isinstance(text, str) or not 1 <= len(text) <= TEXT_LENGTH:
        raise ValueError(f"a message is text of 1 to {TEXT_LENGTH:,} characters")
    return text


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody in a room: the id that was proved to the host, and a name."""

    node_id: NodeId
    name: str

    def encode(self) -> dict[str, Any]:
        """The value that `parse` reads."""
        return {"id": str(self.node_id), "name": self.name}

    @classmethod
    def parse(cls, value: object) -> Self:
        """Read a person; raises ValueError."""
        if not isinstance(value, Mapping):
            raise ValueError(f"a person is a map, not {ascii(value)[:80]}")
        try:
            return cls(NodeId.parse(str(value.get("id"))), clean_name(value.get("name")))
        except IdentityError as error:
            raise ValueError(str(error)) from error


@dataclass(frozen=True, slots=True)
class Message:
    """Something that happened in a room; only `text` has a text."""

    kind: Kind
    person: Person
    text: str = ""

    def encode(self) -> dict[str, Any]:
        """The value that `parse` reads."""
        value = {"kind": self.kind, "from": self.person.encode()}
        return {**value, "text": self.text} if self.kind == "text" else value

    @classmethod
    def parse(cls, value: object) -> Self:
        """Read a message; raises ValueError."""
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
    # Marks belong to the letters before them, in many scripts.
    return (
        character.isalnum()
        or character in _PUNCTUATION
        or unicodedata.category(character).startswith("M")
    )
