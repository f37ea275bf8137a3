"""Hello, Retry, Reply and Reject (section 5): building and evaluating them.

Pure functions from event bytes to a decision or a Violation, which check in the order of the
document. They don't depend on sockets or Proofs.
"""

import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from tests.reference import cbor, wire
from tests.reference.exchange import KEX_NAMES, Offer
from tests.reference.identity import Identity
from tests.reference.primitives import CIPHER_NAMES, HASH_NAMES, SIGNING_NAMES
from tests.reference.sealing import Suite
from tests.reference.wire import CELLS, HANDSHAKE_LIMIT, TYPES, Event, Violation, cells_payload

VERSION: Final = 1
PARAMETERS: Final = {"kex": 1, "signing": 2, "hash": 3, "cipher": 4, "sealing": 5}
SEALING_NAMES: Final = ("chain", "each")
ROLES: Final = ("client", "server", "peer")
LONGEST_RESUME: Final = 600_000
NETWORK_LABELS: Final = {
    TYPES["Hello"]: b"parley1 hello",
    TYPES["Resume"]: b"parley1 resume hello",
}
# cell name: default, smallest, greatest
LIMITS: Final = {
    "max_payload": (1 << 20, 1 << 10, 1 << 26),
    "seal_events": (64, 1, 65_536),
    "seal_delay_ms": (20, 0, 60_000),
    "stream_window": (1 << 18, 1 << 10, 1 << 26),
    "max_streams": (1_024, 0, 65_536),
}


@dataclass(frozen=True)
class Config:
    """One side's settings. `shares` are the kex names that the first Hello has shares for."""

    identity: Identity
    role: str = "peer"
    kex: tuple[str, ...] = KEX_NAMES
    signing: tuple[str, ...] = SIGNING_NAMES
    hash: tuple[str, ...] = HASH_NAMES
    cipher: tuple[str, ...] = CIPHER_NAMES
    sealing: tuple[str, ...] = SEALING_NAMES
    shares: tuple[str, ...] | None = None
    limits: dict[str, int] = field(default_factory=dict)
    network_key: bytes | None = field(default=None, repr=False)
    encrypted: bool = True
    plaintext: bool = False
    node: dict[str, Any] = field(default_factory=lambda: {"software": "reference"})
    resume_ms: int = 0
    statements: tuple[Any, ...] = ()  # cell 85, as it is

    def names(self, parameter: str) -> list[str]:
        """The names to offer or accept; `signing` only those that one holds a key for."""
        held = {key.algorithm for key in self.identity.keys}
        listed: tuple[str, ...] = getattr(self, parameter)
        return [name for name in listed if parameter != "signing" or name in held]


@dataclass(frozen=True)
class Agreement:
    """What Hello and Reply settle; `suite` is None in plaintext."""

    suite: Suite | None
    limits: dict[str, int]
    remote_role: str
    resume_ms: int = 0


@dataclass(frozen=True)
class Retry:
    """The responder asks for a share of this kex."""

    kex: str


def network_mac(
    network_key: bytes, cells: dict[int, Any], label: bytes = b"parley1 hello"
) -> bytes:
    """Cell 12 for a map of cells, noise included; the encoding is unique, so it is 'as sent'."""
    others = {key: value for key, value in cells.items() if key != CELLS["mac"]}
    encoded = cbor.encode_payload(others)
    return hmac.new(network_key, label + encoded, "sha256").digest()


def common_cells(config: Config, random: bytes) -> dict[int, Any]:
    """Version, random, role and limits, all spelled out."""
    stated = {name: config.limits.get(name, LIMITS[name][0]) for name in LIMITS}
    cells: dict[str, Any] = {"version": VERSION, "random": random, "role": config.role, **stated}
    if config.resume_ms:
        cells["resume_ms"] = config.resume_ms
    return {CELLS[name]: value for name, value in cells.items()}


def hello_event(config: Config, random: bytes, offers: Iterable[Offer]) -> bytes:
    """The raw Hello event; in plaintext (`config.encrypted` false) `offers` goes unused."""
    cells = common_cells(config, random)
    if config.encrypted:
        cells[CELLS["offer"]] = {n: config.names(name) for name, n in PARAMETERS.items()}
        cells[CELLS["shares"]] = {offer.kex: offer.share for offer in offers}
    else:
        cells[CELLS["plaintext"]] = True
    if config.network_key is not None:
        cells[CELLS["mac"]] = network_mac(config.network_key, cells)
    return Event(0, 0, *TYPES["Hello"], cbor.encode_payload(cells)).raw


