"""The example copy_resource.py with the sink of `held`, for the notebook about exactly once."""

from __future__ import annotations

import copy_resource
from pyspark.sql import SparkSession

from demo_job.held import HeldSource

if __name__ == "__main__":
    SparkSession.builder.appName("copy").getOrCreate().dataSource.register(HeldSource)
    copy_resource.main()
