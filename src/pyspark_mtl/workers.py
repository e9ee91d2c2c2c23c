"""Spark's Python workers, where they cost what the connector can spare.

A worker that is used again collects all garbage after each use (pyspark.daemon), and looks at everything that its
modules are made of. A micro-batch uses several workers, each of which is busy with that when it is wanted next. So what
is loaded is set aside (gc.freeze), and a collection looks at what came since.
"""

from __future__ import annotations

import gc
import os
import sys

_REUSED = "SPARK_REUSE_WORKER"
"""Spark sets it where a worker is used again, and nowhere else: nobody's own process is touched."""

_modules = 0


def set_modules_aside() -> None:
    """Let later collections pass over what this worker has loaded. What is garbage by now stays, too: so it is done
    once for each load of modules, not for each use.
    """
    global _modules
    if _REUSED in os.environ and len(sys.modules) > _modules:
        _modules = len(sys.modules)
        gc.freeze()
