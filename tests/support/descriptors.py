"""Open descriptors of this process, by name: a count of all would include those that other tests leave to the
collector.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def descriptors(prefix: str) -> list[int]:
    """The inodes of open descriptors whose name starts with this prefix, including deleted files."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            if str(descriptor.readlink()).startswith(prefix):
                found.append(descriptor.stat().st_ino)
    return found
