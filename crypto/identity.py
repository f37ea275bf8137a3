"""Identities: one to eight signing keys, the first of which determines the node ID (section 4).

The node ID of an identity of the second form also covers a recovery key, by a commitment
(section 22). A `PublicIdentity` is always valid: all its bindings were verified, and all keys of
known algorithms were checked.
"""

import base64
import binascii
import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import Final, NamedTuple
from uuid import UUID

from parley._crypto.errors import IdentityError, SignatureError
from parley._crypto.registry import SIGNING, require_name
from parley._crypto.signing import SigningKey, Verifier

NODE_ID_SIZE = 32
COMMITMENT_SIZE: Final = 32
MAX_KEYS = 8  # with the commitment, which counts as one

_TEXT_SIZE = 52
_SHORT_SIZE = 8
_SHOWN = 40  # characters of a peer's algorithm name in an error
_MAX_NAME_SIZE = 255  # because its length is encoded in one byte

# The name of the entry with the commitment. It is not an algorithm.
_RECOVERY: Final = "recovery"
# Keys of this algorithm can only be recovered and succeeded by keys of the same algorithm.
_POST_QUANTUM: Final = "ml-dsa-65"

# [algorithm, public key, signature of the primary key over both, or None for the primary key], or
# ["recovery", commitment, None]
Entry = tuple[str, bytes, bytes | None]


class NodeId(bytes):
    """The 32 bytes that identify a node, written as 52 characters of lower-case base32.

    It is the SHA-256 hash of the primary key, its algorithm, and the commitment to the recovery
    key if there is one (docs/protocol.md sections 4 and 22).

    Example:

        from parley import Identity, NodeId

        node_id = Identity.create().node_id
        assert NodeId.parse(node_id.text) == node_id
        print(node_id.short)
    """

    __slots__ = ()

    def __new__(cls, value: bytes) -> "NodeId":
        """Create a node ID from its 32 bytes.

        Raises:
            IdentityError: wrong size.
        """
        if len(value) != NODE_ID_SIZE:
            raise IdentityError(f"invalid node ID of {len(value)} bytes: expected {NODE_ID_SIZE}")
        return super().__new__(cls, value)

    @classmethod
    def of_key(cls, algorithm: str, public: bytes, commitment: bytes | None = None) -> "NodeId":
        """Return the ID of the node with this primary key and commitment."""
        key = _named(algorithm) + public
        if commitment is None:
            return cls(hashlib.sha256(b"parley1 node id" + key).digest())
        return cls(hashlib.sha256(b"parley1 recoverable id" + key + commitment).digest())

    @classmethod
    def parse(cls, text: str) -> "NodeId":
        """Parse a node ID from its `text`. Other spellings, such as upper case, are rejected.

        Raises:
            IdentityError: `text` is not the text of a node ID.
        """
        try:
            # 52 characters contain 260 bits; b32decode requires padding to 56 characters.
            node_id = cls(base64.b32decode(text.upper() + "===="))
        except (binascii.Error, ValueError, AttributeError) as error:
            raise IdentityError(
                f"invalid node ID {ascii(text)[:80]}: expected {_TEXT_SIZE} characters of base32"
            ) from error
        if node_id.text != text:  # upper case, or the four spare bits are not zero
            raise IdentityError(f"invalid node ID {text!a}: the correct spelling is {node_id.text}")
        return node_id

    @property
    def text(self) -> str:
        """The node ID as 52 characters, as shown to users and stored in settings."""
        return base64.b32encode(self).decode("ascii").rstrip("=").lower()

    @property
    def short(self) -> str:
        """The first 8 characters, for logs and screens. Don't use them to identify a node."""
        return self.text[:_SHORT_SIZE]

    @property
    def uuid(self) -> UUID:
        """The ID of this node in the relay dialect: a version 8 UUID (RFC 9562) of the first 16
        bytes.
        """
        value = int.from_bytes(self[:16], "big")
        value = value & ~(0xF << 76) | 8 << 76  # the version
        value = value & ~(0b11 << 62) | 0b10 << 62  # the variant
        return UUID(int=value)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"NodeId({self.text})"


