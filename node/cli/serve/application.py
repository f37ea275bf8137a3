"""Load the application of `parley run`: `module:name`, a Node or a function that accepts one.

The function registers handlers. If it returns an asynchronous context manager, that is entered when
the node runs and exited when the node has drained.
"""

import inspect
import sys
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from parley._node.cli.options import SHARED, NodeOptions
from parley._node.errors import ConfigError, ParleyError
from parley._node.handlers.introspection import TOPICS_CALL
from parley._node.journal.journal import Journal
from parley._node.node import Node
from parley._node.settings import Settings

# Names to try if only a module is given.
NAMES: Final = ("node", "app")
# Options that don't concern the node itself.
_OF_THE_PROCESS: Final = ("loop", "uvloop", "log_level", "log_format", "as_json")


class Application:
    """The application that `target` names, in a module that is searched for in `directory` first.

    With `offers_topics`, peers can list what the application offers (`parley.topics`), unless it
    registers that call itself.

    Raises:
        ConfigError: it doesn't exist, or is neither a Node nor a function that accepts one.
    """

    def __init__(self, target: str, directory: Path, *, offers_topics: bool = True) -> None:
        self.target = target
        self._offers_topics = offers_topics
        found = _found(target, directory)
        self._node = found if isinstance(found, Node) else None
        self._function: Callable[[Node], Any] | None = None
        if self._node is None:
            if isinstance(found, type) or not callable(found):
                raise ConfigError(
                    f"cannot run {target!r}: it is neither a Node nor a function that accepts one"
                )
            self._function = found

    def own_node(self, options: NodeOptions, journal: Journal | None = None) -> Node | None:
        """Return the node of the module; None for a function. `options` have the settings.

        Raises:
            ConfigError: options, settings or a journal are given, which can't change that node.
        """
        if self._node is None:
            return None
        unset = NodeOptions().with_settings(Settings())
        given = [
            "--" + name.removesuffix("_path").replace("_", "-")
            for name in SHARED
            if name not in _OF_THE_PROCESS and getattr(options, name) != getattr(unset, name)
        ]
        if options.config != replace(options, settings=None).config:
            given.append("[node] of the settings")
        if journal is not None:
            given.append("a journal")
        if given:
            raise ConfigError(
                f"cannot apply {', '.join(given)} to {self.target!r}: its module creates the "
                "Node; name a function that accepts a node instead"
            )
        return self._node

    @asynccontextmanager
    async def running(self, node: Node) -> AsyncIterator[None]:
        """Call the function with the running node, and enter the context manager that it returns,
        if any.

        Raises:
            ConfigError: the function fails or returns something else.
        """
        async with AsyncExitStack() as entered:
            try:
                given = None if self._function is None else await self._call(node, self._function)
                if given is not None:
                    await entered.enter_async_context(given)
            except ParleyError:
                raise
            except Exception as error:  # an application can raise any error
                raise _failed(f"cannot run {self.target!r}", error) from error
            if self._offers_topics and not node.handlers.calls.has(TOPICS_CALL):
                node.offer_topics()
            yield
            if given is not None:
                await (
                    node.aclose()
                )  # drain first: handlers may still use the application's resources

    async def _call(
        self, node: Node, function: Callable[[Node], Any]
    ) -> AbstractAsyncContextManager[object] | None:
        given = function(node)
        if inspect.isawaitable(given):
            given = await given
        if given is None or isinstance(given, AbstractAsyncContextManager):
            return given
        raise ConfigError(
            f"cannot run {self.target!r}: it returned {type(given).__name__}, which is not an "
            "asynchronous context manager; is @asynccontextmanager missing?"
        )


def _found(target: str, directory: Path) -> Any:
    place, colon, name = target.partition(":")
    if not place or (colon and not name) or place.endswith(".py") or "/" in place:
        raise ConfigError(
            f"invalid MODULE:NAME {target!r}: expected, for example, shop:app or shop.nodes:node"
        )
    module = _imported(place, directory)
    for one in [name] if name else NAMES:
        found: Any = module
        for part in one.split("."):
            found = getattr(found, part, None)
        if found is not None:
            return found
    raise ConfigError(
        f"cannot find {name or ' or '.join(NAMES)} in the module {place!r}; name the node or "
        "function as MODULE:NAME"
    )


def _imported(place: str, directory: Path) -> ModuleType:
    """Import the module of the application.

    Raises:
        ConfigError: it doesn't exist or fails; the message names the line.
    """
    if place.partition(".")[0] == "parley":
        raise ConfigError(f"cannot run {place!r}: the name belongs to Parley; rename your module")
    sys.path.insert(0, str(directory.resolve()))
    try:
        return import_module(place)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{place}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"cannot import the module {place!r}: it does not exist in "
                f"{directory.resolve()}; see --app-dir"
            ) from error
        raise _failed(f"cannot import the module {place!r}", error) from error
    except Exception as error:  # an application can raise any error
        raise _failed(f"cannot import the module {place!r}", error) from error


def _failed(what: str, error: Exception) -> ConfigError:
    if isinstance(error, SyntaxError):
        where = f"{error.filename}, line {error.lineno}"
    else:
        frames = traceback.extract_tb(error.__traceback__)
        where = f"{frames[-1].filename}, line {frames[-1].lineno}"
        ours = [frame for frame in frames if not frame.filename.startswith("<")]
        if ours:
            where = f"{ours[-1].filename}, line {ours[-1].lineno}"
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return ConfigError(f"{what}: {type(error).__name__}: {text} ({where})")
