"""The data pipeline over the nodes' journals, on Apache Spark (docs/pipeline.md).

`pipeline.spark` makes sessions, `pipeline.source` reads journals, and `pipeline.bronze` takes them
in, batch by batch; everything else makes tables from tables. Nothing here knows a node's
connections, only its journal, its protocol and its errors.
"""

if not __name__.startswith("parley."):
    raise ImportError("import parley._pipeline", name=__name__)
