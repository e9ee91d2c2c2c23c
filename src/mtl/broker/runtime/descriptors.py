"""The limit of open files of this process."""

from __future__ import annotations

import logging
import resource

log = logging.getLogger("mtl.broker")


def raise_file_limit() -> None:
    """Raise the limit of open files to the system's maximum: logs take some hundred, each connection takes one."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except (ValueError, OSError) as error:  # macOS reports no limit, but refuses to set none
        log.warning("this process may have %d files open: %s", now, error)
