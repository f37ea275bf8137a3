"""`Namespace`: handlers of named events that belong together, as a class.

One rule: it only says what there is; `Node.add_namespace` registers it.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeVar

from node.errors import ConfigError
from node.handlers.rules import Allow
from node.protocol.codes import Supercategory

H = TypeVar("H", bound=Callable[..., Any])

_MARK: Final = "__parley_event__"


@dataclass(frozen=True, slots=True)
class Declared:
    """What was declared of one method; the options are those of `Offering.on`."""

    name: str
    allow: Allow | None
    supercategories: Collection[Supercategory] | None
    concurrency: int | None


class Namespace:
    """Handlers of named events under one `name`: methods that `on_event` marks."""

    name: ClassVar[str] = ""

    def handlers(self) -> Iterator[tuple[Declared, Callable[..., Any]]]:
        """What was declared, with the bound method; a subclass's goes before its base's.

        Raises:
            ConfigError: it has no name.
        """
        if not self.name:
            raise ConfigError(f"{type(self).__name__} has no name: it is the namespace")
        for attribute in dir(type(self)):
            declared = getattr(getattr(type(self), attribute), _MARK, None)
            if isinstance(declared, Declared):
                yield declared, getattr(self, attribute)


def on_event(
    name: str,
    *,
    allow: Allow | None = None,
    supercategories: Collection[Supercategory] | None = None,
    concurrency: int | None = None,
) -> Callable[[H], H]:
    """Mark a method of a Namespace as the handler of its events of this name; the options
    are those of `Node.on`."""

    def mark(method: H) -> H:
        setattr(method, _MARK, Declared(name, allow, supercategories, concurrency))
        return method

    return mark
