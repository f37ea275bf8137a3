"""The limits of a remote bus: of a request, an answer, a stream, a connection (docs/protocol.md
section 16)."""

from typing import Final

# The limits of fields are defined with the event types.
from parley._node.protocol.event_types import LARGEST_COUNT as LARGEST_COUNT
from parley._node.protocol.event_types import LARGEST_NUMBER as LARGEST_NUMBER
from parley._node.protocol.event_types import LONGEST_CONSUMER as LONGEST_CONSUMER
from parley._node.protocol.event_types import LONGEST_ERROR as LONGEST_ERROR
from parley._node.protocol.event_types import LONGEST_ID as LONGEST_ID
from parley._node.protocol.event_types import LONGEST_TIME_MS as LONGEST_TIME_MS
from parley._node.protocol.event_types import LONGEST_WAIT_MS as LONGEST_WAIT_MS

# The most rows of a listing that a client accepts.
LONGEST_LISTING: Final = 1_000_000

# Streams `bus` of one connection; one more is reset with `overloaded`.
STREAMS: Final = 4
# Unanswered requests of one stream, and waiting Reads and Historys of one connection; a further one
# is answered with code 19. A client uses half of the first.
REQUESTS: Final = 256
WAITING_READS: Final = 64
# Requests with possibly long answers, without a wait, executed concurrently on one stream: others
# wait until such an answer was sent.
LARGE_ANSWERS: Final = 8
# Consumers (name, group, consumer) of one stream; for a further one the answer is code 19. A store
# remembers each for `consumer_ttl`.
CONSUMERS: Final = 1_024
# After a Read or History has waited for so many seconds, `allow` is checked again.
ASKED_AGAIN_AFTER: Final = 1.0
# Bytes of requests in progress and unsent answers of one stream: above that its reading pauses, and
# the sender runs out of credit.
IN_HAND: Final = 4 * 2**20
# The most bytes of an answer with events, unless a single event is larger.
ANSWER_SIZE: Final = 256 * 1024
# Bytes of an answer without its rows.
ANSWER_HEAD: Final = 64
# Unacknowledged ids remembered for one stream, and for all ended streams of a node. Beyond that the
# oldest are forgotten: they are redelivered after they were idle.
HANDED: Final = 65_536

# Seconds for which events that did not fit into an answer are kept for the next Read.
KEPT_FOR: Final = 5.0
# Bytes of kept events of one stream; others are given back immediately.
KEPT_SIZE: Final = 4 * 2**20
# For an event that fits into no answer of the connection: seconds until it is redelivered (perhaps
# to others), and attempts until it becomes a dead letter.
TOO_LARGE_DELAY: Final = 10.0
TOO_LARGE_ATTEMPTS: Final = 5
