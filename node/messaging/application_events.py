"""An application's own events, and those of streams with reserved labels: their types, and what
they carry (sections 2, 12, 16 and 19).

What may not be sent is refused here, before anything waits or is queued.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from parley._lbm import keys
from parley._lbm.codec import Encodable, encode
from parley._node.errors import ConfigError
from parley._node.protocol.codes import (
    BUS,
    BUS_LABEL,
    FEDERATION,
    FEDERATION_LABEL,
    FIRST_APPLICATION_CATEGORY,
    TUNNEL,
    TUNNEL_LABEL,
)
from parley._node.protocol.errors import LocalProtocolError, PayloadTooLargeError
from parley._node.protocol.event import NO_PAYLOAD

LAST_NUMBER: Final = 255


class Carries(NamedTuple):
    """What a stream carries: events of `categories`, answers among them always, others
    if `events`; Data if `data`. `asks` says whether events ask by their async id, and `calls`
    whether calls, topics and named events are accepted too."""

    categories: range
    events: bool = True
    data: bool = True
    asks: bool = True
    calls: bool = True

    def encode(
        self, category: int, subcategory: int, data: Encodable, payload: bytes | None, largest: int
    ) -> tuple[bytes, bool]:
        """The payload of an event on such a stream, and whether it is LBM: a `payload` is, but
        for an application's. Raises ValueError for another's event, else as `encode_payload`."""
        check_type(category, subcategory, self)
        body, lbm = encode_payload(data, payload, largest)
        return body, lbm or category < FIRST_APPLICATION_CATEGORY


APPLICATION: Final = Carries(range(FIRST_APPLICATION_CATEGORY, LAST_NUMBER + 1))
# A stream `bus` where it was opened: nothing is asked there.
BUS_ASKING: Final = Carries(range(BUS, BUS + 1), events=False, data=False)
# Streams with reserved labels, where they were opened and where they are served.
TUNNEL_EVENTS: Final = Carries(range(TUNNEL, TUNNEL + 1), calls=False)
FEDERATION_EVENTS: Final = Carries(
    range(FEDERATION, FEDERATION + 1), data=False, asks=False, calls=False
)
ANSWERING: Final = {
    BUS_LABEL: Carries(range(BUS, BUS + 1), data=False),
    TUNNEL_LABEL: TUNNEL_EVENTS,
    FEDERATION_LABEL: FEDERATION_EVENTS,
}


def check_type(category: int, subcategory: int, carries: Carries = APPLICATION) -> None:
    """Raise ValueError unless the category is one that the stream carries (an application's:
    64..255) and the subcategory 1..255."""
    if category not in carries.categories or not 1 <= subcategory <= LAST_NUMBER:
        raise ValueError(f"{category}/{subcategory} is not a type of an application's event")


def answering_types(types: Iterable[tuple[int, int]]) -> frozenset[tuple[int, int]]:
    """The types of events that are answers, as pairs of category and subcategory.

    Raises:
        ValueError: one of them is not a type of an application's event.
    """
    try:
        answers = frozenset((category, subcategory) for category, subcategory in types)
    except (TypeError, ValueError):
        raise ValueError(
            f"answers is {types!r}; it must be pairs of category and subcategory"
        ) from None
    for category, subcategory in answers:
        check_type(category, subcategory)
    return answers


def parse_types(given: Iterable[tuple[int, int]]) -> frozenset[tuple[int, int]]:
    """Types of an application's events, as pairs of category and subcategory.

    Raises:
        ConfigError: a category is not 64..255, or a subcategory not 1..255.
    """
    try:
        return answering_types(given)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def encode_payload(
    data: Encodable, payload: bytes | bytearray | memoryview | None, largest: int
) -> tuple[bytes, bool]:
    """The payload of an event, empty for none, and whether it is LBM.

    `data` goes into cell 22, `payload` as it is; `largest` is the agreed `max_payload`.

    Raises:
        ValueError: both are given. LbmEncodeError: `data` has no encoding.
        PayloadTooLargeError: it is longer than `largest`.
        LocalProtocolError: `payload` is the single byte 0x00, which means 'none'.
    """
    if payload is not None and data is not None:
        raise ValueError(
            f"data is a {type(data).__name__} and payload has {len(payload):,} bytes; give one of "
            "them"
        )
    if payload is not None:
        body = bytes(memoryview(payload))
        if body == NO_PAYLOAD:
            raise LocalProtocolError("the payload 0x00 means that the event has no payload")
    else:
        body = b"" if data is None else encode({keys.DATA: data})
    if len(body) > largest:
        raise PayloadTooLargeError(f"a payload of {len(body)} bytes; {largest} were agreed")
    return body, payload is None
