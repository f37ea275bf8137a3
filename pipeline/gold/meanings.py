"""What each kind of finding proves and does not prove.

A kind is a fault only if a journal that is whole and true cannot have it; an unknown kind weighs as
a fault. The table of kinds stands in docs/pipeline.md too, and a test compares the two.
"""

from typing import Final, NamedTuple

FAULT: Final = "fault"  # something was altered, lost or invented
UNCHECKED: Final = "unchecked"  # something could not be looked at
NOTICE: Final = "notice"  # a broken connection or a crash explains it

WEIGHTS: Final = {
    FAULT: "A journal that is whole and true cannot have it.",
    UNCHECKED: "Something was not there to be checked.",
    NOTICE: "A broken connection, a crash or pruning explains it.",
}


class Meaning(NamedTuple):
    """`proves` and `not` are sentences for readers."""

    weight: str
    proves: str
    proves_not: str


KINDS: Final = {
    # Of a journal's bytes.
    "bad-crc": Meaning(
        FAULT,
        "A record's bytes are not those that were written.",
        "Whether a disk or somebody altered them: anybody can make a CRC.",
    ),
    "bad-length": Meaning(
        FAULT,
        "No record can begin where one must; the bytes up to the next block are lost.",
        "How many records were there.",
    ),
    "unreadable": Meaning(
        UNCHECKED, "The system refused to read a segment.", "Anything of its content."
    ),
    "foreign": Meaning(
        NOTICE, "A file is named like a segment and is not one.", "That a segment is missing."
    ),
    "torn": Meaning(
        NOTICE,
        "A segment ends inside of a record, or without the record of its end, or recovery cut "
        "such an end off.",
        "That it was a crash: whoever cuts a file off leaves the same.",
    ),
    "malformed-record": Meaning(
        FAULT,
        "A record has a right CRC and is not of the journal's format.",
        "Where it came from.",
    ),
    "wrong-name": Meaning(
        FAULT, "A segment's name is not what its first record says.", "Which of them is true."
    ),
    "wrong-node": Meaning(
        FAULT,
        "A session in a node's journal has another node's identity as its own.",
        "Which node wrote it.",
    ),
    "wrong-auditors": Meaning(
        FAULT,
        "A segment names other auditors than those to whom the secrets in it are sealed.",
        "For whom the journal was kept.",
    ),
    "missing-segment": Meaning(
        FAULT,
        "Segments between two others of one run are not there.",
        "That they were not pruned, or copied incompletely.",
    ),
    "missing-checkpoint": Meaning(
        FAULT,
        "A block is absent, or has other checkpoints than it counts.",
        "Which sessions they were of.",
    ),
    "checkpoint-mismatch": Meaning(
        FAULT,
        "A checkpoint does not say what its own journal's events add up to.",
        "Whether the checkpoint or the events were altered.",
    ),
    "epoch-mismatch": Meaning(
        FAULT,
        "A key update does not follow from what was before it.",
        "What the right one was.",
    ),
    "no-start": Meaning(
        FAULT,
        "A session is there that neither began nor was there at the block before.",
        "That its events are false; its beginning, or what it had before, was left out.",
    ),
    "session-twice": Meaning(
        FAULT, "A session begins more than once in one journal.", "Which one is the first."
    ),
    "no-session": Meaning(
        UNCHECKED,
        "Events belong to a session of which neither start nor checkpoint was read.",
        "That they are false; they cannot be verified.",
    ),
    # Of a session's chain.
    "bad-chain": Meaning(
        FAULT,
        "An event's bytes are not those whose hash is in the chain.",
        "What they were; the other end's journal may have them.",
    ),
    "gap": Meaning(
        FAULT,
        "Events are missing: the chain and a later checkpoint or end count more.",
        "Which ones, unless the other end's journal has them.",
    ),
    "duplicate": Meaning(
        FAULT, "An event stands in the journal twice.", "That the node received it twice."
    ),
    "reordered": Meaning(
        FAULT,
        "Events do not stand in the order of their chain.",
        "That anything of them was altered.",
    ),
    "bad-seal": Meaning(
        FAULT,
        "A signature is not that of the sender over the chain at this place.",
        "That the events before it are false; the next valid seal vouches for them.",
    ),
    "bad-proof": Meaning(
        FAULT,
        "A Proof's signed hash is not that of the handshake in the journal.",
        "Which part of the handshake was altered.",
    ),
    "end-mismatch": Meaning(
        FAULT,
        "A session's end says another place, chain value, code, text or side than its events.",
        "Which of them is true; what is sealed is.",
    ),
    "cut-short": Meaning(
        FAULT,
        "A session was open, has no end, and is in no checkpoint of a later block of the same run.",
        "What came last in it; the other end's journal may have it.",
    ),
    "no-end": Meaning(
        NOTICE,
        "A journal's run ended while a session was open.",
        "That it was a crash; the last records may have been taken away.",
    ),
    # Of secrets.
    "missing-secret": Meaning(
        FAULT,
        "The record of a session's secret is absent, and what must come behind it is there.",
        "That anybody could not read it: later checkpoints have the secret as well.",
    ),
    "wrong-secret": Meaning(
        FAULT,
        "The sealed secret is not the session's.",
        "What the events said: nothing is decrypted with it.",
    ),
    "no-secret": Meaning(
        UNCHECKED,
        "No box of a session's secret opens with the auditor's keys given.",
        "Anything about its events, which are verified all the same.",
    ),
    "undecryptable": Meaning(
        UNCHECKED,
        "Events in their places do not open, though the auditor's key opens their session.",
        "What they said, or that they were altered: the chain has them.",
    ),
    # Of events' statuses: one finding for each direction of a session.
    "malformed": Meaning(
        NOTICE,
        "The sender sealed payloads that a node refuses.",
        "That the journal was touched.",
    ),
    "unsealed": Meaning(
        NOTICE,
        "No seal came after the last events of a direction.",
        "Anything of those events: the journal's own node could have made them.",
    ),
    # Of both ends.
    "missing-journal": Meaning(
        UNCHECKED,
        "A node is in others' sessions, and its own record of them is not there.",
        "That it kept one. With a session named, its journal goes on before and after it.",
    ),
    "not-received": Meaning(
        FAULT,
        "The sender's journal has events, the receiver's goes on behind them (or says at its "
        "end that they came) and has them not.",
        "Which journal is right, unless a seal of the sender covers the events.",
    ),
    "not-sent": Meaning(
        FAULT,
        "The receiver's journal has events, the sender's goes on behind them or was ended, "
        "and has them not.",
        "That the receiver invented them: what is ok was sealed by the sender.",
    ),
    "differs": Meaning(
        FAULT,
        "Two journals have different events at one place.",
        "Which is right; if both are ok, the sender sealed two chains.",
    ),
    "end-differs": Meaning(
        FAULT, "What two journals say of a session's end cannot both be true.", "Which is."
    ),
    "in-flight": Meaning(
        NOTICE,
        "The last events that were sent are not in the receiver's journal.",
        "That they were lost: they may have been on their way, or not yet written.",
    ),
    "not-recorded": Meaning(
        NOTICE,
        "The last events that were received are not in the sender's journal, which has no end.",
        "That the sender hides them: a crash loses what was not written.",
    ),
    "not-covered": Meaning(
        NOTICE,
        "One journal begins later, or ends earlier, than the other.",
        "That anything was taken away; it may have been pruned, or not be read yet.",
    ),
    # Of neighbours in a tunnel's path.
    "tunnel-differs": Meaning(
        FAULT,
        "Two neighbours' records of a tunnel cannot both be true: it has more bytes behind a "
        "server than before it, or fewer by more than can be lost, or another length of its path.",
        "Which is; the events of their own link, which both sealed, can tell.",
    ),
    "tunnel-missing": Meaning(
        UNCHECKED,
        "A server says that it joined a tunnel with a neighbour, whose journal goes on before and "
        "after it and has no record of it.",
        "That the neighbour hides it: a crash leaves no record of the tunnels that were open.",
    ),
}
