"""Shared by the tests of the Redis store: events, and raw access to Redis.

The contents that a store writes are read with Redis's own protocol, without a client library.
"""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from typing import Any, Final

from parley._node.bus.model import Delivery, NewEvent
from tests.redis_server import HOST, PATIENCE, RedisServer

S: Final = "auth.user_registered"
KEY: Final = "auth.user_registered:stream"
DEAD: Final = "auth.user_registered.dead"
G: Final = "mailer"
C: Final = "one"
ALL: Final = 1_000


def event(number: int = 0, name: str = S, key: str | None = None, **more: Any) -> NewEvent:
    """Return an event with a number."""
    data = {"number": number, **more}
    return NewEvent(name, data, json.dumps(data), key)


def numbers(deliveries: list[Delivery]) -> list[tuple[int, int]]:
    """Return the number and attempt of each event."""
    return [(json.loads(one.event.body)["number"], one.attempt) for one in deliveries]


def ids(deliveries: list[Delivery]) -> list[str]:
    return [one.event.id for one in deliveries]


class Redis:
    """A raw connection to a server."""

    def __init__(self, server: RedisServer) -> None:
        self.server = server

    def __call__(self, *words: str | int) -> Any:
        """Return the complete response to a command (RESP 2) with texts and errors as str."""
        text = [f"*{len(words)}"]
        for word in map(str, words):
            text += (f"${len(word.encode())}", word)
        with socket.create_connection((HOST, self.server.port), timeout=PATIENCE) as connection:
            connection.sendall(("\r\n".join(text) + "\r\n").encode())
            with connection.makefile("rb") as answers:
                return _answer(answers)

    @contextmanager
    def setting(self, name: str, value: str, after: str) -> Iterator[None]:
        """Change a setting of the server inside the block."""
        assert self("CONFIG", "SET", name, value) == "OK"
        try:
            yield
        finally:
            self("CONFIG", "SET", name, after)


def _answer(answers: BufferedReader) -> Any:
    line = answers.readline().decode().rstrip()
    kind, rest = line[:1], line[1:]
    if kind == ":":
        return int(rest)
    if kind == "$":
        return None if rest == "-1" else answers.read(int(rest) + 2)[:-2].decode()
    if kind == "*":
        return None if rest == "-1" else [_answer(answers) for _ in range(int(rest))]
    return rest
