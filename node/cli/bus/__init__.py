"""Commands of `parley bus`."""
