"""Key statements (section 22): a succession names the next ID of a node, a revocation ends its ID.

`Statement.parse` checks the form. `Statement.verify` checks the rest, the signatures last, because
they cost more than all other checks together. Both need only the bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from time import time_ns
from typing import Any, Final, Literal

from parley._crypto.errors import IdentityError, SignatureError, StatementError
from parley._crypto.identity import (
    NODE_ID_SIZE,
    Identity,
    NodeId,
    PrimaryKey,
    RecoveryKey,
    check_recovery_key,
    make_commitment,
    require_strength,
)
from parley._crypto.registry import SIGNING
from parley._crypto.signing import SigningKey
from parley._lbm import keys
from parley._lbm.codec import Encodable, decode, encode
from parley._lbm.errors import LbmDecodeError
from parley._lbm.fields import read_array, read_bytes, read_text, read_uint
from parley._lbm.limits import HANDSHAKE_LIMITS

MAX_MADE_MS: Final = 2**48 - 1

StatementKind = Literal["succession", "revocation"]
SUCCESSION: Final = "succession"
REVOCATION: Final = "revocation"
_KINDS: Final[dict[str, StatementKind]] = {SUCCESSION: SUCCESSION, REVOCATION: REVOCATION}

_STATEMENT: Final = b"parley1 key statement"
_CONSENT: Final = b"parley1 successor consent"

_OUTER: Final = frozenset({keys.CONTENT, keys.SIGNING, keys.SIGNATURE})
_INNER: Final = frozenset({keys.IDENTITY_KEYS, keys.KIND, keys.ORIGIN, keys.MADE_MS})


@dataclass(frozen=True, slots=True)
class Statement:
    """A parsed key statement, which is unverified until `verify` returns.

    `encoded` is the statement as sent, at most 16,384 bytes. `origin` is the ID that it ends, and
    `successor` the next ID (None for a revocation). `signer` is the algorithm and public key that
    should have signed it: the recovery key if `by_recovery`, otherwise the primary key of the
    origin. `made_ms` is the signer's time in ms since 1970, for display only. All valid statements
    with the same `slot`, of 32 bytes, mean the same.

    Example:

        from parley import Identity, Statement, create_succession

        old, recovery = Identity.create_recoverable()
        new, _ = Identity.create_recoverable()
        statement = Statement.parse(create_succession(recovery, new).encoded)
        statement.verify()
        assert (statement.origin, statement.successor) == (old.node_id, new.node_id)
    """

    encoded: bytes = field(repr=False)
    kind: StatementKind
    origin: NodeId
    successor: NodeId | None
    made_ms: int
    by_recovery: bool
    signer: tuple[str, bytes] = field(repr=False)
    _content: bytes = field(repr=False)
    _signing: str = field(repr=False)
    _signature: bytes = field(repr=False)
    _consent: bytes | None = field(repr=False)
    _origin_key: PrimaryKey = field(repr=False)
    _successor_key: PrimaryKey | None = field(repr=False)

    @classmethod
    def parse(cls, encoded: bytes) -> "Statement":
        """Parse the bytes of a statement and check its form.

        Raises:
            StatementError: it is `malformed` or `unsupported`.
        """
        try:
            return cls._read(encoded)
        except (LbmDecodeError, IdentityError) as error:
            raise StatementError("malformed", str(error)) from error

    @classmethod
    def _read(cls, encoded: bytes) -> "Statement":
        outer = decode(encoded, HANDSHAKE_LIMITS, keep_noise=True)
        content = read_bytes(outer, keys.CONTENT)
        signing = read_text(outer, keys.SIGNING)
        signature = read_bytes(outer, keys.SIGNATURE)
        consent = read_bytes(outer, keys.CONSENT, default=None)
        _require_only(outer, _OUTER | {keys.CONSENT})
        cells = decode(content, HANDSHAKE_LIMITS, keep_noise=True)
        named_kind = read_text(cells, keys.KIND)
        kind = _KINDS.get(named_kind)
        # Other kinds have other cells, so this comes before the rest.
        if kind is None:
            raise StatementError("unsupported", f"unknown kind {ascii(named_kind)[:40]}")
        _require_only(cells, _INNER | {keys.SUCCESSOR, keys.SIGNER})
        origin = NodeId(read_bytes(cells, keys.ORIGIN, size=NODE_ID_SIZE))
        made_ms = read_uint(cells, keys.MADE_MS, maximum=MAX_MADE_MS)
        origin_key = PrimaryKey.parse(cells.get(keys.IDENTITY_KEYS))
        successor_key = None
        # A succession without a successor would not have a slot.
        if keys.SUCCESSOR in cells or kind == SUCCESSION:
            successor_key = PrimaryKey.parse(cells.get(keys.SUCCESSOR))
        signer = origin_key.algorithm, origin_key.public
        by_recovery = keys.SIGNER in cells
        if by_recovery:
            signer = _read_signer(read_array(cells, keys.SIGNER))
        for algorithm in (
            signing,
            origin_key.algorithm,
            signer[0],
            *([] if successor_key is None else [successor_key.algorithm]),
        ):
            if algorithm not in SIGNING:
                raise StatementError("unsupported", f"unknown algorithm {ascii(algorithm)[:40]}")
        return cls(
            encoded=encoded,
            kind=kind,
            origin=origin,
            successor=None if successor_key is None else successor_key.node_id,
            made_ms=made_ms,
            by_recovery=by_recovery,
            signer=signer,
            _content=content,
            _signing=signing,
            _signature=signature,
            _consent=consent,
            _origin_key=origin_key,
            _successor_key=successor_key,
        )

    @property
    def slot(self) -> bytes:
        """SHA-256 of the origin and, in a succession, the successor."""
        successor = self.successor if self.kind == SUCCESSION else None
        return sha256(self.origin + (successor or b"")).digest()

    def verify(self) -> None:
        """Check the statement in the order of section 22; stop at the first failure.

        Raises:
            StatementError: the reason is `identity`, `signer`, `successor`, `signature` or
                `consent`.
        """
        self._check_identity()
        self._check_signer()
        self._check_successor()
        algorithm, public = self.signer
        message = _message(_STATEMENT, algorithm, self._content)
        _verify("signature", algorithm, public, self._signature, message)
        if self._successor_key is not None:
            algorithm, public, _ = self._successor_key
            message = _message(_CONSENT, algorithm, self._content)
            _verify("consent", algorithm, public, self._consent or b"", message)

    def _check_identity(self) -> None:
        key = self._origin_key
        if not _has_right_size(key.algorithm, key.public):
            raise StatementError("identity", f"the {key.algorithm} key has a wrong size")
        if key.node_id != self.origin:
            raise StatementError("identity", f"the key does not belong to {self.origin}")

    def _check_signer(self) -> None:
        primary, (algorithm, public) = self._origin_key, self.signer
        if self._signing != algorithm:
            raise StatementError("signer", f"the signing key is not of {self._signing}")
        if not self.by_recovery:
            return
        if not _has_right_size(algorithm, public):
            raise StatementError("signer", f"the {algorithm} key has a wrong size")
        commitment = make_commitment(primary.algorithm, primary.public, algorithm, public)
        if primary.commitment != commitment:
            raise StatementError("signer", "the signing key is not the origin's recovery key")
        try:
            check_recovery_key(primary.algorithm, primary.public, algorithm, public)
        except IdentityError as error:
            raise StatementError("signer", str(error)) from error

    def _check_successor(self) -> None:
        key, primary = self._successor_key, self._origin_key
        if self.kind == REVOCATION:
            if key is not None or self._consent is not None:
                raise StatementError("successor", "a revocation has a successor or a consent")
            return
        if key is None or self._consent is None:
            raise StatementError("successor", "the consent of the successor is missing")
        if not _has_right_size(key.algorithm, key.public):
            raise StatementError("successor", f"the {key.algorithm} key has a wrong size")
        if key.public in (primary.public, self.signer[1]):
            raise StatementError("successor", "the successor has a key of the origin")
        try:
            require_strength(primary.algorithm, key.algorithm, "successor")
        except IdentityError as error:
            raise StatementError("successor", str(error)) from error
        if primary.commitment is not None:
            if not self.by_recovery:
                raise StatementError(
                    "successor", "the origin has a recovery key, and only that can name a successor"
                )
            if key.commitment is None:
                raise StatementError(
                    "successor", "the origin has a recovery key, but the successor has none"
                )


def parse_chain(encoded: Sequence[bytes], last: NodeId) -> list[Statement]:
    """Parse the successions that a node presents in its Proof, without verifying them.

    The successor of each must be the origin of the next one, and of the final one `last`, the node
    itself.

    Raises:
        StatementError: a statement is `malformed` or `unsupported`, or the chain is broken, which
            counts as `malformed`.
    """
    statements = [Statement.parse(one) for one in encoded]
    following = [*(one.origin for one in statements[1:]), last]
    for statement, node_id in zip(statements, following, strict=False):
        if statement.kind != SUCCESSION or statement.successor != node_id:
            raise StatementError(
                "malformed", f"the statement about {statement.origin} does not lead to {node_id}"
            )
    return statements


def create_succession(
    signer: RecoveryKey | Identity, successor: Identity, *, made_ms: int | None = None
) -> Statement:
    """Create the statement that `successor` takes the place of another identity.

    `signer` is the recovery key of that identity, or the identity itself if it has no recovery key.
    `made_ms` is the time in ms since 1970, by default now.

    Raises:
        StatementError: `signer` cannot name this successor.

    Example:

        from parley import Identity, create_succession

        old, recovery = Identity.create_recoverable()
        new, new_recovery = Identity.create_recoverable()
        statement = create_succession(recovery, new)
        assert statement.successor == new.node_id
    """
    return _create(SUCCESSION, signer, successor, made_ms)


def create_revocation(signer: RecoveryKey | Identity, *, made_ms: int | None = None) -> Statement:
    """Create the statement that ends an identity.

    `signer` is the identity or its recovery key. `made_ms` is the time in ms since 1970, by default
    now. Keep the statement secret until it is needed: whoever has it can end the identity.

    Raises:
        StatementError: `made_ms` is out of range.

    Example:

        from parley import Identity, create_revocation

        identity = Identity.create()
        assert create_revocation(identity).origin == identity.node_id
    """
    return _create(REVOCATION, signer, None, made_ms)


def _create(
    kind: StatementKind,
    signer: RecoveryKey | Identity,
    successor: Identity | None,
    made_ms: int | None,
) -> Statement:
    origin = signer.primary_key
    cells: dict[int, Encodable] = {
        keys.IDENTITY_KEYS: origin.cells(),
        keys.KIND: kind,
        keys.ORIGIN: origin.node_id,
        keys.MADE_MS: time_ns() // 1_000_000 if made_ms is None else made_ms,
    }
    if isinstance(signer, RecoveryKey):
        key = signer.key
        cells[keys.SIGNER] = [key.algorithm, key.public]
    else:
        key = signer.keys[0]
    if successor is not None:
        cells[keys.SUCCESSOR] = successor.primary_key.cells()
    content = encode(cells)
    outer: dict[int, Encodable] = {
        keys.CONTENT: content,
        keys.SIGNING: key.algorithm,
        keys.SIGNATURE: _sign(key, _STATEMENT, content),
    }
    if successor is not None:
        outer[keys.CONSENT] = _sign(successor.keys[0], _CONSENT, content)
    statement = Statement.parse(encode(outer))
    statement.verify()
    return statement


def _message(label: bytes, algorithm: str, content: bytes) -> bytes:
    name = algorithm.encode()
    return label + bytes((len(name),)) + name + content


def _sign(key: SigningKey, label: bytes, content: bytes) -> bytes:
    return key.sign(_message(label, key.algorithm, content))


def _verify(
    reason: Literal["signature", "consent"],
    algorithm: str,
    public: bytes,
    signature: bytes,
    message: bytes,
) -> None:
    try:
        SIGNING[algorithm].verifier(public).verify(signature, message)
    except SignatureError as error:
        raise StatementError(reason, f"the {reason} does not verify: {error}") from error


def _has_right_size(algorithm: str, public: bytes) -> bool:
    return len(public) == SIGNING[algorithm].public_size


def _require_only(cells: dict[int, Any], known: frozenset[int]) -> None:
    """Reject noise and unknown cells, so that no node can make a statement longer."""
    if not cells.keys() <= known:
        unknown = min(cells.keys() - known)
        raise StatementError("malformed", f"it has the unknown cell {unknown}")


def _read_signer(value: list[Any]) -> tuple[str, bytes]:
    match value:
        case [str(algorithm), bytes(public)]:
            return algorithm, public
    raise StatementError("malformed", "the signer is not an array of algorithm and public key")
