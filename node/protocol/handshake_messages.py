"""Encodes and decodes the events of the handshake (docs/protocol.md section 5).

Decoding raises LbmDecodeError, which becomes `protocol-error`.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from parley._crypto.key_schedule import network_mac
from parley._crypto.registry import PARAMETERS, Suite
from parley._lbm import keys
from parley._lbm.codec import BYTES_HEADS, MAP_HEADS, UINT_HEADS, Encodable, Value, decode, encode
from parley._lbm.errors import LbmDecodeError
from parley._lbm.fields import (
    read_bool,
    read_bytes,
    read_map,
    read_text,
    read_text_map,
    read_uint,
)
from parley._lbm.limits import HANDSHAKE_LIMITS
from parley._node.protocol.codes import LAST_CODE, ROLES, SENTENCES, VERSION, CloseCode
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.errors import RemoteProtocolError
from parley._node.protocol.limits import NEGOTIATED, RESUME_MS, Limits

RANDOM_SIZE: Final = 32
# The keys of the inner maps of offer and suite.
PARAMETER_KEYS: Final = dict(enumerate(PARAMETERS, start=1))
# The cells in which a second Hello, after Retry, may differ from the first.
MAY_CHANGE: Final = (keys.NOISE, keys.SHARES, keys.NETWORK_MAC)


class Hello(NamedTuple):
    """A received Hello. `offer` and `shares` are empty in a plaintext Hello."""

    role: str
    limits: Limits
    plaintext: bool
    offer: Mapping[str, tuple[str, ...]]
    shares: Mapping[str, bytes]
    resume_ms: int = 0


class ReplyRead(NamedTuple):
    """A received Reply. `suite` and `share` are None on an unencrypted connection."""

    role: str
    limits: Limits
    suite: Suite | None
    share: bytes | None
    resume_ms: int = 0


def hello_payload(config: CoreConfig, random: bytes, shares: Mapping[str, bytes]) -> bytes:
    """Encode a Hello, with a network MAC if there is a network key. Without shares it is a
    plaintext Hello.
    """
    if not shares:
        return _plaintext_payload(config, random)
    offer = _offer_cell(tuple(map(config.names, PARAMETERS)))
    payload = _payload(config, random, offer, shares)
    if config.network_key is None:
        return payload
    # Keys are in order, so only the cells of resumption follow the MAC.
    mac = _pairs({keys.NETWORK_MAC: network_mac(config.network_key, payload)})
    resume = _resume_cell(config.resume_ms)
    head = MAP_HEADS[_ENCRYPTED_CELLS + 1 + bool(resume)]
    return head + payload[1 : len(payload) - len(resume)] + mac + resume


def reply_payload(
    config: CoreConfig, random: bytes, suite: Suite | None, share: bytes | None
) -> bytes:
    if suite is None or share is None:
        return _plaintext_payload(config, random)
    return _payload(config, random, _suite_cell(suite), {suite.kex: share})


def _plaintext_payload(config: CoreConfig, random: bytes) -> bytes:
    cells: dict[int, Value] = {keys.VERSION: VERSION, keys.RANDOM: random, keys.ROLE: config.role}
    return encode({**cells, **config.limits.cells(), keys.PLAINTEXT: True})


# Version, random, offer or suite, shares, role and limits; cells of resumption may follow.
_ENCRYPTED_CELLS: Final = 5 + len(NEGOTIATED)
_BEGINNING: Final = b"".join(
    (
        UINT_HEADS[keys.VERSION],
        UINT_HEADS[VERSION],
        UINT_HEADS[keys.RANDOM],
        BYTES_HEADS[RANDOM_SIZE],
    )
)


def _payload(
    config: CoreConfig, random: bytes, offer_or_suite: bytes, shares: Mapping[str, bytes]
) -> bytes:
    """Join a Hello or Reply from encoded cells. Only random and shares differ between
    handshakes.
    """
    stated = _stated_cells(config.role, config.limits)
    shares_cell = _pairs({keys.SHARES: shares})
    resume = _resume_cell(config.resume_ms)
    head = MAP_HEADS[_ENCRYPTED_CELLS + bool(resume)]
    return b"".join((head, _BEGINNING, random, offer_or_suite, shares_cell, stated, resume))


@lru_cache(maxsize=64)
def _offer_cell(names: tuple[tuple[str, ...], ...]) -> bytes:
    return _pairs({keys.OFFER: dict(zip(PARAMETER_KEYS, names, strict=True))})


@lru_cache(maxsize=128)
def _suite_cell(suite: Suite) -> bytes:
    names = suite.names()
    return _pairs({keys.SUITE: {n: names[name] for n, name in PARAMETER_KEYS.items()}})


@lru_cache(maxsize=64)
def _stated_cells(role: str, limits: Limits) -> bytes:
    return _pairs({keys.ROLE: role, **limits.cells()})


@lru_cache(maxsize=64)
def _resume_cell(resume_ms: int) -> bytes:
    return _pairs({keys.RESUME_MS: resume_ms}) if resume_ms else b""


def _pairs(cells: Mapping[int, Encodable]) -> bytes:
    """Encode cells without the map's head, which is one byte."""
    return encode(cells)[1:]


