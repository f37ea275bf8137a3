"""Vectors for Have and Cards (section 19), from one end's view."""

from typing import Any

from tests.reference.envelopes import CardTable, read_card
from tests.reference.flooding import Flooding, judge_link, take_other
from tests.reference.vectors_cards import (
    KEYS,
    MEMBERS,
    NOW,
    OTHER,
    OWN,
    OWN_NUMBER,
    SERVER,
    STRANGER,
    ahead,
    card_of,
    changed,
    outer,
)
from tests.reference.wire import TYPES, Event, Violation, cells_payload

Vector = dict[str, Any]


def _have(*entries: tuple[bytes, int]) -> tuple[str, bytes]:
    return "have", outer(have=[[origin, number] for origin, number in entries])


def _cards(*envelopes: bytes) -> tuple[str, bytes]:
    return "cards", outer(envelopes=list(envelopes))


_NUMBERS = {"own": OWN_NUMBER, "server": NOW - 20, "other": NOW - 30, "far": NOW - 40}
_MADE = {
    "own": card_of(KEYS[0], number=_NUMBERS["own"], links=[]),
    "server": card_of(KEYS[1], number=_NUMBERS["server"]),
    "other": card_of(KEYS[2], number=_NUMBERS["other"], links=[]),
    "far": card_of(KEYS[3], number=_NUMBERS["far"], links=[]),
}
_NEWER = card_of(KEYS[2], number=NOW, links=[])
_ALL = ((OWN, OWN_NUMBER), (SERVER, NOW - 20), (OTHER, NOW - 30))
_WRONG_SIGNATURE = changed(_NEWER)
# By name: what this end has, and what happens.
_EXCHANGES: dict[str, tuple[tuple[str, ...], list[tuple[str, bytes]]]] = {
    "the other has nothing": (("own", "server", "other"), [_have()]),
    "the other has all": (("own", "server", "other"), [_have(*_ALL)]),
    "the other has newer ones": (
        ("own", "server"),
        [_have((OWN, OWN_NUMBER - 1), (SERVER, NOW)), _cards(_MADE["other"])],
    ),
    "the other has what is not of members": (("own",), [_have((STRANGER, 1), (OWN, OWN_NUMBER))]),
    "an id twice": (("own",), [_have((OWN, OWN_NUMBER), (OWN, 3))]),
    "news before the other's Have": (("own",), [("news", _NEWER), _have((OWN, OWN_NUMBER))]),
    "news": (("own",), [_have(), ("news", _NEWER)]),
    "news that the other sent itself": (
        ("own", "other"),
        [_have(*_ALL), _cards(_NEWER), ("news", _NEWER)],
    ),
    "news that the other has by its Have": (("own",), [_have((OTHER, NOW)), ("news", _NEWER)]),
    "the same news again": (("own",), [_have(), ("news", _NEWER), ("news", _NEWER)]),
    "Cards with one of a stranger": (
        ("own",),
        [_have(*_ALL), _cards(card_of(KEYS[4]), _MADE["other"])],
    ),
    "Cards with what is no envelope": (("own",), [_have(*_ALL), _cards(b"", _MADE["other"])]),
    "Cards with one that is ahead of time": (
        ("own", "server"),
        [_have(), _cards(card_of(KEYS[1], **ahead(300_001)))],
    ),
    "Cards with one's own, which is newer": (
        ("own",),
        [_have(), _cards(card_of(KEYS[0], number=NOW + 1, links=[]))],
    ),
    "no Cards": (("own",), [_have(), _cards()]),
    "Cards before Have": (("own",), [_cards(_MADE["other"])]),
    "a second Have": (("own",), [_have(), _have()]),
    "a wrong signature": (("own",), [_have(), _cards(_MADE["far"], _WRONG_SIGNATURE)]),
    "one's own card with a wrong signature": (
        ("own",),
        [_have(), _cards(changed(card_of(KEYS[0], number=NOW + 1, links=[])))],
    ),
    "Have with a number that is text": (("own",), [("have", outer(have=[[OTHER, "1"]]))]),
    "Have with an id of 31 bytes": (("own",), [_have((OTHER[1:], 1))]),
    "Have without its cell": (("own",), [("have", outer(code=0))]),
    "Have that is not LBM": (("own",), [("have", b"\xff")]),
    "Cards that are text": (("own",), [_have(), ("cards", outer(envelopes=["card"]))]),
    "Cards without their cell": (("own",), [_have(), ("cards", outer(code=0))]),
    "1,025 Cards": (("own",), [_have(), _cards(*[b""] * 1_025)]),
}


