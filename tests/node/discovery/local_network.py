"""Packets that other machines send to the loopback's multicast group, with arbitrary content."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from zeroconf._dns import DNSPointer, DNSText
from zeroconf._protocol.outgoing import DNSOutgoing

from parley._node.discovery.announcement import SERVICE

LOOPBACK: Final = ("127.0.0.1",)
# RFC 1035 and RFC 6762: the flags of an authoritative answer, the types, and the class with the bit
# for unique records.
_RESPONSE: Final = 0x8400
_PTR: Final = 12
_TXT: Final = 16
_IN: Final = 1
_UNIQUE: Final = 0x8000
_GROUP: Final = ("224.0.0.251", 5353)


def answer(instance: str, text: bytes, ttl: int = 120) -> list[bytes]:
    """Return the packets that announce an instance, or withdraw it (`ttl` 0)."""
    out = DNSOutgoing(_RESPONSE)
    name = f"{instance}.{SERVICE}"
    out.add_answer_at_time(DNSPointer(SERVICE, _PTR, _IN, ttl, name), 0)
    out.add_answer_at_time(DNSText(name, _TXT, _IN | _UNIQUE, ttl, text), 0)
    return out.packets()


@contextmanager
def stranger() -> Iterator[socket.socket]:
    """Return a socket whose packets reach all programs on this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        loopback = socket.inet_aton(LOOPBACK[0])
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, loopback)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(("127.0.0.1", _GROUP[1]))
        sock.connect(_GROUP)
        yield sock
