"""The limits of federation (docs/protocol.md sections 14 and 19). Sizes are bytes, times seconds
unless the name says otherwise; those of the wire's shapes are in `node/protocol/federation_types`.
"""

from typing import Final

from parley._node.protocol.rate_limit import Rate

# Cards.
LARGEST_CARD: Final = 8 * 1024
MOST_LINKS: Final = 64
CARD_VALID: Final = 3_600.0
CARD_RENEWED: Final = 1_200.0
CARD_INTERVAL: Final = 5.0  # between two cards that something changed for
CARDS_OF_ORIGIN: Final = Rate(12, CARD_INTERVAL)  # that are taken; a restart makes one at once
FIRST_CARD: Final = 0.5  # after the first link, so that those that come up with it are in it
LINK_REMEMBERED: Final = 60.0  # a link that was open is listed for so long
NUMBER_KEPT: Final = 3_900.0  # after a card has expired
CLOCK_AHEAD: Final = 300.0
LEAST_LINK_PAYLOAD: Final = 128 * 1024

# Paths.
AVOIDED: Final = 10.0  # what a failed Dial named
MOST_AVOIDED: Final = 1_024
ATTEMPTS: Final = 3
LEAST_AWAITED: Final = 0.5  # plus the round trip: silence for less time proves nothing

# Tunnels.
LARGEST_TUNNEL_DATA: Final = 16_384
TUNNEL_MEMORY: Final = 80 * 1024  # in each direction
TUNNEL_IDLE: Final = 600.0
TUNNEL_EVICTABLE: Final = 60.0  # idle for so long, it makes way where a shared limit is reached
TUNNEL_LEFT: Final = 30.0  # as that, once one side has finished
HOP_ALLOWANCE: Final = 0.1  # a hop subtracts it, the elapsed time and the next round trip
ANSWER_ALLOWANCE: Final = HOP_ALLOWANCE / 2  # how much longer than the deadline one waits
TUNNELS_OF_LINK: Final = 256
TUNNELS_OF_ACCOUNT: Final = 16
DIALS_OF_LINK: Final = Rate(50, 1 / 50)
DIALS_OF_ACCOUNT: Final = Rate(10, 1 / 10)
LONGEST_TEXT: Final = 256  # characters of what an Answer says; of longer ones the rest is dropped
LONGEST_DIAL: Final = 60.0  # its deadline, whatever it says
MOST_DIALLERS: Final = 4_096  # nodes whose rate of Dials is remembered at once
