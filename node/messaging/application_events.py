"""An application's own events: their types, and what they carry (sections 2 and 12).

One rule: what may not be sent is refused here, before anything waits or is queued.
Knows no streams and no requests.
"""

from collections.abc import Iterable
from typing import Final

from lbm import keys
from lbm.codec import Encodable, encode
from node.protocol.codes import FIRST_APPLICATION_CATEGORY
from node.protocol.errors import LocalProtocolError, PayloadTooLargeError
from node.protocol.event import NO_PAYLOAD

LAST_NUMBER: Final = 255


def check_type(category: int, subcategory: int) -> None:
    """Raise ValueError unless the category is 64..255 and the subcategory 1..255."""
    if not (
        FIRST_APPLICATION_CATEGORY <= category <= LAST_NUMBER and 1 <= subcategory <= LAST_NUMBER
    ):
        raise ValueError(f"{category}/{subcategory} is no type of an application's event")


def answering_types(types: Iterable[tuple[int, int]]) -> frozenset[tuple[int, int]]:
    """The types of events that are answers, as pairs of category and subcategory.

    Raises:
        ValueError: one of them is no type of an application's event.
    """
    answers = frozenset(types)
    for category, subcategory in answers:
        check_type(category, subcategory)
    return answers


def encode_payload(data: Encodable, payload: bytes | None, largest: int) -> tuple[bytes, bool]:
    """The payload of an event, empty for none, and whether it is LBM.

    `data` goes into cell 22, `payload` as it is; `largest` is the agreed `max_payload`.

    Raises:
        ValueError: both are given. LbmEncodeError: `data` has no encoding.
        PayloadTooLargeError: it is longer than `largest`.
        LocalProtocolError: `payload` is the single byte 0x00, which means 'none'.
    """
    if payload is not None and data is not None:
        raise ValueError("an event has either data or a payload")
    if payload is not None:
        body = bytes(memoryview(payload))
        if body == NO_PAYLOAD:
            raise LocalProtocolError("the payload 0x00 means that there is none")
    else:
        body = b"" if data is None else encode({keys.DATA: data})
    if len(body) > largest:
        raise PayloadTooLargeError(f"a payload of {len(body)} bytes; {largest} were agreed")
    return body, payload is None
