"""Comparison of both ends' journals of a session, and of the records of a tunnel's neighbours.

A finding is a fault only if the two journals cannot both be complete and true; what a broken
connection or a crash explains is reported as such. Nothing here knows files or Spark.
"""
