"""Both ends' journals of a session side by side, and those of a tunnel's neighbouring hops.

A finding is a fault only where the two journals cannot both be whole and true; what a broken
connection or a crash explains is reported as such. Nothing here knows files or Spark.
"""