class PrimaryKey(NamedTuple):
    """The entries of cell 14 that determine a node ID: the primary key, and the commitment to its
    recovery key, of 32 bytes, or None.

    Example:

        from parley import Identity

        identity = Identity.create()
        assert identity.primary_key.node_id == identity.node_id
        assert identity.primary_key.commitment is None
    """

    algorithm: str
    public: bytes
    commitment: bytes | None = None

    @classmethod
    def parse(cls, value: object) -> "PrimaryKey":
        """Parse the decoded value of a cell 14 that must not have further keys (rule 22.7).

        The key itself and its algorithm aren't checked: that takes as long as verifying a
        signature.

        Raises:
            IdentityError: the value is invalid, or has further keys.
        """
        entries = _entries(value)
        primary = cls._of(entries)
        if len(entries) != len(primary.cells()):
            raise IdentityError("invalid identity: further keys are only allowed in a Proof")
        return primary

    @classmethod
    def _of(cls, entries: Sequence[Entry]) -> "PrimaryKey":
        """Return the primary key and the commitment; reject entries without a binding."""
        if not 1 <= len(entries) <= MAX_KEYS:
            raise IdentityError(
                f"invalid identity of {len(entries)} keys: expected 1 to {MAX_KEYS}"
            )
        if len({name for name, _, _ in entries}) != len(entries):
            names = _shown(*(name for name, _, _ in entries))
            raise IdentityError(f"invalid identity: more than one key for an algorithm ({names})")
        algorithm, public, binding = entries[0]
        if binding is not None:
            raise IdentityError("invalid identity: the primary key must not have a binding")
        commitment = None
        for place, (name, value, binding) in enumerate(entries):
            if name == _RECOVERY:
                if place != 1 or binding is not None or len(value) != COMMITMENT_SIZE:
                    raise IdentityError(
                        "invalid identity: the recovery entry must be the second, with "
                        f"{COMMITMENT_SIZE} bytes and without a binding"
                    )
                commitment = value
            elif binding is None and place > 0:
                raise IdentityError(f"unsupported identity entry {_shown(name)}; upgrade this node")
        return cls(algorithm, public, commitment)

    @property
    def node_id(self) -> NodeId:
        """The ID of the node."""
        return NodeId.of_key(*self)

    def cells(self) -> list[list[str | bytes | None]]:
        """Return the value of cell 14, without further keys."""
        primary: list[str | bytes | None] = [self.algorithm, self.public, None]
        if self.commitment is None:
            return [primary]
        return [primary, [_RECOVERY, self.commitment, None]]


class PublicIdentity:
    """The public keys of a node: its `node_id` and a verified key for each algorithm.

    `agreed.identity` of an observer is one, and so is `public` of an `Identity`. `primary_key` has
    the commitment to the recovery key.

    Before a node asks a trust policy about a peer, it sets two more attributes (section 22):
    `predecessors` are the ended node IDs that this one has taken the place of, and
    `accepted_predecessors` those of them whose successors a person accepted. Both are empty
    otherwise.

    Example:

        from parley import Identity

        public = Identity.create().public
        assert public.algorithms[0] == public.primary
    """

    __slots__ = (
        "_verifiers",
        "accepted_predecessors",
        "entries",
        "node_id",
        "predecessors",
        "primary_key",
    )

    def __init__(self, entries: Sequence[Entry]) -> None:
        """Verify `entries` according to section 4.

        Raises:
            IdentityError: the entries are invalid.
        """
        self.predecessors: tuple[NodeId, ...] = ()
        self.accepted_predecessors: tuple[NodeId, ...] = ()
        self.entries: tuple[Entry, ...] = tuple(entries)
        self.primary_key = PrimaryKey._of(self.entries)
        self.node_id = self.primary_key.node_id
        primary = _verifier(self.primary, self.primary_key.public)
        self._verifiers = {self.primary: primary}
        for algorithm, public, binding in self.entries[1:]:
            if binding is None:  # the commitment
                continue
            try:
                primary.verify(binding, _binding_message(self.node_id, algorithm, public))
            except SignatureError as error:
                raise IdentityError(
                    f"the binding of the key of {_shown(algorithm)} does not verify"
                ) from error
            # Keys of unknown algorithms must have valid bindings too, and are then ignored.
            if algorithm in SIGNING:
                self._verifiers[algorithm] = _verifier(algorithm, public)

    @classmethod
    def parse(cls, value: object) -> "PublicIdentity":
        """Parse the decoded value of cell 14.

        Raises:
            IdentityError: the value is invalid in any way.
        """
        return cls(_entries(value))

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The names of the known algorithms, the primary key's first."""
        return tuple(self._verifiers)

    @property
    def primary(self) -> str:
        """The name of the primary key's algorithm."""
        return self.primary_key.algorithm

    def verifier(self, algorithm: str) -> Verifier:
        """Return the key of an algorithm.

        Raises:
            IdentityError: there is no such key.
        """
        try:
            return self._verifiers[algorithm]
        except KeyError:
            raise IdentityError(f"the identity has no key of {algorithm!r}") from None

    def cells(self) -> list[list[str | bytes | None]]:
        """Return the value of cell 14."""
        return [[algorithm, public, binding] for algorithm, public, binding in self.entries]

    def __eq__(self, other: object) -> bool:
        # Bindings aren't compared, because several valid signatures can bind the same key.
        if not isinstance(other, PublicIdentity):
            return NotImplemented
        return [e[:2] for e in self.entries] == [e[:2] for e in other.entries]

    def __hash__(self) -> int:
        return hash(self.node_id)

    def __repr__(self) -> str:
        return f"<PublicIdentity {self.node_id.short} {', '.join(self.algorithms)}>"


