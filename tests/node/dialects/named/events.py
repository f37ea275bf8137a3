"""Events of every kind for the tests of this dialect, and strategies that make them."""

from hypothesis import strategies as st

from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.named.codec import BromineEvent, BromineType, Flavour, serialise_head

LIMITS = DialectLimits()
FLAVOURS = tuple(Flavour)

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def serialise_event(event: BromineEvent, flavour: Flavour, limits: DialectLimits) -> bytes:
    event_id, kind, ref_id, namespace, name, data = event
    head = serialise_head(flavour, event_id, kind, ref_id, namespace, name, len(data), limits)
    return head + data


@st.composite
def events(draw: st.DrawFn, flavour: Flavour) -> BromineEvent:
    ref_id = draw(st.none() | st.integers(0, 2**64 - 1))
    plain = BromineType.INITIATOR if ref_id is None else BromineType.RESPONSE
    return BromineEvent(
        draw(st.integers(0, 2**64 - 1)),
        plain if flavour is Flavour.PLAIN else draw(st.sampled_from(BromineType)),
        ref_id,
        draw(names),
        draw(names),
        draw(st.binary(max_size=100)),
    )


def ask(
    name: str = "ping", data: bytes = b"", event_id: int = 7, namespace: str = ""
) -> BromineEvent:
    return BromineEvent(event_id, BromineType.INITIATOR, None, namespace, name, data)


def reply(
    ref_id: int,
    data: bytes = b"",
    name: str = "pong",
    kind: BromineType = BromineType.RESPONSE,
    event_id: int = 8,
) -> BromineEvent:
    return BromineEvent(event_id, kind, ref_id, "", name, data)


def on_wire(event: BromineEvent, flavour: Flavour) -> bytes:
    return serialise_event(event, flavour, LIMITS)
