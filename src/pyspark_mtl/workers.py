"""Reduces the cost of garbage collection in Spark's Python workers.

A worker that Spark reuses runs a full collection after each use (pyspark.daemon), which visits all objects of its
modules. A micro-batch uses several workers, and a worker may still be collecting when Spark needs it again. So the
objects of loaded modules are frozen (gc.freeze), and a collection visits only newer objects.
"""

from __future__ import annotations

import gc
import os
import sys

_REUSED = "SPARK_REUSE_WORKER"
"""Spark sets this variable only in workers that it reuses; other processes are left alone."""

_modules = 0


def set_modules_aside() -> None:
    """Exclude loaded objects from later collections. Garbage that exists at this time is never freed, so the
    function is called once for each load of modules, not for each use of the worker.
    """
    global _modules
    if _REUSED in os.environ and len(sys.modules) > _modules:
        _modules = len(sys.modules)
        gc.freeze()