def retry_event(kex: str) -> bytes:
    """The raw Retry event."""
    return Event(0, 0, *TYPES["Retry"], cells_payload(suite={1: kex})).raw


def reply_event(config: Config, random: bytes, suite: Suite | None, share: bytes) -> bytes:
    """The raw Reply event; `suite` None for the plaintext kind."""
    cells = common_cells(config, random)
    if suite is None:
        cells[CELLS["plaintext"]] = True
    else:
        cells[CELLS["suite"]] = {n: getattr(suite, name) for name, n in PARAMETERS.items()}
        cells[CELLS["shares"]] = {suite.kex: share}
    return Event(0, 0, *TYPES["Reply"], cbor.encode_payload(cells)).raw


def reject_event(code: str, text: str) -> bytes:
    """The raw Reject event."""
    return Event(0, 0, *TYPES["Reject"], cells_payload(code=wire.CODES[code], text=text)).raw


def sentence(code: str, why: str = "") -> str:
    """Return the text of a Reject: fixed for its code, except for a parameter's name or the
    version.
    """
    if code == "no-common-algorithm":
        return f"{code}: {why}"
    return f"{code}: {VERSION}" if code == "unsupported-version" else code


def handshake_cells(
    event: bytes, keep_noise: bool = False
) -> tuple[tuple[int, int], dict[int, Any]]:
    """Type and cells of a raw handshake event; raises Violation."""
    if len(event) > HANDSHAKE_LIMIT:
        raise Violation("frame-too-large")
    parsed = wire.parse_raw(event)
    if parsed.stream or parsed.async_id:
        raise Violation("protocol-error", "handshake events have stream 0 and async id 0")
    try:
        cells = cbor.decode_payload(
            parsed.payload, max_items=cbor.HANDSHAKE_ITEMS, keep_noise=keep_noise
        )
        return parsed.type, wire.named_types(cells)
    except cbor.LbmError as error:
        raise Violation("protocol-error", f"malformed: {error.rule}") from error


def check_network_key(config: Config, event: bytes) -> None:
    """Raises Violation for a Hello that a node with a network key answers with silence."""
    if config.network_key is None:
        return
    kind, cells = handshake_cells(event, keep_noise=True)
    mac = cells.get(CELLS["mac"], b"")
    label = NETWORK_LABELS.get(kind)
    if label is None or not hmac.compare_digest(network_mac(config.network_key, cells, label), mac):
        raise Violation("protocol-error", "no right network mac")


def respond(config: Config, event: bytes, first: bytes | None = None) -> Agreement | Retry:
    """What a responder makes of a Hello (`first`: the one before a Retry); raises Violation."""
    if first is None:
        _check_version(event)
    kind, cells = handshake_cells(event)
    if kind != TYPES["Hello"]:
        raise Violation("protocol-error", "not a Hello")
    limits = _read_shared(config, cells)
    if cells.get(CELLS["plaintext"], False):
        if not config.plaintext:
            raise Violation("plaintext-refused")
        if CELLS["offer"] in cells or CELLS["shares"] in cells:
            raise Violation("protocol-error", "a plaintext Hello with an offer")
        return Agreement(None, limits, cells[CELLS["role"]])
    if not config.encrypted:
        raise Violation("protocol-error", "an encrypted Hello where only plaintext is spoken")
    shares = _shares(cells)
    offered = _offer(cells)
    if first is not None:
        _check_second(cells, handshake_cells(first)[1], config)
    chosen: dict[str, str] = {}
    for name in PARAMETERS:
        common = [own for own in config.names(name) if own in offered[name]]
        if not common:
            raise Violation("no-common-algorithm", name)
        chosen[name] = common[0]
        if name == "kex":
            chosen[name] = next((own for own in common if own in shares), common[0])
    if chosen["kex"] not in shares:
        return Retry(chosen["kex"])
    return Agreement(Suite(**chosen), limits, cells[CELLS["role"]], agreed_resume(config, cells))


def _check_version(event: bytes) -> None:
    """Raise Violation for a Hello of another version, whose other cells may be anything."""
    parsed = wire.parse_raw(event)
    if parsed.type != TYPES["Hello"]:
        return
    try:
        cells = cbor.decode_payload(parsed.payload, max_items=cbor.HANDSHAKE_ITEMS)
    except cbor.LbmError:
        return  # which is malformed, whatever its version
    version = cells.get(CELLS["version"], VERSION)
    if type(version) is int and version >= 0 and version != VERSION:
        raise Violation("unsupported-version")