def exchange_vectors() -> list[Vector]:
    """Have and Cards, from one end's view."""
    vectors: list[Vector] = []
    for name, (held, steps) in _EXCHANGES.items():
        flooding = Flooding(CardTable(OWN, MEMBERS, OWN_NUMBER), {})
        for one in held:
            card, _ = read_card(_MADE[one])
            flooding.offers[card.origin] = card.number, _MADE[one]
            if card.origin != OWN:
                flooding.table.take(_MADE[one], NOW)
        vector: Vector = {
            "name": f"exchange: {name}",
            "kind": "exchange",
            "cards": [_MADE[one].hex() for one in held],
            "steps": [[kind, data.hex()] for kind, data in steps],
        }
        have = [[origin.hex(), number] for origin, number in flooding.have()]
        try:
            sent = [_stepped(flooding, kind, data) for kind, data in steps]
        except Violation as violation:
            vectors.append({**vector, "fails": violation.code, "why": violation.why})
            continue
        known = [[origin.hex(), n] for origin, n in sorted(flooding.table.numbers.items())]
        expected = {"have": have, "sent": sent, "known": known, "dropped": flooding.dropped}
        vectors.append({**vector, "expected": expected})
    return vectors


def _stepped(flooding: Flooding, kind: str, data: bytes) -> list[str]:
    if kind == "news":
        card, _ = read_card(data)
        flooding.table.numbers[card.origin] = card.number
        sent = flooding.news(card.origin, card.number, data)
    else:
        sent = flooding.receive(TYPES[kind.capitalize()][1], data, NOW)
    return sorted(origin.hex() for origin in sent)


_EVENTS: dict[str, Event] = {
    "an unknown subcategory": Event(3, 0, 8, 9, b"\xa0"),
    "an unknown subcategory with an async id": Event(3, 7, 8, 9, b"x"),
    "a Call": Event(3, 7, *TYPES["Call"], cells_payload(topic="parley.echo")),
    "an application's event": Event(3, 0, 64, 1, b"x"),
    "Data": Event(3, 0, *TYPES["Data"], b"some bytes"),
    "no Cards": Event(3, 0, *TYPES["Cards"], outer(envelopes=[])),
    "no Cards, with an async id": Event(3, 7, *TYPES["Cards"], outer(envelopes=[])),
    "a second Have": Event(3, 0, *TYPES["Have"], outer(have=[])),
    "a second Have with an async id": Event(3, 7, *TYPES["Have"], outer(have=[])),
    "Cards that are text": Event(3, 0, *TYPES["Cards"], outer(envelopes="card")),
    "Cards without their cell": Event(3, 0, *TYPES["Cards"], b"\xa0"),
    "Cards that are not LBM": Event(3, 0, *TYPES["Cards"], b"\xff"),
    "Statements that are none": Event(3, 0, *TYPES["Statements"], outer(statements=[b"", b"x"])),
    "Statements with an async id": Event(3, 7, *TYPES["Statements"], outer(statements=[b"x"])),
    "no Statements": Event(3, 0, *TYPES["Statements"], outer(statements=[])),
    "Statements that are text": Event(3, 0, *TYPES["Statements"], outer(statements=["x"])),
    "Statements without their cell": Event(3, 0, *TYPES["Statements"], b"\xa0"),
    "Statements that are not LBM": Event(3, 0, *TYPES["Statements"], b"\xff"),
}
_LINKS: dict[str, dict[str, Any]] = {
    "of a member": {},
    "with the least payload": {"payload": 131_072},
    "of a node that is not a member": {"member": False},
    "from the side that did not dial": {"opener_dialled": False},
    "with payloads that are too small": {"payload": 131_071},
    "of a session that resumes": {"m": 30_000},
    "a second one on a session": {"first": False},
}


def stream_vectors() -> list[Vector]:
    """Events of other types on a stream `federation`, and which streams make a link."""
    vectors: list[Vector] = []
    for name, event in _EVENTS.items():
        vector = {"name": f"federation: {name}", "kind": "federation", "raw_event": event.raw.hex()}
        try:
            vectors.append({**vector, "expected": take_other(event)})
        except Violation as violation:
            vectors.append({**vector, "fails": violation.code, "why": violation.why})
    usual = {"member": True, "opener_dialled": True, "m": 0, "payload": 1 << 20, "first": True}
    for name, changes in _LINKS.items():
        facts: dict[str, Any] = {**usual, **changes}
        result, vector = judge_link(**facts), {"name": f"link: {name}", "kind": "link", **facts}
        if result == "link":
            vectors.append({**vector, "expected": result})
        else:
            vectors.append({**vector, "fails": result, "why": name})
    return vectors
