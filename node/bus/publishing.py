"""Publishing: what is checked before an event is stored, and what is done when nobody answers.

One rule: an event is published once by who has a key for it, and never again by who has none: then
nobody knows whether it was. `Bus` is one. Knows no groups.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from node.bus.body import Data, encode_body
from node.bus.consuming.patience import PAUSES, fraction
from node.bus.errors import BusError, BusUnavailableError, InvalidEventError
from node.bus.model import NewEvent, Published
from node.bus.names import check_key, split_name
from node.bus.opened import Opened
from node.bus.schemas import When
from node.config import Range, require_in_range
from node.logs import one_line
from node.transport.waiting import pause

logger = logging.getLogger("parley.bus")

# Seconds for which publishing with an idempotency key is tried again.
PUBLISH_TIMEOUT: Final = 30.0
LARGEST_VERSION: Final = 2**31 - 1


class Publishing(Opened):
    """The publishers' side of a bus."""

    async def publish(
        self,
        name: str,
        data: Data,
        *,
        idempotency_key: str | None = None,
        version: int = 1,
        durable: bool = True,
        timeout: float = PUBLISH_TIMEOUT,
    ) -> str:
        """Store an event; returns its id, once it is on disk as far as the store can say so
        (docs/bus.md), or with `durable` False once it is safe from the end of the process that
        stores it.

        An event whose `idempotency_key` was published on the same name within the window is not
        stored again, and the id is that one's. With a key it is therefore tried again for
        `timeout` seconds while the store gives no answer. Cancelled, it may have been stored.

        Raises:
            InvalidEventError: it has a name, data, key or version that no event may have; as
                SchemaViolationError, data that its schema does not allow. BusUnavailableError:
                no answer; it may have been stored. BusClosedError: the bus is closed; if it was
                closed meanwhile, the same. BusFullError, BusBusyError and other BusErrors: it
                was not.
        """
        event = self._new_event(name, data, idempotency_key, version)
        store = self.store if self.is_open else await self.opened()
        if idempotency_key is None:
            (published,) = await store.publish((event,), durable=durable)
        else:
            published = await self._publish_again(event, durable, timeout)
        if not published.duplicate:
            self.counters.published += 1
        return published.id

    async def publish_many(
        self, name: str, items: Iterable[Data], *, version: int = 1, durable: bool = True
    ) -> list[str]:
        """Store events, all or none of them, in this order; their ids. Raises as `publish`."""
        events = [self._new_event(name, data, None, version) for data in items]
        if not events:
            return []
        store = await self.opened()
        published = await store.publish(events, durable=durable)
        self.counters.published += len(published)
        return [one.id for one in published]

    def schema(
        self, name: str, schema: Mapping[str, Any] | bool, *, validate: When = "both"
    ) -> None:
        """Give the events of a name, or of an API (`auth.*`), a JSON schema: data that it does not
        allow is not published (SchemaViolationError), and when it is consumed it is set aside
        instead of being handed out. `validate` may be only one of the two.

        Raises:
            ParleyError: there is one. InvalidEventError: it is no such name. ConfigError: it is
                no JSON schema, refers to what is not in it, or `jsonschema` is not installed.
        """
        self.schemas.add(name, schema, validate)

    # Inside.

    def _new_event(self, name: str, data: Data, key: str | None, version: int) -> NewEvent:
        split_name(name)
        if key is not None:
            check_key(key)
        if type(version) is not int or not 1 <= version <= LARGEST_VERSION:
            raise InvalidEventError(f"{version!r} is no version: 1 to {LARGEST_VERSION:,}")
        body = encode_body(data, self.config.max_event_bytes)
        if self.schemas:
            self.schemas.check_published(name, data)
        return NewEvent(name, data, body, key, version)

    async def _publish_again(self, event: NewEvent, durable: bool, timeout: float) -> Published:
        require_in_range("timeout", timeout, Range(0))
        loop, failures = self.loop, 0
        deadline = loop.now() + timeout
        unknown: BusUnavailableError | None = None
        while True:
            try:
                store = await self.opened()
                (published,) = await store.publish((event,), durable=durable)
            except BusUnavailableError as error:
                failures, unknown = failures + 1, error
                seconds = PAUSES.after(failures, fraction())
                if loop.now() + seconds > deadline:
                    raise
                logger.info("publishing %s again: %s", event.name, one_line(str(error)))
                await pause(loop, seconds)
            except BusError as error:
                if unknown is None:
                    raise
                # This try stored nothing; of the one before nobody knows.
                raise BusUnavailableError(f"{unknown}; and when tried again: {error}") from error
            else:
                return published
