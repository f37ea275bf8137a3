"""All findings in one table: the audit's and the reconciliation's, by weight.

One rule: a kind weighs what `kinds` says, and one that it does not know weighs as a fault.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from pipeline.gold.kinds import FAULT, KINDS
from pipeline.reconcile import FINDING_COLUMNS, reconcile


def findings(
    events: DataFrame, silver_sessions: DataFrame, silver_findings: DataFrame
) -> DataFrame:
    """Columns: weight, and `FINDING_COLUMNS`."""
    weights = f.create_map(
        *(f.lit(part) for kind, known in KINDS.items() for part in (kind, known.weight))
    )
    found = silver_findings.select(*FINDING_COLUMNS).unionByName(reconcile(events, silver_sessions))
    weight = f.coalesce(f.try_element_at(weights, f.col("kind")), f.lit(FAULT))
    return found.select(weight.alias("weight"), *FINDING_COLUMNS)