def _check_second(second: dict[int, Any], first: dict[int, Any], config: Config) -> None:
    free = {CELLS["noise"], CELLS["shares"], CELLS["mac"]}
    kept = {key: value for key, value in second.items() if key not in free}
    if kept != {key: value for key, value in first.items() if key not in free}:
        raise Violation("protocol-error", "the second Hello differs")
    asked = next(own for own in config.names("kex") if own in _offer(first)["kex"])
    if list(_shares(second)) != [asked]:
        raise Violation("protocol-error", "the second Hello has another share than asked for")


def accept(
    config: Config, offers: dict[str, Offer], event: bytes, retried: bool
) -> tuple[Agreement, bytes] | Retry:
    """What an initiator makes of the answer: (agreement, share), Retry or Violation.

    A Reject raises the Violation of its code with the why 'rejected'.
    """
    kind, cells = handshake_cells(event)
    if kind == TYPES["Reject"]:
        raise Violation(wire.NAMES.get(cells.get(CELLS["code"], 2), "protocol-error"), "rejected")
    if kind == TYPES["Retry"]:
        name = cells.get(CELLS["suite"], {}).get(1)
        allowed = config.encrypted and not retried and name in config.names("kex")
        if not allowed or name in offers:
            raise Violation("protocol-error", "this Retry is refused")
        return Retry(name)
    if kind != TYPES["Reply"]:
        raise Violation("protocol-error", "neither Reply, Retry nor Reject")
    limits = _read_shared(config, cells)
    if cells.get(CELLS["plaintext"], False) == config.encrypted:
        raise Violation("protocol-error", "a Reply of the other kind")
    role = cells[CELLS["role"]]
    if not config.encrypted:
        return Agreement(None, limits, role), b""
    suite = cells.get(CELLS["suite"], {})
    for name, number in PARAMETERS.items():
        if suite.get(number) not in config.names(name):
            raise Violation("protocol-error", f"the Reply chose a {name} not offered")
    shares = _shares(cells)
    if suite[1] not in offers or list(shares) != [suite[1]]:
        raise Violation("protocol-error", "a kex without its share")
    chosen = Suite(**{name: suite[number] for name, number in PARAMETERS.items()})
    return Agreement(chosen, limits, role, agreed_resume(config, cells)), shares[chosen.kex]


def _read_shared(config: Config, cells: dict[int, Any]) -> dict[str, int]:
    """Checks version, random and role; the agreed limits."""
    version = cells.get(CELLS["version"])
    if version is None:
        raise Violation("protocol-error", "no version")
    if version != VERSION:
        raise Violation("unsupported-version")
    if len(cells.get(CELLS["random"], b"")) != 32:
        raise Violation("protocol-error", "random has 32 bytes")
    if cells.get(CELLS["role"]) not in ROLES:
        raise Violation("protocol-error", "role")
    return {
        name: min(
            effective_limit(name, cells.get(CELLS[name])),
            effective_limit(name, config.limits.get(name)),
        )
        for name in LIMITS
    }


def agreed_resume(config: Config, cells: dict[int, Any]) -> int:
    """M of section 17, in milliseconds, from what the other side states."""
    stated: int = cells.get(CELLS["resume_ms"], 0)
    return min(stated, config.resume_ms, LONGEST_RESUME)


def effective_limit(name: str, stated: int | None) -> int:
    """What a stated limit counts as; raises Violation where it is too small."""
    default, smallest, greatest = LIMITS[name]
    if stated is None:
        return default
    if stated < smallest:
        raise Violation("protocol-error", f"{name} is too small")
    return min(stated, greatest)


def _shares(cells: dict[int, Any]) -> dict[str, bytes]:
    shares: dict[Any, Any] = cells.get(CELLS["shares"], {})
    if not all(isinstance(k, str) and isinstance(v, bytes) for k, v in shares.items()):
        raise Violation("protocol-error", "shares")
    return shares


def _offer(cells: dict[int, Any]) -> dict[str, list[str]]:
    offer = cells.get(CELLS["offer"])
    if offer is None:
        raise Violation("protocol-error", "no offer")
    lists: dict[str, Any] = {name: offer.get(n, []) for name, n in PARAMETERS.items()}
    for names in lists.values():
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise Violation("protocol-error", "an offer is an array of names")
    return lists
