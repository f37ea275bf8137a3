"""Loads the application of `parley run`: `module:name`, a Node or a function that takes one.

The function registers handlers. If it returns an asynchronous context manager, that is entered
once the node runs and left when the node has drained.
"""

import inspect
import sys
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from parley._node.cli.options import SHARED, NodeOptions
from parley._node.config import NodeConfig
from parley._node.errors import ConfigError, ParleyError
from parley._node.handlers.introspection import TOPICS_CALL
from parley._node.journal.journal import Journal
from parley._node.node import Node
from parley._node.settings import Settings

# What a module has, if only the module is named: the first of these that is there.
NAMES: Final = ("node", "app")
# Options that say nothing of the node itself.
_OF_THE_PROCESS: Final = ("loop", "uvloop", "log_level", "log_format", "as_json")


class Application:
    """`target` names it; its module is looked for in `directory` first. With `tells` peers may ask
    what it offers (`parley.topics`), unless it says itself who may.

    Raises:
        ConfigError: there is no such thing, or it is neither a Node nor a function of one.
    """

    def __init__(self, target: str, directory: Path, *, tells: bool = True) -> None:
        self.target = target
        self._tells = tells
        found = _found(target, directory)
        self._node = found if isinstance(found, Node) else None
        self._function: Callable[[Node], Any] | None = None
        if self._node is None:
            if isinstance(found, type) or not callable(found):
                raise ConfigError(f"{target} is neither a Node nor a function that is given one")
            self._function = found

    def own_node(self, options: NodeOptions, journal: Journal | None = None) -> Node | None:
        """The node that the module has made, if it has; `options` are over the settings.

        Raises:
            ConfigError: options, settings or a journal are for it, and would change nothing.
        """
        if self._node is None:
            return None
        unsaid = NodeOptions().over(Settings())
        said = [
            "--" + name.removesuffix("_path").replace("_", "-")
            for name in SHARED
            if name not in _OF_THE_PROCESS and getattr(options, name) != getattr(unsaid, name)
        ]
        if options.base != NodeConfig():
            said.append("[node] of the settings")
        if journal is not None:
            said.append("a journal")
        if said:
            raise ConfigError(
                f"{self.target} is a Node, which its module has made: {', '.join(said)} would "
                "change nothing; name a function that is given the node in its place"
            )
        return self._node

    @asynccontextmanager
    async def offered(self, node: Node) -> AsyncIterator[None]:
        """Have the running node offer it.

        Raises:
            ConfigError: its function fails, or what it gives is nothing that can be entered.
        """
        async with AsyncExitStack() as entered:
            try:
                given = None if self._function is None else await self._given(node, self._function)
                if given is not None:
                    await entered.enter_async_context(given)
            except ParleyError:
                raise
            except Exception as error:  # an application may fail in any way
                raise _failed(f"{self.target} failed", error) from error
            self._tell(node)
            yield
            if given is not None:
                await node.aclose()  # its handlers may use what is left now

    async def _given(
        self, node: Node, function: Callable[[Node], Any]
    ) -> AbstractAsyncContextManager[object] | None:
        given = function(node)
        if inspect.isawaitable(given):
            given = await given
        if given is None or isinstance(given, AbstractAsyncContextManager):
            return given
        raise ConfigError(
            f"{self.target} gave {type(given).__name__}, which is not an asynchronous context "
            "manager: is @asynccontextmanager missing?"
        )

    def _tell(self, node: Node) -> None:
        if self._tells and not node.handlers.calls.has(TOPICS_CALL):
            node.offer_topics()


def _found(target: str, directory: Path) -> Any:
    place, colon, name = target.partition(":")
    if not place or (colon and not name) or place.endswith(".py") or "/" in place:
        raise ConfigError(f"{target!r} is not module:name, such as shop:app or shop.nodes:node")
    module = _imported(place, directory)
    for one in [name] if name else NAMES:
        found: Any = module
        for part in one.split("."):
            found = getattr(found, part, None)
        if found is not None:
            return found
    raise ConfigError(f"{place} has no {name or ' and no '.join(NAMES)}")


def _imported(place: str, directory: Path) -> ModuleType:
    """The module, which is the application's.

    Raises:
        ConfigError: it is not there, or fails; the text says where.
    """
    if place.partition(".")[0] == "parley":
        raise ConfigError(f"{place} is a module of Parley itself: call yours something else")
    sys.path.insert(0, str(directory.resolve()))
    try:
        return import_module(place)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{place}.".startswith(f"{error.name}."):
            raise ConfigError(f"there is no module {place} in {directory.resolve()}") from error
        raise _failed(f"{place} cannot be imported", error) from error
    except Exception as error:  # an application may fail in any way
        raise _failed(f"{place} cannot be imported", error) from error


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
