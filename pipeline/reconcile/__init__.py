"""Comparison of the two journals of a session, and of the records of neighbours in a tunnel.

A finding is a fault only if the two journals cannot both be complete and true. Differences that a
broken connection or a crash explains are reported as such. This package uses neither files nor
Spark.
"""
