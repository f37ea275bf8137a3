"""The limits of federation (docs/protocol.md sections 14, 19 and 22).

Sizes are in bytes and times in seconds, unless the name specifies another unit. The limits of the
wire format are in `node.protocol.event_types`.
"""

from typing import Final

from parley._node.protocol.flow_control import LARGEST_TUNNEL_DATA, LARGEST_TUNNEL_WINDOW
from parley._node.protocol.rate_limit import Rate

# Cards.
LARGEST_CARD: Final = 8 * 1024
MOST_LINKS: Final = 64
CARD_VALID: Final = 3_600.0
CARD_RENEWED: Final = 1_200.0
CARD_INTERVAL: Final = 5.0  # between two cards with changes
CARDS_OF_ORIGIN: Final = Rate(
    12, CARD_INTERVAL
)  # accepted per origin; a restart makes one immediately
FIRST_CARD: Final = 0.5  # after the first link, to include links that come up at the same time
LINK_REMEMBERED: Final = 60.0  # how long a closed link is still listed
NUMBER_KEPT: Final = 3_900.0  # after a card has expired
CLOCK_AHEAD: Final = 300.0
LEAST_LINK_PAYLOAD: Final = 128 * 1024

# Statements of a link (section 22): events sent, and events accepted.
STATEMENT_EVENTS: Final = Rate(12, 5.0)
STATEMENT_EVENTS_ACCEPTED: Final = Rate(24, 2.5)

# Paths.
AVOIDED: Final = 10.0  # an obstacle named by a failed Dial
MOST_AVOIDED: Final = 1_024
ATTEMPTS: Final = 3
LEAST_AWAITED: Final = 0.5  # plus the round trip; a shorter silence is not evidence of a failure

# Tunnels.
TUNNEL_MEMORY: Final = LARGEST_TUNNEL_WINDOW + LARGEST_TUNNEL_DATA  # per direction
TUNNEL_IDLE: Final = 600.0
TUNNEL_EVICTABLE: Final = (
    60.0  # idle tunnels can be evicted after this time when a shared limit is reached
)
TUNNEL_LEFT: Final = 30.0  # the same, once one side has finished
HOP_ALLOWANCE: Final = 0.1  # each hop subtracts it, the elapsed time and the next round trip
ANSWER_ALLOWANCE: Final = HOP_ALLOWANCE / 2  # added to the deadline when waiting for an Answer
TUNNELS_OF_LINK: Final = 256
TUNNELS_OF_ACCOUNT: Final = 16
DIALS_OF_LINK: Final = Rate(50, 1 / 50)
DIALS_OF_ACCOUNT: Final = Rate(10, 1 / 10)
LONGEST_TEXT: Final = 256  # maximum characters of the text in an Answer; the rest is cut off
LONGEST_DIAL: Final = 60.0  # the maximum deadline
MOST_DIALLERS: Final = 4_096  # maximum number of nodes whose rate of Dials is tracked
