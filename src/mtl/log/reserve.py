"""File descriptors that only storage uses: those between the soft and the hard limit of the process.

libzmq accepts connections up to the soft limit, and nothing can stop it. A descriptor that is kept for storage would go
to the next connection as soon as it is closed. So the soft limit is below the hard one, and is raised for the moment in
which a file is opened that finds no descriptor otherwise.
"""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable
from typing import TypeVar

from mtl.log.limits import OPEN_FILES, RESERVED_FILES

T = TypeVar("T")

_lock = threading.Lock()


def reserved_files() -> int:
    """Descriptors that only storage uses; none where the system reports no hard limit (macOS)."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return 0 if hard == resource.RLIM_INFINITY else min(RESERVED_FILES, hard // 4)


def files_at_once() -> int:
    """Log files that may be open at a time: OPEN_FILES, or fewer where a process may have few."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, max(16, hard // 8))


def with_reserve(work: Callable[[], T]) -> T:
    """Call `work`, which may open files of the reserve."""
    with _lock:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        try:
            return work()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
