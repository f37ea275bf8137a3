"""The report: one self-contained HTML page of the gold tables for people to read.

The page has a single script of its own and loads nothing. Every name on it was chosen by an
untrusted peer. `pipeline.report.page` writes it.
"""
