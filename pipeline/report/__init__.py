"""The report: one HTML page of the gold tables, for people, to be opened anywhere.

One rule: the page has no script and loads nothing, and every name in it was chosen by a
stranger. `pipeline.report.page.report` is the front.
"""
