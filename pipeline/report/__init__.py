"""The report: one HTML page of the gold tables, for people, that opens anywhere.

The page has one script, its own, and loads nothing; every name in it was chosen by a stranger.
`pipeline.report.page` writes it.
"""
