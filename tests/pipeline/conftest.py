"""The one Spark session of all tests of the pipeline, and small journals to read.

Tests that take `spark` are marked `spark` and `xdist_group("spark")`, and are in here: one
process has them all, and one Java (tests/scheduling.py).
"""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from parley._pipeline.spark import open_session

# Seconds for one test.
PATIENCE = 240
# A Java that starts sooner, for jobs that are over before it would be warm.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two cores of this machine."""
    session = open_session(
        "parley tests",
        master="local[2]",
        memory="1g",
        java_options=JAVA_OPTIONS,
        settings={
            "spark.sql.shuffle.partitions": "2",
            # For a few rows, compiling a plan takes longer than interpreting it.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.local.dir": str(tmp_path_factory.mktemp("spark")),
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        },
    )
    yield session
    session.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Jobs of seconds take minutes on a machine that is busy with other tests."""
    for item in items:
        if item.get_closest_marker("spark") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(PATIENCE))
