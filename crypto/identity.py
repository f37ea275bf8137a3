"""Identities: one to eight signing keys, the first of which determines the node ID (section 4).

A `PublicIdentity` is always valid: all its bindings were verified, and all keys of known algorithms
were checked.
"""

import base64
import binascii
import hashlib
from collections.abc import Sequence
from functools import cached_property
from uuid import UUID

from parley._crypto.errors import IdentityError, SignatureError
from parley._crypto.registry import SIGNING, require_name
from parley._crypto.signing import SigningKey, Verifier

NODE_ID_SIZE = 32
MAX_KEYS = 8

_TEXT_SIZE = 52
_SHORT_SIZE = 8
_SHOWN = 40  # characters of a peer's algorithm name in an error
_MAX_NAME_SIZE = 255  # because its length is encoded in one byte

# [algorithm, public key, signature of the primary key over both, or None for the primary key]
Entry = tuple[str, bytes, bytes | None]


class NodeId(bytes):
    """The 32 bytes that identify a node, written as 52 characters of lower-case base32.

    It is the SHA-256 hash of the primary key and its algorithm (docs/protocol.md section 4).

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
    def of_key(cls, algorithm: str, public: bytes) -> "NodeId":
        """Return the ID of the node with this primary key."""
        return cls(hashlib.sha256(b"parley1 node id" + _named(algorithm) + public).digest())

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


class PublicIdentity:
    """The public keys of a node: its `node_id` and a verified key for each algorithm.

    `agreed.identity` of an observer is one, and so is `public` of an `Identity`.

    Example:

        from parley import Identity

        public = Identity.create().public
        assert public.algorithms[0] == public.primary
    """

    __slots__ = ("_verifiers", "entries", "node_id")

    def __init__(self, entries: Sequence[Entry]) -> None:
        """Verify `entries` according to section 4.

        Raises:
            IdentityError: the entries are invalid.
        """
        self.entries: tuple[Entry, ...] = tuple(entries)
        if not 1 <= len(self.entries) <= MAX_KEYS:
            raise IdentityError(
                f"invalid identity of {len(self.entries)} keys: expected 1 to {MAX_KEYS}"
            )
        if len({algorithm for algorithm, _, _ in self.entries}) != len(self.entries):
            names = _shown(*(algorithm for algorithm, _, _ in self.entries))
            raise IdentityError(f"invalid identity: more than one key for an algorithm ({names})")
        algorithm, public, binding = self.entries[0]
        if algorithm not in SIGNING:
            raise IdentityError(
                f"invalid identity: unknown algorithm {_shown(algorithm)} of the primary key"
            )
        if binding is not None:
            raise IdentityError("invalid identity: the primary key must not have a binding")
        primary = _verifier(algorithm, public)
        self.node_id = NodeId.of_key(algorithm, public)
        self._verifiers = {algorithm: primary}
        for algorithm, public, binding in self.entries[1:]:
            if binding is None:
                raise IdentityError(f"invalid identity: the {_shown(algorithm)} key has no binding")
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
        if not isinstance(value, list):
            raise IdentityError(f"an identity is an array of keys, not {type(value).__name__}")
        return cls([_entry(item) for item in value])

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The names of the known algorithms, the primary key's first."""
        return tuple(self._verifiers)

    @property
    def primary(self) -> str:
        """The name of the primary key's algorithm."""
        return self.entries[0][0]

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

    Example:

        from parley import Identity, Node, load_identity, save_identity

        save_identity("node.key", Identity.create())
        node = Node(load_identity("node.key"))
    """

    def __init__(self, keys: Sequence[SigningKey]) -> None:
        """Create an identity whose primary key is the first of `keys`.

        Raises:
            IdentityError: not 1 to 8 keys, or two keys of one algorithm.
        """
        if not keys:
            raise IdentityError(f"invalid identity of {len(keys)} keys: expected 1 to {MAX_KEYS}")
        self._keys = {key.algorithm: key for key in keys}
        if len(self._keys) != len(keys):
            names = _shown(*(key.algorithm for key in keys))
            raise IdentityError(f"invalid identity: more than one key for an algorithm ({names})")
        primary, *further = keys
        self.node_id = NodeId.of_key(primary.algorithm, primary.public)
        entries: list[Entry] = [(primary.algorithm, primary.public, None)]
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
        return cls([SIGNING[require_name("signing", name)].generate() for name in algorithms])

    @classmethod
    def from_keys(cls, keys: Sequence[SigningKey]) -> "Identity":
        """Create an identity from existing keys, the primary key first."""
        return cls(keys)

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


def _named(algorithm: str) -> bytes:
    name = algorithm.encode("utf-8")
    return bytes((len(name),)) + name


def _binding_message(node_id: NodeId, algorithm: str, public: bytes) -> bytes:
    return b"parley1 key binding" + node_id + _named(algorithm) + public


def _shown(*names: str) -> str:
    """Return names of algorithms from a peer for an error message, escaped and shortened."""
    return ", ".join(ascii(name[:_SHOWN]) for name in names)


def _verifier(algorithm: str, public: bytes) -> Verifier:
    try:
        return SIGNING[algorithm].verifier(public)
    except SignatureError as error:
        raise IdentityError(f"the {algorithm} key is malformed or weak") from error


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
