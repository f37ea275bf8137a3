"""What each kind of finding proves and does not prove, and what a reader can do about it.

A kind is a fault only if a complete and true journal cannot have it; an unknown kind counts as a
fault. docs/pipeline.md has the same table of kinds, which a test compares.
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
    """The weight of a kind, and three sentences for readers."""

    weight: str
    proves: str
    proves_not: str
    advice: str


KINDS: Final = {
    # Of a journal's bytes.
    "bad-crc": Meaning(
        FAULT,
        "A record's bytes are not those that were written.",
        "Whether a disk or somebody altered them: anybody can make a CRC.",
        "Copy the segment again from its node. If it is the same there, check the disk, "
        "and read the other end's journal for what is lost.",
    ),
    "bad-length": Meaning(
        FAULT,
        "No record can begin where one must; the bytes up to the next block are lost.",
        "How many records were there.",
        "Copy the segment again from its node; read the other end's journal for what is lost.",
    ),
    "unreadable": Meaning(
        UNCHECKED,
        "The system refused to read a segment.",
        "Anything of its content.",
        "Give whoever runs this the right to read the file, and run it again.",
    ),
    "foreign": Meaning(
        NOTICE,
        "A file is named like a segment and is not one.",
        "That a segment is missing.",
        "Move the file elsewhere.",
    ),
    "torn": Meaning(
        NOTICE,
        "A segment ends inside of a record, or without the record of its end, or recovery cut "
        "such an end off.",
        "That it was a crash: whoever cuts a file off leaves the same.",
        "Nothing, if the node crashed or is still running. Otherwise copy the segment again.",
    ),
    "malformed-record": Meaning(
        FAULT,
        "A record has a right CRC and is not of the journal's format.",
        "Where it came from.",
        "Ask whoever keeps the node what wrote to its journal.",
    ),
    "wrong-name": Meaning(
        FAULT,
        "A segment's name is not what its first record says.",
        "Which of them is true.",
        "Find out how the file was renamed; copy it again from its node.",
    ),
    "wrong-node": Meaning(
        FAULT,
        "A session in a node's journal has another node's identity as its own.",
        "Which node wrote it.",
        "Do not trust this journal before its keeper explains it.",
    ),
    "wrong-auditors": Meaning(
        FAULT,
        "A segment names other auditors than those to whom the secrets in it are sealed.",
        "For whom the journal was kept.",
        "Compare the node's settings with the auditors that it should have.",
    ),
    "missing-segment": Meaning(
        FAULT,
        "Segments between two others of one run are not there.",
        "That they were not pruned, or copied incompletely.",
        "Fetch the missing files from the node or its backup, and make the tables again.",
    ),
    "missing-checkpoint": Meaning(
        FAULT,
        "A block is absent, or has other checkpoints than it counts.",
        "Which sessions they were of.",
        "Compare with the other ends' journals of the same time.",
    ),
    "checkpoint-mismatch": Meaning(
        FAULT,
        "A checkpoint does not say what its own journal's events add up to.",
        "Whether the checkpoint or the events were altered.",
        "Compare with the other end's journal, session by session.",
    ),
    "epoch-mismatch": Meaning(
        FAULT,
        "A key update does not follow from what was before it.",
        "What the right one was.",
        "Compare with the other end's journal.",
    ),
    "no-start": Meaning(
        FAULT,
        "A session is there that neither began nor was there at the block before.",
        "That its events are false; its beginning, or what it had before, was left out.",
        "Fetch earlier segments of the journal, if there are any.",
    ),
    "session-twice": Meaning(
        FAULT,
        "A session begins more than once in one journal.",
        "Which one is the first.",
        "Look whether a segment was copied twice under two names.",
    ),
    "no-session": Meaning(
        UNCHECKED,
        "Events belong to a session of which neither start nor checkpoint was read.",
        "That they are false; they cannot be verified.",
        "Fetch earlier segments of the journal, and make the tables again.",
    ),
    # Of a session's chain.
    "bad-chain": Meaning(
        FAULT,
        "An event's bytes are not those whose hash is in the chain.",
        "What they were; the other end's journal may have them.",
        "Read the other end's journal for what was said; ask the keeper of this one.",
    ),
    "gap": Meaning(
        FAULT,
        "Events are missing: the chain and a later checkpoint or end count more.",
        "Which ones, unless the other end's journal has them.",
        "Read the other end's journal for what was said; ask the keeper of this one.",
    ),
    "duplicate": Meaning(
        FAULT,
        "An event stands in the journal twice.",
        "That the node received it twice.",
        "Look whether a segment was copied twice; otherwise ask the journal's keeper.",
    ),
    "reordered": Meaning(
        FAULT,
        "Events do not stand in the order of their chain.",
        "That anything of them was altered.",
        "Ask the journal's keeper what wrote to it.",
    ),
    "bad-seal": Meaning(
        FAULT,
        "A signature is not that of the sender over the chain at this place.",
        "That the events before it are false; the next valid seal vouches for them.",
        "Look at what follows: the next valid seal vouches for what is before it.",
    ),
    "bad-proof": Meaning(
        FAULT,
        "A Proof's signed hash is not that of the handshake in the journal.",
        "Which part of the handshake was altered.",
        "Compare with the other end's journal; do not rely on who this session says it was with.",
    ),
    "end-mismatch": Meaning(
        FAULT,
        "A session's end says another place, chain value, code, text or side than its events.",
        "Which of them is true; what is sealed is.",
        "Rely on what is sealed; compare with the other end's journal.",
    ),
    "cut-short": Meaning(
        FAULT,
        "A session was open, has no end, and is in no checkpoint of a later block of the same run.",
        "What came last in it; the other end's journal may have it.",
        "Read the other end's journal for what came last.",
    ),
    "no-end": Meaning(
        NOTICE,
        "A journal's run ended while a session was open.",
        "That it was a crash; the last records may have been taken away.",
        "Nothing, if the node crashed then. Otherwise compare with the other end's journal.",
    ),
    # Of secrets.
    "missing-secret": Meaning(
        FAULT,
        "The record of a session's secret is absent, and what must come behind it is there.",
        "That anybody could not read it: later checkpoints have the secret as well.",
        "Nothing, if a later checkpoint has it; else the events stay closed to you.",
    ),
    "wrong-secret": Meaning(
        FAULT,
        "The sealed secret is not the session's.",
        "What the events said: nothing is decrypted with it.",
        "Ask the node's keeper: with this secret nothing can be read.",
    ),
    "no-secret": Meaning(
        UNCHECKED,
        "No box of a session's secret opens with the auditor's keys given.",
        "Anything about its events, which are verified all the same.",
        "Run it with the key of an auditor for whom the journal was kept.",
    ),
    "undecryptable": Meaning(
        UNCHECKED,
        "Events in their places do not open, though the auditor's key opens their session.",
        "What they said, or that they were altered: the chain has them.",
        "Compare with the other end's journal.",
    ),
    # Of events' statuses: one finding for each direction of a session.
    "malformed": Meaning(
        NOTICE,
        "The sender sealed payloads that a node refuses.",
        "That the journal was touched.",
        "Tell whoever wrote the sender's program.",
    ),
    "unsealed": Meaning(
        NOTICE,
        "No seal came after the last events of a direction.",
        "Anything of those events: the journal's own node could have made them.",
        "Nothing while the session goes on; run it again later.",
    ),
    # Of both ends.
    "missing-journal": Meaning(
        UNCHECKED,
        "A node is in others' sessions, and its own record of them is not there.",
        "That it kept one. With a session named, its journal goes on before and after it.",
        "Ask that node's keeper for its journal.",
    ),
    "not-received": Meaning(
        FAULT,
        "The sender's journal has events, the receiver's goes on behind them (or says at its "
        "end that they came) and has them not.",
        "Which journal is right, unless a seal of the sender covers the events.",
        "Ask the receiver's keeper; what a seal covers was sent.",
    ),
    "not-sent": Meaning(
        FAULT,
        "The receiver's journal has events, the sender's goes on behind them or was ended, "
        "and has them not.",
        "That the receiver invented them: what is ok was sealed by the sender.",
        "Ask the sender's keeper; what is ok was sealed by the sender.",
    ),
    "differs": Meaning(
        FAULT,
        "Two journals have different events at one place.",
        "Which is right; if both are ok, the sender sealed two chains.",
        "Show both keepers the two events; what is sealed stands.",
    ),
    "end-differs": Meaning(
        FAULT,
        "What two journals say of a session's end cannot both be true.",
        "Which is.",
        "Ask both keepers how the session ended.",
    ),
    "in-flight": Meaning(
        NOTICE,
        "The last events that were sent are not in the receiver's journal.",
        "That they were lost: they may have been on their way, or not yet written.",
        "Nothing, if the connection broke then.",
    ),
    "not-recorded": Meaning(
        NOTICE,
        "The last events that were received are not in the sender's journal, which has no end.",
        "That the sender hides them: a crash loses what was not written.",
        "Nothing, if the sender crashed then.",
    ),
    "not-covered": Meaning(
        NOTICE,
        "One journal begins later, or ends earlier, than the other.",
        "That anything was taken away; it may have been pruned, or not be read yet.",
        "Nothing, if one of them was pruned; otherwise fetch the missing segments.",
    ),
    # Of neighbours in a tunnel's path.
    "tunnel-differs": Meaning(
        FAULT,
        "Two neighbours' records of a tunnel cannot both be true: it has more bytes behind a "
        "server than before it, or fewer by more than can be lost, or another length of its path.",
        "Which is; the events of their own link, which both sealed, can tell.",
        "Compare the events of the link between the two servers.",
    ),
    "tunnel-missing": Meaning(
        UNCHECKED,
        "A server says that it joined a tunnel with a neighbour, whose journal goes on before and "
        "after it and has no record of it.",
        "That the neighbour hides it: a crash leaves no record of the tunnels that were open.",
        "Nothing, if that server crashed then; otherwise ask its keeper.",
    ),
}
