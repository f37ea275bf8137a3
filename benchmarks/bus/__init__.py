"""How fast the bus is: `python -m benchmarks.bus`, and `python -m benchmarks.bus.stored`.

Beside it, in the same run and on the same disk or the same redis-server: Lightbus, bare Redis
Streams, a bare loop of commits of sqlite3 and a bare loop of fsync. All sides take turns in
each round, each with a store of its own that was empty.
"""
