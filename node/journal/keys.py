"""The kinds of records and the keys of their maps, as listed in docs/journal.md."""

from typing import Final

FORMAT_NAME: Final = "parley1 journal"
FORMAT_VERSION: Final = 1

# Kinds.
SEGMENT: Final = 1
BLOCK: Final = 2
CHECKPOINT: Final = 3
SESSION_START: Final = 4
SECRET: Final = 5
EVENT: Final = 6
KEY_UPDATE: Final = 7
SESSION_END: Final = 8
SEGMENT_END: Final = 9
PARTED: Final = 10
RESUMED: Final = 11
TUNNEL: Final = 12

KIND_NAMES: Final = {
    SEGMENT: "segment",
    BLOCK: "block",
    CHECKPOINT: "checkpoint",
    SESSION_START: "session start",
    SECRET: "secret",
    EVENT: "event",
    KEY_UPDATE: "key update",
    SESSION_END: "session end",
    SEGMENT_END: "segment end",
    PARTED: "parted",
    RESUMED: "resumed",
    TUNNEL: "tunnel",
}

RECEIVED: Final = 0
SENT: Final = 1

# Keys.
FORMAT: Final = 256
VERSION: Final = 257
NODE_ID: Final = 258
START: Final = 259
NUMBER: Final = 260
AUDITORS: Final = 261
SOFTWARE: Final = 262
SESSION_ID: Final = 263
INITIATOR: Final = 264
LOCAL_KEYS: Final = 265
REMOTE_KEYS: Final = 266
LOCAL_ROLE: Final = 267
REMOTE_ROLE: Final = 268
ADDRESS: Final = 269
SUITE: Final = 270
COMMIT: Final = 271
T1: Final = 272
RESPONDER_PROOF: Final = 273
INITIATOR_PROOF: Final = 274
SEAL_EVENTS: Final = 275
SEAL_DELAY_MS: Final = 276
TH1: Final = 277
TH2: Final = 278
STARTED: Final = 279
DIRECTIONS: Final = 280
SECRETS: Final = 281
LABELS: Final = 282
GENERATION: Final = 283
BOXES: Final = 284
EPOCH: Final = 285
AFTER_OFFER: Final = 286
AFTER_ANSWER: Final = 287
REKEY_COMMIT: Final = 288
CODE: Final = 289
REMOTE: Final = 290
TEXT: Final = 291
CHAINS: Final = 292
PLACES: Final = 293
RECORDS: Final = 294
BLOCKS: Final = 295
CUT: Final = 296
RESUMPTION: Final = 297
TRACE: Final = 298
HOP: Final = 299
LENGTH: Final = 300
BEFORE: Final = 301
AFTER: Final = 302
BEGAN: Final = 303
ENDED: Final = 304
FORWARD: Final = 305
BACK: Final = 306

# The only key of the map inside `labels`.
LABEL_LIST: Final = 256

BLOCK_SIZE: Final = 2**20
# The maximum fraction of the written bytes that checkpoints use.
CHECKPOINT_PART: Final = 16
