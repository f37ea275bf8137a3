"""The tables that people look at, each made from silver by a function of its own.

One rule: a table is made anew from silver as a whole, so nothing has to be undone. Knows no
journals; where tables are kept is in `refresh`.
"""
