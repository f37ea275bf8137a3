"""Calls, topics and named events: the messages of event categories 3 and above. Does no I/O."""
