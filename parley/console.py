"""The web console, which shows an operator the state of a node (docs/guides/console.md)."""

from parley._node.logs import extra_required

with extra_required("parley.console", "console"):
    from parley._node.web.console.console import Console
    from parley._node.web.console.server import ServedConsole, serve_console

__all__ = ["Console", "ServedConsole", "serve_console"]
