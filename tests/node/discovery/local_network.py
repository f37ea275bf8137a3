"""What others say on the loopback's multicast group: packets of a stranger's own making."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from zeroconf._dns import DNSPointer, DNSText
from zeroconf._protocol.outgoing import DNSOutgoing
from zeroconf.const import (
    _CLASS_IN,
    _CLASS_UNIQUE,
    _FLAGS_AA,
    _FLAGS_QR_RESPONSE,
    _TYPE_PTR,
    _TYPE_TXT,
)

from parley._node.discovery.announcement import SERVICE

LOOPBACK: Final = ("127.0.0.1",)
_GROUP: Final = ("224.0.0.251", 5353)


def answer(instance: str, text: bytes, ttl: int = 120) -> list[bytes]:
    """The packets by which somebody says that there is such an instance, or (`ttl` 0) was."""
    out = DNSOutgoing(_FLAGS_QR_RESPONSE | _FLAGS_AA)
    name = f"{instance}.{SERVICE}"
    out.add_answer_at_time(DNSPointer(SERVICE, _TYPE_PTR, _CLASS_IN, ttl, name), 0)
    unique = _CLASS_IN | _CLASS_UNIQUE
    out.add_answer_at_time(DNSText(name, _TYPE_TXT, unique, ttl, text), 0)
    return out.packets()


@contextmanager
def stranger() -> Iterator[socket.socket]:
    """A socket whose packets all on this machine hear."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        loopback = socket.inet_aton(LOOPBACK[0])
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, loopback)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(("127.0.0.1", _GROUP[1]))
        sock.connect(_GROUP)
        yield sock