class Identity:
    """The private identity of a node: its signing keys, of which the first determines the node ID.

    `primary_key` is the public part of the first key, with the commitment to the recovery key if
    the identity was created with `create_recoverable`.

    Example:

        from parley import Identity, Node, load_identity, save_identity

        save_identity("node.key", Identity.create())
        node = Node(load_identity("node.key"))
    """

    def __init__(self, keys: Sequence[SigningKey], commitment: bytes | None = None) -> None:
        """Create an identity whose primary key is the first of `keys`.

        `commitment` is the commitment to a recovery key, of 32 bytes.

        Raises:
            IdentityError: not 1 to 8 keys, two keys of one algorithm, or a commitment of another
                size.
        """
        if not keys:
            raise IdentityError(f"invalid identity of {len(keys)} keys: expected 1 to {MAX_KEYS}")
        self._keys = {key.algorithm: key for key in keys}
        if len(self._keys) != len(keys):
            names = _shown(*(key.algorithm for key in keys))
            raise IdentityError(f"invalid identity: more than one key for an algorithm ({names})")
        if commitment is not None and len(commitment) != COMMITMENT_SIZE:
            raise IdentityError(
                f"invalid commitment of {len(commitment)} bytes: expected {COMMITMENT_SIZE}"
            )
        primary, *further = keys
        self.primary_key = PrimaryKey(primary.algorithm, primary.public, commitment)
        self.node_id = self.primary_key.node_id
        entries: list[Entry] = [(primary.algorithm, primary.public, None)]
        if commitment is not None:
            entries.append((_RECOVERY, commitment, None))
        for key in further:
            message = _binding_message(self.node_id, key.algorithm, key.public)
            entries.append((key.algorithm, key.public, primary.sign(message)))
        self._entries = entries

    @classmethod
    def create(cls, algorithms: Sequence[str] = ("ed25519",)) -> "Identity":
        """Generate an identity with a new key for each algorithm.

        Raises:
            UnknownAlgorithmError: an algorithm is unknown.
            IdentityError: not 1 to 8 algorithms, or one is repeated.
        """
        return cls(_generate(algorithms))

    @classmethod
    def create_recoverable(
        cls, algorithms: Sequence[str] = ("ed25519",), *, recovery: str | None = None
    ) -> "tuple[Identity, RecoveryKey]":
        """Generate an identity whose node ID covers a recovery key, and the recovery key.

        `recovery` is the algorithm of the recovery key, by default the algorithm of the primary
        key. Save the recovery key with `save_recovery` and store it away from the node
        (section 22).

        Raises:
            UnknownAlgorithmError: an algorithm is unknown.
            IdentityError: not 1 to 7 algorithms, one is repeated, or the primary key is
                `ml-dsa-65` and the recovery key isn't.

        Example:

            from parley import Identity, save_identity, save_recovery

            identity, recovery = Identity.create_recoverable()
            assert recovery.node_id == identity.node_id
            save_identity("node.key", identity)
            save_recovery("node.recovery", recovery)
        """
        primary = cls.create(algorithms)
        [made] = _generate([recovery or primary.primary_key.algorithm])
        key = RecoveryKey(made, primary.primary_key.algorithm, primary.primary_key.public)
        return cls(primary.keys, key.primary_key.commitment), key

    @classmethod
    def from_keys(cls, keys: Sequence[SigningKey], commitment: bytes | None = None) -> "Identity":
        """Create an identity from existing keys, the primary key first. Raises the same errors as
        the constructor.
        """
        return cls(keys, commitment)

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The names of the keys' algorithms, the primary key's first."""
        return tuple(self._keys)

    @property
    def keys(self) -> tuple[SigningKey, ...]:
        """The signing keys, the primary key first."""
        return tuple(self._keys.values())

    def key(self, algorithm: str) -> SigningKey:
        """Return the key of an algorithm.

        Raises:
            IdentityError: there is no such key.
        """
        try:
            return self._keys[algorithm]
        except KeyError:
            raise IdentityError(f"the identity has no key of {algorithm!r}") from None

    def cells(self) -> list[list[str | bytes | None]]:
        """Return the value of cell 14, which is sent in the Proof."""
        return [[algorithm, public, binding] for algorithm, public, binding in self._entries]

    @cached_property
    def public(self) -> PublicIdentity:
        """The public keys, as sent to peers."""
        return PublicIdentity(self._entries)

    def __repr__(self) -> str:
        return f"<Identity {self.node_id.short} {', '.join(self.algorithms)}>"


class RecoveryKey:
    """The private recovery key of one identity, which is stored away from its key file.

    It can name a successor of the identity, and end the identity (section 22). `key` is the
    recovery key, and `primary_key` the identity's primary key with the commitment to `key`.

    Example:

        from parley import Identity, load_recovery, save_recovery

        identity, recovery = Identity.create_recoverable()
        save_recovery("node.recovery", recovery)
        assert load_recovery("node.recovery").node_id == identity.node_id
    """

    __slots__ = ("key", "primary_key")

    def __init__(self, key: SigningKey, algorithm: str, public: bytes) -> None:
        """Create the recovery key `key` for the primary key `public` of `algorithm`.

        Raises:
            IdentityError: the primary key is unknown, malformed or weak, both keys are the same,
                or the primary key is `ml-dsa-65` and the recovery key isn't.
        """
        _verifier(algorithm, public)
        check_recovery_key(algorithm, public, key.algorithm, key.public)
        self.key = key
        commitment = make_commitment(algorithm, public, key.algorithm, key.public)
        self.primary_key = PrimaryKey(algorithm, public, commitment)

    @property
    def node_id(self) -> NodeId:
        """The ID of the node that it recovers.

        The ID covers the commitment, so only the recovery key of an identity has its node ID.
        """
        return self.primary_key.node_id

    def __repr__(self) -> str:
        return f"<RecoveryKey {self.key.algorithm} of {self.node_id.short}>"


def make_commitment(
    algorithm: str, public: bytes, recovery_algorithm: str, recovery: bytes
) -> bytes:
    """Return the commitment of a primary key to a recovery key, 32 bytes (rule 22.1)."""
    keys = _named(algorithm) + public + _named(recovery_algorithm) + recovery
    return hashlib.sha256(b"parley1 recovery key" + keys).digest()


def check_recovery_key(
    algorithm: str, public: bytes, recovery_algorithm: str, recovery: bytes
) -> None:
    """Check that a recovery key is as strong as the primary key and differs from it.

    Raises:
        IdentityError: it doesn't.
    """
    if recovery == public:
        raise IdentityError("invalid recovery key: it is the primary key")
    require_strength(algorithm, recovery_algorithm, "recovery key")


def require_strength(algorithm: str, next_algorithm: str, what: str) -> None:
    """Raise IdentityError if the primary key is `ml-dsa-65` and a key that replaces it isn't."""
    if algorithm == _POST_QUANTUM != next_algorithm:
        raise IdentityError(
            f"invalid {what} of {next_algorithm}: the primary key is {algorithm}, so it must be too"
        )


