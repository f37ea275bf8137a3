"""The tables that people look at, each made from a summary by a function of its own.

A summary (`pipeline.summary`) has what gold needs of all events, so what a new batch costs does not
grow with the events before it. `refresh` knows where tables are kept; nothing here knows journals.
"""
