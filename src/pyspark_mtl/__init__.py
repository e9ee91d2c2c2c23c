"""Apache Spark connector: MTL resources as streaming and batch DataFrames, exactly once at both ends."""

__version__ = "0.1.0"
