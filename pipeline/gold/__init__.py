"""The tables that people look at, each made from silver by a function of its own.

A table is made anew from silver as a whole, so nothing ever has to be undone. `refresh` knows where
tables are kept; nothing here knows journals.
"""
