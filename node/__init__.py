"""The node: its connections, handlers, bus, journal and command line. Users import `parley`."""
