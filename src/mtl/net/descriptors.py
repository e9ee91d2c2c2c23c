"""The limit of open files of a process that serves: each connection takes one."""

from __future__ import annotations

import logging
import resource

log = logging.getLogger("mtl.net")


def raise_file_limit(reserved: int = 0) -> None:
    """Raise the limit of open files to the system's maximum: 1,024, the usual default, is fewer than a server's own
    limits of connections. `reserved` files are left between the soft and the hard limit.
    """
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most - reserved, most))
    except (ValueError, OSError) as error:  # macOS reports no limit, but refuses to set none
        log.warning("this process may have %d files open: %s", now, error)
