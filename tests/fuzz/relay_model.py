"""A model of a relay, message by message: the recipients, by the document alone.

It is slow and simple, and decodes with the reference. It has no queues and no time.
"""

from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from tests.reference.dialects.reading import INCOMPLETE, Wrong
from tests.reference.dialects.relay import (
    BROADCAST,
    SERVER,
    RelayMessage,
    check_route,
    read_message,
    read_uuid,
)

UUIDS: Final = tuple(bytes([number]) * 16 for number in (1, 2, 3))
BRIDGE: Final = b"the relay itself"
UUID_SIZE: Final = 16
LENGTH_SIZE: Final = 4
HEAD_SIZE: Final = 36


@dataclass(frozen=True)
class Error:
    """An error frame with this code; its text names `target`, if it is about one."""

    to: bytes
    code: int
    target: bytes = b""

    def is_said_by(self, message: RelayMessage) -> bool:
        """Whether a message is that."""
        if (message.to, message.sender) != (self.to, SERVER):
            return False
        code, text = message.error
        return code == self.code and (not self.target or str(UUID(bytes=self.target)) in text)


@dataclass
class Client:
    """A connected client; `told` has the messages sent to it, `target` the recipient that was not
    reached.
    """

    uuid: bytes = b""
    told: list[RelayMessage | Error] = field(default_factory=list)
    open: bool = True
    pending: bytes = b""
    skip: int = 0
    target: bytes = b""

    def has_heard(self, heard: list[RelayMessage]) -> bool:
        """Return whether the sent messages begin with these bytes."""
        return len(heard) <= len(self.told) and all(
            told.is_said_by(message) if isinstance(told, Error) else told == message
            for told, message in zip(self.told, heard, strict=False)
        )


class Model:
    """All clients of a relay, and its bridge if that has joined."""

    def __init__(self, longest: int, *, feedback: bool) -> None:
        self._longest = longest
        self._feedback = feedback
        self._clients: list[Client] = []
        self.bridge = Client(BRIDGE, open=False)

    def enter(self) -> Client:
        """One more."""
        self._clients = [client for client in self._clients if client.open]
        self._clients.append(Client())
        return self._clients[-1]

    def receive(self, client: Client, data: bytes) -> None:
        """A client sends bytes."""
        client.pending += data
        while client.open and self._step(client):
            pass

    def route(self, message: RelayMessage) -> bool:
        """Forward a message, and return whether it has a recipient."""
        members = self._members()
        for uuid, member in members.items():
            if uuid == message.to or (message.to == BROADCAST and uuid != message.sender):
                member.told.append(message)
        return message.to == BROADCAST or message.to in members

    def _members(self) -> dict[bytes, Client]:
        everybody = [*self._clients, self.bridge]
        return {client.uuid: client for client in everybody if client.open and client.uuid}

    def _step(self, client: Client) -> bool:
        """Read one thing; False if it is not whole."""
        if client.skip:
            skipped = min(client.skip, len(client.pending))
            client.skip -= skipped
            client.pending = client.pending[skipped:]
            return not client.skip
        try:
            if not client.uuid:
                client.uuid, client.pending = read_uuid(client.pending, self._members())
            else:
                self._read(client)
        except Wrong as wrong:
            return self._is_answered(client, wrong)
        return True

    def _read(self, client: Client) -> None:
        try:
            message, rest = read_message(client.pending, self._longest)
        except Wrong as wrong:
            sender = client.pending[HEAD_SIZE - UUID_SIZE : HEAD_SIZE]
            if wrong.fails == INCOMPLETE and len(sender) == UUID_SIZE and sender != client.uuid:
                raise Wrong("code 4, closes", "judged before all of it is there") from None
            raise
        client.pending = rest
        try:
            check_route(message, client.uuid, self._members())
        except Wrong:
            client.target = message.to
            raise
        self.route(message)

    def _is_answered(self, client: Client, wrong: Wrong) -> bool:
        if wrong.fails == INCOMPLETE:
            return False
        code = int(wrong.fails[5])
        client.open = "closes" not in wrong.fails
        if code == 3 and client.open:
            client.skip = LENGTH_SIZE + int.from_bytes(client.pending[:LENGTH_SIZE])
        if code != 5 or self._feedback:
            to = client.uuid or (BROADCAST if code == 1 else client.pending[:UUID_SIZE])
            client.told.append(Error(to, code, client.target if code == 5 else b""))
        return True
