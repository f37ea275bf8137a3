"""The address of a Redis: `redis://`, `rediss://` (TLS) and `unix://`. No
password is ever shown.
"""

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from parley._node.errors import AddressError
from parley._node.transport.address import Address

DEFAULT_PORT: Final = 6379
DEFAULT_HOST: Final = "localhost"


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """One server and database, and the user to log in as.

    Attributes:
        path: of a Unix socket; empty: TCP.
        tls: with the system's authorities, and the host's name checked.
    """

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    path: str = ""
    database: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False

    @property
    def place(self) -> Address:
        """Where it is dialled, without TLS.

        Raises:
            AddressError: there is no such place.
        """
        if self.path:
            return Address("unix", path=self.path)
        return Address("tcp", self.host, self.port)

    def __str__(self) -> str:
        return self.path or f"{self.host}:{self.port}"


def parse_address(url: str) -> RedisAddress:
    """The address that `url` is: `redis[s]://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE]`, or
    `unix://[USER[:PASSWORD]@]PATH[?db=DATABASE]`.

    Raises:
        AddressError: it is not such an address.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        # Its text may be part of a password.
        raise AddressError("not the address of a Redis: redis://HOST:PORT/DATABASE") from None
    if parts.scheme not in ("redis", "rediss", "unix"):
        raise AddressError(f"{parts.scheme!r} is not the address of a Redis")
    username = unquote(parts.username) if parts.username else None
    password = unquote(parts.password) if parts.password else None
    if parts.scheme == "unix":
        if parts.path in ("", "/"):
            raise AddressError("a Unix socket needs a path: unix:///run/redis.sock")
        database = parse_qs(parts.query).get("db", ["0"])[0]
        found = RedisAddress(
            path=unquote(parts.path),
            database=_database(database),
            username=username,
            password=password,
        )
    else:
        found = RedisAddress(
            host=parts.hostname or DEFAULT_HOST,
            port=DEFAULT_PORT if port is None else port,
            database=_database(parts.path.strip("/") or "0"),
            username=username,
            password=password,
            tls=parts.scheme == "rediss",
        )
    _ = found.place  # raises for one that cannot be
    return found


def _database(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise AddressError("the path of a Redis is its database, a number")
    return int(text)
