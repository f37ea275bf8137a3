"""What a peer may ask of a bus: one record for each event of category 6 but its answer.

One rule: a field's name says which cell it is (`cells.py`), its default that the cell may be
absent. `name` is an event's, which names its stream; `stream` may be `API.*` too, as stores call
one that has all events of an API. Durations are seconds, as in `Store`. Knows no bytes.
"""

from typing import Final, NamedTuple, TypeAlias

from node.protocol.codes import BusType


class Given(NamedTuple):
    """An event to be published; `body` is yet to be checked."""

    name: str
    body: str
    key: str | None
    version: int


class Publish(NamedTuple):
    events: list[Given]
    durable: bool = True


class Join(NamedTuple):
    name: str
    group: str
    consumer: str
    after: str


class Read(NamedTuple):
    name: str
    group: str
    consumer: str
    number: int
    wait: float = 0.0


class Own(NamedTuple):
    name: str
    group: str
    consumer: str
    number: int


class Claim(NamedTuple):
    name: str
    group: str
    consumer: str
    number: int
    idle: float


class Touch(NamedTuple):
    name: str
    group: str
    consumer: str
    ids: list[str]


class Ack(NamedTuple):
    name: str
    group: str
    ids: list[str]


class Nack(NamedTuple):
    name: str
    group: str
    consumer: str
    id: str
    delay: float
    error: str


class Release(NamedTuple):
    name: str
    group: str
    consumer: str
    ids: list[str]


class Bury(NamedTuple):
    name: str
    group: str
    consumer: str
    id: str
    error: str


class Streams(NamedTuple):
    after_name: str = ""


class Groups(NamedTuple):
    stream: str
    after_name: str = ""


class Consumers(NamedTuple):
    stream: str
    group: str
    after_name: str = ""


class Pending(NamedTuple):
    stream: str
    group: str
    number: int
    after_id: str


class History(NamedTuple):
    stream: str
    number: int
    after: str
    until: str | None = None
    wait: float = 0.0


class Rewind(NamedTuple):
    stream: str
    group: str
    after: str


class Redeliver(NamedTuple):
    stream: str
    group: str
    ids: list[str]


class TrimStream(NamedTuple):
    stream: str
    max_length: int | None = None
    before: str | None = None
    max_bytes: int | None = None
    approximate: bool = False


class Drop(NamedTuple):
    stream: str
    ids: list[str]


class RemoveConsumers(NamedTuple):
    stream: str
    group: str
    idle: float


class RemoveGroup(NamedTuple):
    stream: str
    group: str


Request: TypeAlias = (
    Publish
    | Join
    | Read
    | Own
    | Claim
    | Touch
    | Ack
    | Nack
    | Release
    | Bury
    | Streams
    | Groups
    | Consumers
    | Pending
    | History
    | Rewind
    | Redeliver
    | TrimStream
    | Drop
    | RemoveConsumers
    | RemoveGroup
)

REQUESTS: Final[dict[int, type[Request]]] = {
    BusType.PUBLISH: Publish,
    BusType.JOIN: Join,
    BusType.READ: Read,
    BusType.OWN: Own,
    BusType.CLAIM: Claim,
    BusType.TOUCH: Touch,
    BusType.ACK: Ack,
    BusType.NACK: Nack,
    BusType.RELEASE: Release,
    BusType.BURY: Bury,
    BusType.STREAMS: Streams,
    BusType.GROUPS: Groups,
    BusType.CONSUMERS: Consumers,
    BusType.PENDING: Pending,
    BusType.HISTORY: History,
    BusType.REWIND: Rewind,
    BusType.REDELIVER: Redeliver,
    BusType.TRIM: TrimStream,
    BusType.DROP: Drop,
    BusType.REMOVE_CONSUMERS: RemoveConsumers,
    BusType.REMOVE_GROUP: RemoveGroup,
}
TYPES: Final = {request: number for number, request in REQUESTS.items()}
