"""Summaries of the events that a task reads, so that gold need not read the events again.

Summaries of ranges, of batches and of the whole input have the same form. `kinds` merges several
into one, from which gold is computed. Rows of silver are read again only where two journals differ.
This package uses no Spark or files.
"""
