"""Key statements (section 22): their form, their checks, slots, and the files of keys and
statements.

Written from the document. The store is a list of statements; which ids are named is given.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import strptime
from typing import Any, Final, Protocol

from tests.reference import cbor
from tests.reference.identity import COMMITMENT_SIZE, commitment_of, node_id, read_origin
from tests.reference.primitives import (
    PUBLIC_SIZES,
    SIGNING_NAMES,
    CryptoFailure,
    SigningKey,
    check_public,
    digest,
    verify,
)
from tests.reference.wire import CELLS, HANDSHAKE_LIMIT, Violation

LARGEST: Final = 16_384
LATEST_MS: Final = 2**48 - 1
LARGEST_FILE: Final = 32_768
LONGEST_LINE: Final = 76
MOST_PRESENTED: Final = 4
MOST_PRESENTED_BYTES: Final = 8_192
MOST_ANSWERED_BYTES: Final = 65_536
MOST_STEPS: Final = 8
MOST_SUCCESSIONS: Final = 2
FIRST_LINE: Final = b"parley1 statement"
KEY_FILE: Final = b"parley1 key file\n\0"
RECOVERY_FILE: Final = b"parley1 recovery file\n\0"
STATEMENT_LABEL: Final = b"parley1 key statement"
CONSENT_LABEL: Final = b"parley1 successor consent"
Key = tuple[str, bytes]


class Invalid(Exception):
    """A refused statement; `reason` is a name of section 22."""

    def __init__(self, reason: str, why: str) -> None:
        super().__init__(f"{reason}: {why}")
        self.reason = reason
        self.why = why


class Signs(Protocol):
    """A key as SigningKey and RecordedKey are."""

    def sign(self, message: bytes) -> bytes:
        """A signature over `message`."""
        ...


def signed_message(label: bytes, algorithm: str, content: bytes) -> bytes:
    """What a signature or a consent is over."""
    name = algorithm.encode()
    return label + bytes([len(name)]) + name + content


@dataclass(frozen=True)
class ReadStatement:
    """A statement of the right form; `origin_key` and `successor_key` have the commitment last."""

    kind: str
    origin: bytes
    made_ms: int
    origin_key: tuple[str, bytes, bytes | None]
    successor_key: tuple[str, bytes, bytes | None] | None
    recovery_key: Key | None
    content: bytes
    signing: str
    signature: bytes
    consent: bytes | None

    @property
    def successor(self) -> bytes | None:
        """The node id of cell 81."""
        return None if self.successor_key is None else node_id(*self.successor_key)

    @property
    def slot(self) -> bytes:
        """22.24."""
        if self.kind == "revocation":
            return digest("sha256", self.origin)
        return digest("sha256", self.origin + (self.successor or b""))


def read(data: bytes) -> ReadStatement:
    """22.11 to 22.15; raises Invalid."""
    outer = _map_of(data, {"content": bytes, "signing": str, "signature": bytes})
    if CELLS["consent"] in outer:
        _typed(outer, {"consent": bytes})
    _no_others(outer, "content", "signing", "signature", "consent")
    content = outer[CELLS["content"]]
    cells = _map_of(content, {"kind": str})
    kind = cells[CELLS["kind"]]
    if kind not in ("succession", "revocation"):
        raise Invalid("unsupported", "another kind")
    _typed(cells, {"origin": bytes, "made_ms": int})
    _no_others(cells, "keys", "kind", "origin", "made_ms", "successor", "signer")
    origin, made_ms = cells[CELLS["origin"]], cells[CELLS["made_ms"]]
    if len(origin) != 32 or not 0 <= made_ms <= LATEST_MS:
        raise Invalid("malformed", "the range of origin or time")
    origin_key = _entries(cells, "keys")
    successor_key = None
    if kind == "succession" or CELLS["successor"] in cells:
        successor_key = _entries(cells, "successor")
    recovery_key: Key | None = None
    if CELLS["signer"] in cells:
        signer = cells[CELLS["signer"]]
        if not isinstance(signer, list) or [type(part) for part in signer] != [str, bytes]:
            raise Invalid("malformed", "the signer is [text, bytes]")
        recovery_key = signer[0], signer[1]
    signing = outer[CELLS["signing"]]
    names = {signing, origin_key[0]}
    names |= {key[0] for key in (successor_key, recovery_key) if key}
    if not names <= set(SIGNING_NAMES):
        raise Invalid("unsupported", "an unknown algorithm")
    return ReadStatement(
        kind,
        origin,
        made_ms,
        origin_key,
        successor_key,
        recovery_key,
        content,
        signing,
        outer[CELLS["signature"]],
        outer.get(CELLS["consent"]),
    )


def read_presented(cells: Mapping[int, Any]) -> tuple[bytes, ...]:
    """22.37: cell 85 of a Proof; raises Violation."""
    presented = cells.get(CELLS["statements"], [])
    if not isinstance(presented, list) or len(presented) > MOST_PRESENTED:
        raise Violation("authentication-failed", "at most four statements")
    if not all(isinstance(one, bytes) for one in presented):
        raise Violation("authentication-failed", "statements are byte strings")
    if sum(len(one) for one in presented) > MOST_PRESENTED_BYTES:
        raise Violation("authentication-failed", "too long statements")
    return tuple(presented)


def read_chain(presented: Iterable[bytes], peer: bytes) -> list[ReadStatement]:
    """22.41; raises Invalid."""
    chain = [read(one) for one in presented]
    for number, statement in enumerate(chain):
        after = chain[number + 1].origin if number + 1 < len(chain) else peer
        if statement.kind != "succession" or statement.successor != after:
            raise Invalid("malformed", "a broken chain")
    return chain


def store_chain(
    chain: Iterable[ReadStatement], stored: list[ReadStatement], named: Iterable[bytes]
) -> None:
    """22.42: add to `stored`; raises Invalid where a statement fails, after those before it."""
    known = frozenset(named)
    for statement in chain:
        same = [
            one for one in stored if one.origin == statement.origin and one.kind != "revocation"
        ]
        if not _on_record(statement.origin, stored, known):
            continue
        if statement.slot in {one.slot for one in stored} or len(same) >= MOST_SUCCESSIONS:
            continue
        check(statement)
        stored.append(statement)


def _on_record(node: bytes, stored: Iterable[ReadStatement], named: frozenset[bytes]) -> bool:
    """22.30, without choices of persons."""
    successors: dict[bytes, list[bytes]] = {}
    for one in stored:
        if one.successor is not None:
            successors.setdefault(one.origin, []).append(one.successor)
    reached = set(named)
    for _ in range(MOST_STEPS):
        reached |= {found[0] for at in reached if len(found := successors.get(at, [])) == 1}
    return node in reached


def present(
    stored: Sequence[bytes], own: bytes, cells: dict[int, Any], overhead: int
) -> list[bytes]:
    """22.38, 22.39: the statements for a Proof with these cells; `overhead` is the length of its
    event without the payload.
    """
    chain: list[bytes] = []
    node, passed = own, {own}
    while True:
        leading = [one for one in stored if read(one).successor == node]
        if not leading or read(leading[-1]).origin in passed:
            break
        chain.insert(0, leading[-1])
        node = read(leading[-1]).origin
        passed.add(node)
    while chain:
        payload = cbor.encode_payload({**cells, CELLS["statements"]: chain})
        fits = len(chain) <= MOST_PRESENTED and sum(map(len, chain)) <= MOST_PRESENTED_BYTES
        if fits and overhead + len(payload) <= HANDSHAKE_LIMIT:
            break
        del chain[0]
    return chain


def answer(stored: Iterable[bytes], asked: Iterable[bytes]) -> list[bytes]:
    """22.53: the statements about these IDs and their successors."""
    known = {data: read(data) for data in stored}
    about = set(asked)
    for _ in range(MOST_STEPS):
        about |= {one.successor for one in known.values() if one.origin in about and one.successor}
    left = {data: one for data, one in known.items() if one.origin in about}
    found: list[bytes] = []
    while left:
        named = {one.successor for one in left.values()}
        # In a circle, each ID is named.
        following = [data for data, one in left.items() if one.origin not in named] or [*left]
        found += following
        for data in following:
            del left[data]
    while sum(map(len, found)) > MOST_ANSWERED_BYTES:
        del found[-1]
    return found


def _map_of(data: bytes, required: Mapping[str, type]) -> dict[int, Any]:
    try:
        cells = cbor.decode_payload(
            data, max_bytes=LARGEST, max_items=cbor.HANDSHAKE_ITEMS, keep_noise=True
        )
    except cbor.LbmError as error:
        raise Invalid("malformed", f"not LBM: {error.rule}") from error
    _typed(cells, required)
    return cells


def _typed(cells: Mapping[int, Any], required: Mapping[str, type]) -> None:
    for name, kind in required.items():
        if type(cells.get(CELLS[name])) is not kind:
            raise Invalid("malformed", f"{name} is missing or of another type")


def _no_others(cells: Mapping[int, Any], *known: str) -> None:
    if not set(cells) <= {CELLS[name] for name in known}:
        raise Invalid("malformed", "another cell")


def _entries(cells: Mapping[int, Any], name: str) -> tuple[str, bytes, bytes | None]:
    try:
        return read_origin(cells.get(CELLS[name]))
    except CryptoFailure as failure:
        raise Invalid("malformed", f"{name}: {failure}") from failure


def check(statement: ReadStatement) -> None:
    """22.16 to 22.20; raises Invalid."""
    algorithm, primary, commitment = statement.origin_key
    if len(primary) != PUBLIC_SIZES[algorithm]:
        raise Invalid("identity", "the size of the primary key")
    if node_id(*statement.origin_key) != statement.origin:
        raise Invalid("identity", "the origin is not of this key")
    signer: Key = algorithm, primary
    if statement.recovery_key is not None:
        signer = statement.recovery_key
        _check_recovery_key(signer, (algorithm, primary), commitment)
    if statement.signing != signer[0]:
        raise Invalid("signer", "signed by another algorithm than the key's")
    _check_successor(statement, signer)
    _verify("signature", STATEMENT_LABEL, signer, statement.content, statement.signature)
    if statement.successor_key is not None:
        consenting = statement.successor_key[:2]
        consent = statement.consent or b""
        _verify("consent", CONSENT_LABEL, consenting, statement.content, consent)


def _check_recovery_key(recovery: Key, primary: Key, commitment: bytes | None) -> None:
    if commitment is None:
        raise Invalid("signer", "an origin without a recovery key")
    if len(recovery[1]) != PUBLIC_SIZES[recovery[0]]:
        raise Invalid("signer", "the size of the recovery key")
    if commitment_of(*primary, *recovery) != commitment:
        raise Invalid("signer", "another key than the commitment's")
    if recovery == primary:
        raise Invalid("signer", "the recovery key is the primary key")
    if primary[0] == "ml-dsa-65" != recovery[0]:
        raise Invalid("signer", "a recovery key weaker than the primary key")


def _check_successor(statement: ReadStatement, signer: Key) -> None:
    key = statement.successor_key
    if statement.kind == "revocation":
        if key is not None or statement.consent is not None:
            raise Invalid("successor", "a revocation has none")
        return
    if key is None or statement.consent is None:
        raise Invalid("successor", "no consent")
    if len(key[1]) != PUBLIC_SIZES[key[0]]:
        raise Invalid("successor", "the size of its primary key")
    if key[:2] in (statement.origin_key[:2], signer):
        raise Invalid("successor", "a key that is used already")
    if statement.origin_key[0] == "ml-dsa-65" != key[0]:
        raise Invalid("successor", "a weaker key than the origin's")
    if statement.origin_key[2] is not None:
        if statement.recovery_key is None:
            raise Invalid("successor", "not named by the recovery key")
        if key[2] is None:
            raise Invalid("successor", "without a recovery key")


def _verify(reason: str, label: bytes, key: Key, content: bytes, signature: bytes) -> None:
    algorithm, public = key
    try:
        check_public(algorithm, public)
        verify(algorithm, public, signed_message(label, algorithm, content), signature)
    except CryptoFailure as failure:
        raise Invalid(reason, str(failure)) from failure


def make(
    content: dict[int, Any],
    signing: SigningKey,
    signature_of: Signs,
    consent: tuple[SigningKey, Signs] | None,
) -> bytes:
    """The statement of a content; keys are paired with what signs for them."""
    encoded = cbor.encode_payload(content)
    cells = {
        CELLS["content"]: encoded,
        CELLS["signing"]: signing.algorithm,
        CELLS["signature"]: signature_of.sign(
            signed_message(STATEMENT_LABEL, signing.algorithm, encoded)
        ),
    }
    if consent is not None:
        key, signs = consent
        message = signed_message(CONSENT_LABEL, key.algorithm, encoded)
        cells[CELLS["consent"]] = signs.sign(message)
    return cbor.encode_payload(cells)


def statement_text(statement: bytes) -> bytes:
    """The content of a statement file."""
    text = base64.b64encode(statement)
    lines = [text[at : at + LONGEST_LINE] for at in range(0, len(text), LONGEST_LINE)]
    return b"".join(line + b"\n" for line in [FIRST_LINE, *lines])


def read_file(data: bytes) -> bytes:
    """The statement in a file, not yet read; raises Invalid."""
    if len(data) > LARGEST_FILE:
        raise Invalid("malformed", "above 32,768 bytes")
    lines = data.split(b"\n")
    # All but the last line end in LF; without an end, the last has no CR to take away either.
    lines = [line.removesuffix(b"\r") for line in lines[:-1]] + lines[-1:]
    if lines[-1] == b"":
        lines.pop()
    if not lines or lines[0] != FIRST_LINE:
        raise Invalid("malformed", "the first line")
    if any(not 1 <= len(line) <= LONGEST_LINE for line in lines[1:]):
        raise Invalid("malformed", "the length of a line")
    text = b"".join(lines[1:])
    try:
        statement = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise Invalid("malformed", "base64") from error
    if base64.b64encode(statement) != text:
        raise Invalid("malformed", "base64 that is not canonical")
    return statement


def read_store(data: bytes) -> tuple[list[bytes], dict[bytes, bytes | None]]:
    """The statements in the file of a node, the first of each slot, and the decisions in it, the
    last about each ID; raises Invalid.

    Only with the form of base64 and of times that a node writes.
    """
    stored: dict[bytes, bytes] = {}
    decisions: dict[bytes, bytes | None] = {}
    lines = data.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    for line in lines:
        match line.split(b" "):
            case [b"statement", text, time]:
                statement = _unwrapped(base64.b64decode, text)
                if base64.b64encode(statement) != text:
                    raise Invalid("malformed", "base64 that is not canonical")
                stored.setdefault(read(statement).slot, statement)
            case [b"decision", origin, successor, time]:
                decisions[_id_of(origin)] = None if successor == b"none" else _id_of(successor)
            case _:
                raise Invalid("malformed", "a line")
        if re.fullmatch(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", time) is None:
            raise Invalid("malformed", "a time")
        try:
            strptime(time.decode(), "%Y-%m-%dT%H:%M:%SZ")
        except ValueError as error:
            raise Invalid("malformed", "a time") from error
    return list(stored.values()), decisions


def _id_of(text: bytes) -> bytes:
    """The node id of 52 characters of base32 in lower case."""
    node = _unwrapped(base64.b32decode, text.upper() + b"====")
    if len(node) != 32 or base64.b32encode(node)[:52].lower() != text:
        raise Invalid("malformed", "a node id")
    return node


def _unwrapped(decode: Callable[[bytes], bytes], text: bytes) -> bytes:
    try:
        return decode(text)
    except binascii.Error as error:
        raise Invalid("malformed", "base64 or base32") from error


def key_file_id(data: bytes) -> bytes:
    """The node id of a key file without passphrase (22.9); raises CryptoFailure."""
    cells = _payload_of(data, KEY_FILE)
    keys = cells.get(256)
    if not set(cells) <= {256, 257} or not isinstance(keys, list) or not keys:
        raise CryptoFailure("a list of keys, and perhaps a commitment")
    pairs = [_pair(key) for key in keys]
    if len({algorithm for algorithm, _ in pairs}) != len(pairs):
        raise CryptoFailure("two keys of one algorithm")
    if 257 not in cells:
        return node_id(*pairs[0])
    commitment = cells[257]
    if not isinstance(commitment, bytes) or len(commitment) != COMMITMENT_SIZE:
        raise CryptoFailure("a commitment has 32 bytes")
    return node_id(*pairs[0], commitment)


def recovery_file_id(data: bytes) -> bytes:
    """The node id that a recovery file without passphrase recovers (22.10); raises
    CryptoFailure.
    """
    cells = _payload_of(data, RECOVERY_FILE)
    if set(cells) != {256, 257}:
        raise CryptoFailure("a recovery key and a primary key")
    (keys, primaries) = cells[256], cells[257]
    if not isinstance(keys, list) or not isinstance(primaries, list):
        raise CryptoFailure("two arrays")
    if len(keys) != 1 or len(primaries) != 1:
        raise CryptoFailure("one entry each")
    recovery, primary = _pair(keys[0]), primaries[0]
    if not isinstance(primary, list) or [type(part) for part in primary] != [str, bytes]:
        raise CryptoFailure("a primary key is [text, bytes]")
    algorithm, public = primary
    if algorithm not in SIGNING_NAMES:
        raise CryptoFailure("an unknown algorithm")
    check_public(algorithm, public)
    if recovery == (algorithm, public) or algorithm == "ml-dsa-65" != recovery[0]:
        raise CryptoFailure("22.8")
    return node_id(algorithm, public, commitment_of(algorithm, public, *recovery))


def _payload_of(data: bytes, start: bytes) -> dict[int, Any]:
    if not data.startswith(start):
        raise CryptoFailure("not such a file, or under a passphrase")
    try:
        return cbor.decode_payload(data.removeprefix(start), keep_noise=True)
    except cbor.LbmError as error:
        raise CryptoFailure(error.rule) from error


def _pair(entry: Any) -> Key:
    if not isinstance(entry, list) or [type(part) for part in entry] != [str, bytes, bytes]:
        raise CryptoFailure("a key is [algorithm, private, public]")
    algorithm, private, public = entry
    if algorithm not in SIGNING_NAMES:
        raise CryptoFailure("an unknown algorithm")
    try:
        if len(private) == 32 and SigningKey(algorithm, private).public == public:
            return algorithm, public
    except ValueError as error:  # a scalar out of range
        raise CryptoFailure("no private key") from error
    raise CryptoFailure("the public key is of another private key")
