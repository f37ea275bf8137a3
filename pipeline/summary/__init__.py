"""What a task counts of the events that it reads, so that gold need not read them again.

Summaries of ranges, of batches and of all there is have the same form: `kinds` merges several into
one, and gold is made of that. Rows of silver are read again only where two journals differ.
Nothing here knows Spark or files.
"""
