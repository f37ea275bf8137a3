"""The data pipeline that analyses the journals of nodes with Apache Spark (docs/pipeline.md).

`spark` opens Spark sessions, `spark_source` reads journals, and `bronze` ingests them in batches.
All other modules derive tables from tables. The pipeline depends only on a node's journal, protocol
and errors.
"""

if not __name__.startswith("parley."):
    raise ImportError("import parley._pipeline", name=__name__)
