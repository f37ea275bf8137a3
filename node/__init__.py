"""The node: its connections, handlers, bus, journal and command line. Users import `parley`."""

if not __name__.startswith("parley."):
    raise ImportError("import parley._node", name=__name__)

VERSION = "0.1.0"
