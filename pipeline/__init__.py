"""The data pipeline over the nodes' journals, on Apache Spark.

`pipeline.spark` makes sessions, `pipeline.source` reads journals, `pipeline.bronze` takes them
in, batch by batch; all else makes tables of tables (docs/pipeline.md). Nothing here knows a
node's connections: only its journal, its protocol and its errors.
"""
