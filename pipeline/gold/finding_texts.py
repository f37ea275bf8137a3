"""The explanation of each kind of finding: what it proves, what it doesn't, and what to do.

A kind is a fault only if a complete and true journal cannot produce it. Unknown kinds count as
faults. docs/pipeline.md has the same table; a test compares them.
"""

from typing import Final, NamedTuple

FAULT: Final = "fault"  # something was altered, lost or invented
UNCHECKED: Final = "unchecked"  # something could not be checked
NOTICE: Final = "notice"  # a broken connection or a crash explains it

WEIGHTS: Final = {
    FAULT: "A complete and true journal cannot produce it.",
    UNCHECKED: "Something could not be checked.",
    NOTICE: "A broken connection, a crash or pruning explains it.",
}


class Meaning(NamedTuple):
    """The weight of a kind and three sentences of explanation."""

    weight: str
    proves: str
    proves_not: str
    advice: str


KINDS: Final = {
    # The bytes of a journal.
    "bad-crc": Meaning(
        FAULT,
        "A record's bytes were changed after they were written.",
        "Whether a disk or a person changed them: anyone can compute a CRC.",
        "Copy the segment again from its node. If it is the same there, check the disk, and "
        "read the missing events in the other end's journal.",
    ),
    "bad-length": Meaning(
        FAULT,
        "No record can begin where one must; the bytes up to the next block are lost.",
        "How many records there were.",
        "Copy the segment again from its node; read the missing events in the other end's journal.",
    ),
    "unreadable": Meaning(
        UNCHECKED,
        "The operating system refused to read a segment.",
        "Anything about its content.",
        "Give the user who runs this permission to read the file, and run it again.",
    ),
    "foreign": Meaning(
        NOTICE,
        "A file has a segment's name but isn't one.",
        "That a segment is missing.",
        "Move the file elsewhere.",
    ),
    "torn": Meaning(
        NOTICE,
        "A segment ends inside a record or without its end record, or recovery cut off such an "
        "end.",
        "That it was a crash: cutting off a file leaves the same.",
        "If the node crashed or is still running, do nothing. Otherwise copy the segment again.",
    ),
    "malformed-record": Meaning(
        FAULT,
        "A record has a correct CRC but isn't in the journal's format.",
        "Where it came from.",
        "Ask the node's operator what wrote to its journal.",
    ),
    "wrong-name": Meaning(
        FAULT,
        "A segment's name contradicts its first record.",
        "Which of them is true.",
        "Find out how the file was renamed; copy it again from its node.",
    ),
    "wrong-node": Meaning(
        FAULT,
        "A session in a node's journal has another node's identity as its own.",
        "Which node wrote it.",
        "Do not trust this journal until its operator explains it.",
    ),
    "wrong-auditors": Meaning(
        FAULT,
        "The auditors that a segment names differ from those that its secrets are encrypted to.",
        "Which auditors the journal was written for.",
        "Compare the node's settings with the auditors that it should have.",
    ),
    "missing-segment": Meaning(
        FAULT,
        "Segments between two others of one run are missing.",
        "That they were not pruned, or copied incompletely.",
        "Fetch the missing files from the node or its backup, and make the tables again.",
    ),
    "missing-checkpoint": Meaning(
        FAULT,
        "A block is missing, or has other checkpoints than it counts.",
        "Which sessions they were of.",
        "Compare with the other ends' journals of the same time.",
    ),
    "checkpoint-mismatch": Meaning(
        FAULT,
        "A checkpoint contradicts the events of its own journal.",
        "Whether the checkpoint or the events were changed.",
        "Compare with the other end's journal, session by session.",
    ),
    "epoch-mismatch": Meaning(
        FAULT,
        "A key update doesn't follow from the records before it.",
        "The correct key update.",
        "Compare with the other end's journal.",
    ),
    "no-start": Meaning(
        FAULT,
        "A session appears without a start, and was not in the block before.",
        "That its events are false: its beginning was left out.",
        "Fetch earlier segments of the journal, if there are any.",
    ),
    "session-twice": Meaning(
        FAULT,
        "A session begins more than once in one journal.",
        "Which one is the first.",
        "Check whether a segment was copied twice under two names.",
    ),
    "no-session": Meaning(
        UNCHECKED,
        "Events belong to a session whose start or checkpoint was not read.",
        "That they are false; they cannot be verified.",
        "Fetch earlier segments of the journal, and make the tables again.",
    ),
    # The hash chain of a session.
    "bad-chain": Meaning(
        FAULT,
        "An event's bytes don't match the hash in the chain.",
        "The original bytes; the other end's journal may have them.",
        "Read the events in the other end's journal; ask this one's operator.",
    ),
    "gap": Meaning(
        FAULT,
        "Events are missing: the chain and a later checkpoint or end count more.",
        "Which ones, unless the other end's journal has them.",
        "Read the events in the other end's journal; ask this one's operator.",
    ),
    "duplicate": Meaning(
        FAULT,
        "An event is in the journal twice.",
        "That the node received it twice.",
        "Check whether a segment was copied twice; otherwise ask the journal's operator.",
    ),
    "reordered": Meaning(
        FAULT,
        "Events are not in the order of their chain.",
        "That any of them was changed.",
        "Ask the journal's operator what wrote to it.",
    ),
    "bad-seal": Meaning(
        FAULT,
        "The signature over the chain at this place is not a valid signature of the sender.",
        "That the events before it are false.",
        "Look for a later seal: the next valid one covers everything before it.",
    ),
    "bad-proof": Meaning(
        FAULT,
        "The hash signed in a Proof doesn't match the handshake in the journal.",
        "Which part of the handshake was changed.",
        "Compare with the other end's journal; do not rely on the peer's identity in this session.",
    ),
    "end-mismatch": Meaning(
        FAULT,
        "A session's end contradicts its events in place, chain value, code, text or side.",
        "Which of them is true; sealed events are.",
        "Rely on the sealed events; compare with the other end's journal.",
    ),
    "cut-short": Meaning(
        FAULT,
        "An open session has no end, and no checkpoint in a later block of the same run.",
        "Its last events; the other end's journal may have them.",
        "Read the last events in the other end's journal.",
    ),
    "no-end": Meaning(
        NOTICE,
        "A journal's run ended while a session was open.",
        "That it was a crash; the last records may have been removed.",
        "If the node crashed then, do nothing. Otherwise compare with the other end's journal.",
    ),
    # Secrets.
    "missing-secret": Meaning(
        FAULT,
        "The record of a session's secret is missing, but later records that need it exist.",
        "That the session cannot be read: later checkpoints also contain the secret.",
        "If a later checkpoint has it, do nothing; otherwise the events cannot be read.",
    ),
    "wrong-secret": Meaning(
        FAULT,
        "The encrypted secret is not the session's.",
        "The contents of the events, which are not decrypted with this secret.",
        "Ask the node's operator; the events cannot be read with this secret.",
    ),
    "no-secret": Meaning(
        UNCHECKED,
        "None of the given auditors' keys opens a session's secret.",
        "Anything about its events, which are verified nevertheless.",
        "Run it with a key of one of the auditors named in the journal.",
    ),
    "undecryptable": Meaning(
        UNCHECKED,
        "Events in their places don't open, although the auditor's key opens their session.",
        "The contents of the events, or that they were changed: the chain includes them.",
        "Compare with the other end's journal.",
    ),
    # Statuses of events: one finding for each direction of a session.
    "malformed": Meaning(
        NOTICE,
        "The sender sealed payloads that a node refuses.",
        "That the journal was changed.",
        "Inform the author of the sender's program.",
    ),
    "unsealed": Meaning(
        NOTICE,
        "No seal came after the last events of a direction.",
        "Anything about those events: the journal's own node could have made them.",
        "If the session is still open, run it again later.",
    ),
    # Differences between the journals of both ends.
    "missing-journal": Meaning(
        UNCHECKED,
        "A node is in other nodes' sessions, but its own record of them is missing.",
        "That it wrote one. If a session is named, its journal continues before and after it.",
        "Ask that node's operator for its journal.",
    ),
    "not-received": Meaning(
        FAULT,
        "The sender's journal has events that are missing in the receiver's, which continues "
        "after them or records at its end that they arrived.",
        "Which journal is right, unless a seal of the sender covers the events.",
        "Ask the receiver's operator; events that a seal covers were sent.",
    ),
    "not-sent": Meaning(
        FAULT,
        "The receiver's journal has events that are missing in the sender's, which continues "
        "after them or has an end.",
        "That the receiver invented them: the sender sealed events that are ok.",
        "Ask the sender's operator; the sender sealed events that are ok.",
    ),
    "differs": Meaning(
        FAULT,
        "Two journals have different events at one place.",
        "Which is right; if both are ok, the sender sealed two chains.",
        "Show both operators the two events; a sealed event was sent.",
    ),
    "end-differs": Meaning(
        FAULT,
        "Two journals' statements about a session's end cannot both be true.",
        "Which is true.",
        "Ask both operators how the session ended.",
    ),
    "in-flight": Meaning(
        NOTICE,
        "The last events that were sent are not in the receiver's journal.",
        "That they were lost: they may have been in flight, or not yet written.",
        "If the connection broke then, do nothing.",
    ),
    "not-recorded": Meaning(
        NOTICE,
        "The last events that were received are not in the sender's journal, which has no end.",
        "That the sender hides them: a crash loses records that were not written yet.",
        "If the sender crashed then, do nothing.",
    ),
    "not-covered": Meaning(
        NOTICE,
        "One journal begins later, or ends earlier, than the other.",
        "That anything was removed; it may have been pruned, or not read yet.",
        "If one of them was pruned, do nothing; otherwise fetch the missing segments.",
    ),
    # Differences between neighbours in a tunnel's path.
    "tunnel-differs": Meaning(
        FAULT,
        "Two neighbours' records of a tunnel cannot both be true: their path lengths differ, more "
        "bytes left a server than entered it, or more were lost than is possible.",
        "Which is true. The events of the link between them, sealed by both, show it.",
        "Compare the events of the link between the two servers.",
    ),
    "tunnel-missing": Meaning(
        UNCHECKED,
        "A server recorded a tunnel with a neighbour whose journal has records from before and "
        "after it but not the tunnel.",
        "That the neighbour hides it: a crash leaves no record of open tunnels.",
        "If that server crashed then, do nothing; otherwise ask its operator.",
    ),
}
