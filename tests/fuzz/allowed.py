"""The exceptions that the code under test may raise, by target.

Every other exception is a bug, including a target's failed assertion. Targets catch only these
exceptions.
"""

from typing import Final

from parley._crypto.errors import IdentityError, UnknownAlgorithmError
from parley._lbm.errors import LbmDecodeError
from parley._node.errors import KeyStatementsError
from parley._node.journal.errors import JournalFormatError
from parley._node.messaging.formats import FormatError
from parley._node.protocol.errors import LocalError, RemoteProtocolError

Allowed = tuple[type[Exception], ...]

ALLOWED: Final[dict[str, Allowed]] = {
    # Decoding and typed reading.
    "decoder": (LbmDecodeError,),
    # Cutting frames, reading raw events.
    "frames": (RemoteProtocolError,),
    # Reading payloads of the handshake and of messaging.
    "events": (LbmDecodeError, IdentityError, UnknownAlgorithmError, RemoteProtocolError),
    # Reading a Batch.
    "batch": (RemoteProtocolError,),
    # A connection reports its end, so processing a peer's bytes must not raise.
    "handshake": (),
    "connection": (),
    "resume": (),
    "simproto": (),
    "named": (),
    "relay": (),
    "relay_client": (),
    # Reading and making payloads of named events; the cells that carry them natively.
    "formats": (FormatError, LbmDecodeError),
    # Reading the bodies of a journal's records; records themselves are never refused.
    "journal": (JournalFormatError,),
    # Reading a node's input, and the audit's result about it.
    "audit": (LbmDecodeError,),
    # Reading a card or a Login; the other readers return errors.
    "federation": (LbmDecodeError,),
    # Reading cell 14; the reasons for which a statement is refused are compared.
    "statement": (LbmDecodeError, IdentityError),
    # Reading the file of a node's statements.
    "key_statements": (KeyStatementsError,),
}
# Who takes the reports aborts the connection on these, as a node does.
MESSAGING: Final = (RemoteProtocolError,)
# What the application itself may do wrong, when a script makes it act at any time.
APPLICATION: Final[Allowed] = (LocalError,)