def retry_payload(kex: str) -> bytes:
    return encode({keys.SUITE: {1: kex}})


def reject_payload(code: int, parameter: str = "") -> bytes:
    text = SENTENCES[code]
    if code == CloseCode.NO_COMMON_ALGORITHM:
        text = f"{text}: {parameter}"
    elif code == CloseCode.UNSUPPORTED_VERSION:
        text = f"{text}: {VERSION}"
    return encode({keys.CODE: code, keys.TEXT: text})


def decode_handshake(payload: bytes) -> dict[int, Value]:
    """Return the cells of a handshake payload, including padding."""
    return decode(payload, HANDSHAKE_LIMITS, keep_noise=True)


def check_version(cells: Mapping[int, Value]) -> None:
    version = read_uint(cells, keys.VERSION)
    if version != VERSION:
        reason = f"unsupported protocol version {version}: this node supports {VERSION}"
        raise RemoteProtocolError(CloseCode.UNSUPPORTED_VERSION, reason)


def parse_hello(cells: Mapping[int, Value]) -> Hello:
    """Parse the cells of a Hello whose version was checked."""
    role, limits, plaintext = _read_shared(cells)
    if plaintext:
        return Hello(role, limits, True, {}, {})
    offered = read_map(cells, keys.OFFER)
    offer = {name: _names(offered.get(number)) for number, name in PARAMETER_KEYS.items()}
    # An offer without shares is valid: the answer is Retry.
    shares = _shares(cells) if cells.get(keys.SHARES, {}) != {} else {}
    return Hello(role, limits, False, offer, shares, _read_resume_ms(cells))


def parse_reply(cells: Mapping[int, Value]) -> ReplyRead:
    """Parse the cells of a Reply whose version was checked.

    Raises:
        LbmDecodeError: the Reply is malformed.
        UnknownAlgorithmError: it names an unknown algorithm.
    """
    role, limits, plaintext = _read_shared(cells)
    if plaintext:
        return ReplyRead(role, limits, None, None)
    suite = _suite(read_map(cells, keys.SUITE))
    shares = _shares(cells)
    if list(shares) != [suite.kex]:
        given = ascii(list(shares))[:80]
        raise LbmDecodeError(f"a Reply with shares for {given}, which chose kex {suite.kex}")
    return ReplyRead(role, limits, suite, shares[suite.kex], _read_resume_ms(cells))


def parse_retry(cells: Mapping[int, Value]) -> str:
    """Return the kex that a Retry requests."""
    asked = read_map(cells, keys.SUITE)
    kex = asked.get(1)
    if type(kex) is not str or len(asked) != 1:
        raise LbmDecodeError(f"a Retry names one kex, not {ascii(asked)[:80]}")
    return kex


def parse_code_and_text(cells: Mapping[int, Value]) -> tuple[int, str]:
    """Return the code and text of Reject, Reset or Close; an absent text is empty."""
    code = read_uint(cells, keys.CODE, maximum=LAST_CODE)
    return code, read_text(cells, keys.TEXT, default="")


def _read_shared(cells: Mapping[int, Value]) -> tuple[str, Limits, bool]:
    read_bytes(cells, keys.RANDOM, size=RANDOM_SIZE)
    role = read_text(cells, keys.ROLE)
    if role not in ROLES:
        raise LbmDecodeError(f"an unknown role: {ascii(role)[:80]}")
    plaintext = read_bool(cells, keys.PLAINTEXT, default=False)
    if plaintext:
        for key in (keys.OFFER, keys.SUITE, keys.SHARES):
            if key in cells:
                reason = f"an unencrypted handshake with cell {key}, which requires encryption"
                raise LbmDecodeError(reason)
    return role, Limits.from_cells(cells), plaintext


def _read_resume_ms(cells: Mapping[int, Value]) -> int:
    return min(read_uint(cells, keys.RESUME_MS, default=0), RESUME_MS)


def _names(value: Value) -> tuple[str, ...]:
    if type(value) is not list or not {str}.issuperset(map(type, value)):
        raise LbmDecodeError(f"an offer has an array of names, not {ascii(value)[:80]}")
    return tuple(value)


def _shares(cells: Mapping[int, Value]) -> dict[str, bytes]:
    shares = read_text_map(cells, keys.SHARES)
    result = {name: share for name, share in shares.items() if type(share) is bytes}
    if not result or len(result) != len(shares):
        reason = (
            f"{len(shares)} shares, {len(result)} of them byte strings: all must be, at least one"
        )
        raise LbmDecodeError(reason)
    return result


def _suite(chosen: Mapping[int, Value]) -> Suite:
    names = {}
    for number, parameter in PARAMETER_KEYS.items():
        name = chosen.get(number)
        if type(name) is not str:
            raise LbmDecodeError(f"a suite without {parameter}")
        names[parameter] = name
    return Suite.of(names)
