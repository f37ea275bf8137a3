"""The gold tables, each computed from a summary by its own function.

A summary (`pipeline.summary`) contains all the event data that gold needs, so the cost of a new
batch doesn't grow with the number of earlier events. `refresh` manages where tables are stored.
"""
