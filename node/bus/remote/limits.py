"""The limits of a remote bus: of a request, an answer, a stream, a connection (docs/protocol.md
section 16)."""

from typing import Final

# What a request's cells may hold is fixed with its types.
from parley._node.protocol.event_types import LARGEST_COUNT as LARGEST_COUNT
from parley._node.protocol.event_types import LARGEST_NUMBER as LARGEST_NUMBER
from parley._node.protocol.event_types import LONGEST_CONSUMER as LONGEST_CONSUMER
from parley._node.protocol.event_types import LONGEST_ERROR as LONGEST_ERROR
from parley._node.protocol.event_types import LONGEST_ID as LONGEST_ID
from parley._node.protocol.event_types import LONGEST_TIME_MS as LONGEST_TIME_MS
from parley._node.protocol.event_types import LONGEST_WAIT_MS as LONGEST_WAIT_MS

# Rows of a whole listing, in many answers, that a client takes.
LONGEST_LISTING: Final = 1_000_000

# Streams `bus` of one connection; one more is reset with `overloaded`.
STREAMS: Final = 4
# Unanswered requests of one stream, and, of a connection's, Reads and Historys that wait; one more
# is answered with code 19. A client keeps to half of the first.
REQUESTS: Final = 256
WAITING_READS: Final = 64
# Requests without a wait, but with answers that may be long, that are worked on side by side on one
# stream: others wait until such an answer was sent.
LARGE_ANSWERS: Final = 8
# Consumers of groups (name, group, consumer) that one stream may speak for; for one more it is
# answered with code 19. A store remembers each for `consumer_ttl`.
CONSUMERS: Final = 1_024
# Seconds that a Read or History may wait before `allow` is asked again about it.
ASKED_AGAIN_AFTER: Final = 1.0
# Bytes of requests that are worked on, and of answers that have yet to be sent, on one stream:
# above that no more is read from it, and its sender runs out of credit.
IN_HAND: Final = 4 * 2**20
# Bytes that an answer with events has at most, unless one event alone is more.
ANSWER_SIZE: Final = 256 * 1024
# Bytes of an answer beside its rows.
ANSWER_HEAD: Final = 64
# Ids handed out on one stream that may be acknowledged there; also those of all streams of one
# node that ended. Beyond that the oldest are forgotten: they come again once they were idle.
HANDED: Final = 65_536

# Seconds for which what was taken from the store, but did not fit into an answer, is kept for
# the next Read.
KEPT_FOR: Final = 5.0
# Bytes of that, of one stream; the rest is given back at once.
KEPT_SIZE: Final = 4 * 2**20
# For an event that no answer of the connection has room for: seconds until it is handed out again
# (perhaps to others), and how often before it is set aside.
TOO_LARGE_DELAY: Final = 10.0
TOO_LARGE_ATTEMPTS: Final = 5
