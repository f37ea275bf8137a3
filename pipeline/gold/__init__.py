"""The gold tables, each made from a summary by a function of its own.

A summary (`pipeline.summary`) has what gold needs of all events, so the cost of a new batch doesn't
grow with earlier events. `refresh` knows where tables are stored.
"""
