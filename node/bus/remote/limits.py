"""Limits on the requests, answers, streams and connections of a remote bus (section 16)."""

from typing import Final

# The limits of fields are defined with the event types.
from parley._node.protocol.event_types import LARGEST_COUNT as LARGEST_COUNT
from parley._node.protocol.event_types import LARGEST_NUMBER as LARGEST_NUMBER
from parley._node.protocol.event_types import LONGEST_CONSUMER as LONGEST_CONSUMER
from parley._node.protocol.event_types import LONGEST_ERROR as LONGEST_ERROR
from parley._node.protocol.event_types import LONGEST_ID as LONGEST_ID
from parley._node.protocol.event_types import LONGEST_TIME_MS as LONGEST_TIME_MS
from parley._node.protocol.event_types import LONGEST_WAIT_MS as LONGEST_WAIT_MS

# The most rows in a listing that a client accepts.
LONGEST_LISTING: Final = 1_000_000

# The most `bus` streams of one connection. A further one is reset with `overloaded`.
STREAMS: Final = 4
# The most unanswered requests of one stream, and waiting Reads and Historys of one connection.
# Further ones are answered with code 19. A client uses half of the first limit.
REQUESTS: Final = 256
WAITING_READS: Final = 64
# The most requests with long answers that run concurrently on one stream without waiting. Others
# wait until such an answer was sent.
LARGE_ANSWERS: Final = 8
# The most consumers (name, group, consumer) of one stream. A further one is answered with code 19.
# A store remembers each for `consumer_ttl`.
CONSUMERS: Final = 1_024
# If a Read or History waited longer than this, in seconds, `allow` is checked again.
ASKED_AGAIN_AFTER: Final = 1.0
# The size of requests in progress and unsent answers of one stream above which reading pauses, so
# that the sender runs out of credit.
IN_HAND: Final = 4 * 2**20
# The maximum size of an answer with events, unless a single event is larger.
ANSWER_SIZE: Final = 256 * 1024
# The size of an answer without its rows.
ANSWER_HEAD: Final = 64
# The most unacknowledged IDs remembered for one stream, and for all ended streams of a node. Beyond
# that the oldest are forgotten, and redelivered after their idle time.
HANDED: Final = 65_536

# How long events that did not fit into an answer are kept for the next Read, in seconds.
KEPT_FOR: Final = 5.0
# The size of kept events of one stream. Others are released immediately.
KEPT_SIZE: Final = 4 * 2**20
# For an event that is too large for any answer of the connection: seconds until it is redelivered
# (perhaps to another consumer), and attempts until it becomes a dead letter.
TOO_LARGE_DELAY: Final = 10.0
TOO_LARGE_ATTEMPTS: Final = 5
