"""An identifier of this machine, by which two processes find out whether they run on the same one."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@cache
def machine_mark() -> str | None:
    """A hash of the boot id: the same for all processes of this machine since it was started. None without a boot id.

    The boot id itself is not revealed. Containers share their host's mark but not its files, so with equal marks the
    files may still be out of reach.
    """
    try:
        boot = _BOOT_ID.read_bytes()
    except OSError:
        return None
    return hashlib.sha256(b"mtl " + boot).hexdigest()[:32]
