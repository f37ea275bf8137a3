"""The limits of the bus between nodes (docs/protocol.md section 16).

One rule: what bounds a request, an answer, a stream or a connection stands here, once, with its
unit. What happens beyond each is the codec's and the server's.
"""

from typing import Final

from node.bus.names import LONGEST_NAME

# Of one request: events in a Publish, ids, and what may be asked for; in a Streams, Groups or
# Consumers answer, rows.
LARGEST_COUNT: Final = 1_000
# Rows of a whole listing, of many answers, that a client takes.
LONGEST_LISTING: Final = 1_000_000
# Milliseconds that a Read or History may wait, and that idle and delay may be (about 34 years).
LONGEST_WAIT_MS: Final = 60_000
LONGEST_TIME_MS: Final = 2**40 - 1
# Characters of an id: two u64 and a hyphen.
LONGEST_ID: Final = 41
# Characters of what Nack and Bury say.
LONGEST_ERROR: Final = 500
# Characters of a node id as text, and of what goes before a peer's name of a consumer.
NODE_ID: Final = 52
LONGEST_CONSUMER: Final = LONGEST_NAME - NODE_ID - 1
# The version of an event that is published; a Trim's bounds.
LARGEST_VERSION: Final = 2**31 - 1
LARGEST_NUMBER: Final = 2**63 - 1

# Streams `bus` of one connection; one more is reset with `overloaded`.
STREAMS: Final = 4
# Unanswered requests of one stream, and among those of a connection Reads and Historys that
# wait; one more is answered with code 19. A client keeps to half of the first.
REQUESTS: Final = 256
WAITING_READS: Final = 64
# Requests without a wait whose answers may be long, that are worked on side by side on one stream:
# others wait until such an answer was sent.
LARGE_ANSWERS: Final = 8
# Consumers of groups (name, group, consumer) that one stream may speak for; for one more it is
# answered with code 19. A store remembers each that it ever saw for `consumer_ttl`.
PLACES: Final = 1_024
# Seconds that a Read or History may wait before it is asked again whether its peer may have it.
ASKED_AGAIN_AFTER: Final = 1.0
# Bytes of requests that are worked on, and of answers that are yet to be sent, on one stream:
# above that no more is read from it, and its sender runs out of credit.
IN_HAND: Final = 4 * 2**20
# Bytes that an answer with events has at most, unless one event alone is more.
ANSWER_SIZE: Final = 256 * 1024
# Bytes of an answer beside its rows.
ANSWER_HEAD: Final = 64
# Ids handed out on one stream that may be acknowledged there; also those of streams that ended,
# of one node. Beyond that the oldest are forgotten: they come again once they were idle.
HANDED: Final = 65_536

# Seconds for which what was taken from the store, but did not fit into an answer, is kept for
# the next Read.
KEPT_FOR: Final = 5.0
# Bytes of that, of one stream; what is more is given back at once.
KEPT_SIZE: Final = 4 * 2**20
# An event that no answer of the connection has room for: seconds until it is handed out again
# (to others, it may be), and how often before it is set aside.
TOO_LARGE_DELAY: Final = 10.0
TOO_LARGE_ATTEMPTS: Final = 5
