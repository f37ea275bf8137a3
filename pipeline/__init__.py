"""The data pipeline over the nodes' journals, on Apache Spark (docs/pipeline.md).

`spark` opens sessions, `source` reads journals, `bronze` ingests them in batches; everything else
makes tables from tables. Of a node, only its journal, protocol and errors are known here.
"""

if not __name__.startswith("parley."):
    raise ImportError("import parley._pipeline", name=__name__)
