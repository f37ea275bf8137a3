"""The session factory: what a session has."""

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import parley
from parley._pipeline.spark import SESSION_SETTINGS

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def test_a_session_has_what_jobs_rely_on(spark: SparkSession) -> None:
    ours = {"spark.sql.shuffle.partitions": "2"}
    for key, value in {**SESSION_SETTINGS, **ours}.items():
        assert spark.conf.get(key) == value
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.conf.get("spark.ui.enabled") == "false"
    (row,) = spark.sql("select current_timezone() as zone").collect()
    assert row.zone == "UTC"
    # Workers find `parley`, and none of its parts under another name.
    assert spark.conf.get("spark.executorEnv.PYTHONPATH") == str(Path(parley.__file__).parents[1])
    # The environment is as it was.
    assert os.environ.get("SPARK_LOCAL_IP") is None
