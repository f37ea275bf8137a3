"""Calls, and what else is said in events of categories 3 and up. Pure: no I/O, no time."""
