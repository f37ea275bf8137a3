"""The command line `parley`."""
