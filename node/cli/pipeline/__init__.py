"""`parley pipeline`: from journals to tables and a report, on Apache Spark."""
