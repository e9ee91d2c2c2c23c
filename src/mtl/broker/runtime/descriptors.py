"""How many files this process may have open."""

from __future__ import annotations

import logging
import resource

log = logging.getLogger("mtl.broker")


def raise_file_limit() -> None:
    """As many open files as the system lets this process have: logs take some hundred, each connection one."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except (ValueError, OSError) as error:  # macOS says that there is no limit, and takes none for an answer
        log.warning("this process may have %d files open: %s", now, error)
