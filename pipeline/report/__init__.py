"""The report: one HTML page of the gold tables, for people, that opens anywhere.

The page has no script and loads nothing, and every name in it was chosen by a stranger.
`pipeline.report.page.report` makes it.
"""