def _generate(algorithms: Sequence[str]) -> list[SigningKey]:
    return [SIGNING[require_name("signing", name)].generate() for name in algorithms]


def _named(algorithm: str) -> bytes:
    name = algorithm.encode("utf-8")
    return bytes((len(name),)) + name


def _binding_message(node_id: NodeId, algorithm: str, public: bytes) -> bytes:
    return b"parley1 key binding" + node_id + _named(algorithm) + public


def _shown(*names: str) -> str:
    """Return names of algorithms from a peer for an error message, escaped and shortened."""
    return ", ".join(ascii(name[:_SHOWN]) for name in names)


def _verifier(algorithm: str, public: bytes) -> Verifier:
    if algorithm not in SIGNING:
        raise IdentityError(
            f"invalid identity: unknown algorithm {_shown(algorithm)} of the primary key"
        )
    try:
        return SIGNING[algorithm].verifier(public)
    except SignatureError as error:
        raise IdentityError(f"the {algorithm} key is malformed or weak") from error


def _entries(value: object) -> list[Entry]:
    """Return the entries of cell 14 after checking their shapes."""
    if not isinstance(value, list):
        raise IdentityError(f"an identity is an array of keys, not {type(value).__name__}")
    return [_entry(item) for item in value]


def _entry(item: object) -> Entry:
    """Return one array of cell 14 after checking its shape."""
    if not isinstance(item, list) or len(item) != 3:
        size = len(item) if isinstance(item, list) else type(item).__name__
        raise IdentityError(f"a key of an identity is an array of three, not {size}")
    algorithm, public, binding = item
    if not isinstance(algorithm, str) or not isinstance(public, bytes):
        kinds = f"{type(algorithm).__name__} and {type(public).__name__}"
        raise IdentityError(f"a key of an identity is a name and a byte string, not {kinds}")
    if not (binding is None or isinstance(binding, bytes)):
        raise IdentityError(f"a binding is a byte string or null, not {type(binding).__name__}")
    try:
        size = len(algorithm.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise IdentityError(
            f"the name of an algorithm is not Unicode text: {_shown(algorithm)}"
        ) from error
    if not 1 <= size <= _MAX_NAME_SIZE:
        raise IdentityError(f"the name of an algorithm has 1 to {_MAX_NAME_SIZE} bytes, not {size}")
    return algorithm, public, binding
