"""A disk in memory that loses unsynced octets, fails, fills up and loses power on demand, controlled by its seed.

Every file has two images: one in the page cache, one on the disk. Between two syncs every page (4 KiB) may reach the
disk or not, in any of its versions since, and sometimes torn at a sector (512 octets); the same holds for the size of
the file. Changes of names (create, link, rename, remove) reach it in any subset until their directory is synced; a
rename is atomic. This module does not sleep, starts no thread and uses no real file.

    disk = FaultyDisk(random.Random(1))
    disk.fail("sync", nth=2)             # the second sync from now fails, and its pages are lost: clean in the cache
    disk.fail("write", error=errno.ENOSPC)
    disk.crash_after(17)                 # the 18th operation that changes something raises Crashed
    disk.crash()                         # power failure: unsynced octets survive or are lost
    disk.kill()                          # SIGKILL: all that was written is there
    disk.flip("/log/x.segment", 100, 3)  # a bit of the disk changes
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from mtl.errors import DirectoryInUse
from mtl.log.files import Mode
from tests.support.disk_images import DirectoryImage, FileImage, move, move_across, put, remove

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Crashed(BaseException):
    """The process has ended. Not an Exception: no code that handles failures may handle it."""


def _error(code: int, path: str = "") -> OSError:
    return OSError(code, os.strerror(code), path)


ANY = "any"
"""Every operation."""


@dataclass(eq=False)
class Rule:
    """A planned failure: `count` calls of `op` on matching paths, from the `nth` on."""

    op: str
    nth: int
    count: int
    when: Callable[[str], bool]
    error: int

    def fires(self, op: str, path: str) -> bool:
        if self.op not in {op, ANY} or not self.count or not self.when(path):
            return False
        self.nth -= 1
        if self.nth > 0:
            return False
        self.count -= 1
        return True


class FaultyFile:
    def __init__(self, disk: FaultyDisk, inode: FileImage, path: str, mode: Mode) -> None:
        self._disk = disk
        self._inode: FileImage | None = inode
        self._path = path
        self._mode = mode
        self._life = disk.life
        disk.open_files += 1
        self._failed: OSError | None = None

    def _open_inode(self, *, writing: bool = False) -> FileImage:
        self._disk.check_alive()
        if self._life != self._disk.life:
            raise Crashed
        if self._inode is None or (writing and self._mode == "read"):
            raise _error(errno.EBADF, self._path)
        return self._inode

    def size(self) -> int:
        return len(self._open_inode().data)

    def pread(self, size: int, offset: int) -> bytes:
        inode = self._open_inode()
        self._disk.maybe_fail("read", self._path)
        return bytes(inode.data[offset : offset + size])

    def writev(self, buffers: Sequence[Buffer], offset: int) -> int:
        inode = self._open_inode(writing=True)
        data = b"".join(memoryview(buffer).cast("B") for buffer in buffers)
        disk = self._disk
        room = max(0, disk.room(inode, offset + len(data)) - offset)
        if disk.interrupted("write", self._path):
            inode.write(data[: disk.rng.randint(0, min(len(data), room))], offset)
            disk.fail_now()
        if room < len(data):
            if not room:
                raise _error(errno.ENOSPC, self._path)
            data = data[:room]
        if disk.shortens(self._path) and len(data) > 1:
            data = data[: disk.rng.randrange(1, len(data))]
        inode.write(data, offset)
        return len(data)

    def truncate(self, size: int) -> None:
        inode = self._open_inode(writing=True)
        self._disk.step("truncate", self._path)
        inode.truncate(size)

    def begin_sync(self, offset: int, size: int) -> None:
        """Afterwards any of the pages may be on the disk."""
        inode = self._open_inode(writing=True)
        assert offset + size <= len(inode.data), "a sync would write octets that were never written"
        if self._disk.interrupted("begin_sync", self._path):
            self._failed = self._disk.pending()
            inode.lose(self._disk.rng)

    def sync(self) -> None:
        inode = self._open_inode()
        if self._failed is not None:
            raise self._failed
        if self._disk.interrupted("sync", self._path):
            if not self._disk.dead:
                inode.lose(self._disk.rng)
            self._disk.fail_now()
        inode.sync()

    def close(self) -> None:
        if self._inode is not None and self._life == self._disk.life:
            self._disk.open_files -= 1
        self._inode = None


class FaultyLock:
    def __init__(self, disk: FaultyDisk, directory: str) -> None:
        self._disk = disk
        self._directory = directory

    def release(self) -> None:
        self._disk.locks.discard(self._directory)


class FaultyDisk:
    """The twin of mtl.log.files.RealDisk. `capacity`: the largest sum of octets of all files, None for no bound;
    `short_writes`: the share of writes that are short, 0 to 1."""

    def __init__(self, rng: random.Random, *, capacity: int | None = None, short_writes: float = 0.0) -> None:
        self.rng = rng
        self.capacity = capacity
        self.short_writes = short_writes
        self.locks: set[str] = set()
        self.steps = 0
        self.dead = False
        self.life = 0
        self.open_files = 0
        self._root = DirectoryImage()
        self._rules: list[Rule] = []
        self._steps_left: int | None = None
        self._pending: OSError | None = None

    # --- requests of tests ----------------------------------------------------------------------------------

    def fail(
        self,
        op: str,
        *,
        nth: int = 1,
        count: int = 1,
        when: Callable[[str], bool] | None = None,
        error: int = errno.EIO,
    ) -> Rule:
        """From the `nth` matching call on, `count` calls of `op` fail with `error`.

        Operations: read, write, short (a write that writes less, no error), begin_sync (reported by the next sync),
        sync, truncate, open, create, rename, link, unlink, fsync_dir, make_dir, remove_dir; ANY. A
        failed write may have written some of it; a failed sync has lost the octets that were not on the disk, although
        the system still returns them.
        """
        rule = Rule(op, nth, count, when or (lambda _: True), error)
        self._rules.append(rule)
        return rule

    def spare(self, rule: Rule) -> None:
        """Cancel the rest of this failure."""
        if rule in self._rules:
            self._rules.remove(rule)

    def heal(self) -> None:
        """Cancel all planned failures, and give the disk free space."""
        self._rules.clear()
        self.capacity = None

    def crash_after(self, steps: int | None) -> None:
        """Raise Crashed after this number of changing operations, and in every later call."""
        self._steps_left = steps

    def crash(self, *, power: bool = True, keep: str = "some") -> None:
        """End the process, with `power` the machine; afterwards the disk has the state that the next process finds.

        `keep`: unsynced octets survive a power failure at random ("some"), all or none; without one all survive.
        Locks are free; files that were open raise Crashed.
        """
        if power:
            self._lose_power(keep)
        self.dead = False
        self.life += 1
        self.open_files = 0
        self.locks.clear()
        self._steps_left = None

    def _lose_power(self, keep: str) -> None:
        for directory in self._directories(self._root):
            directory.lose(self.rng, keep)
        for inode in self._inodes(self._root):
            inode.lose(self.rng, keep)
        for directory in self._directories(self._root):
            directory.names = dict(directory.disk)
        for inode in self._inodes(self._root):
            inode.data = bytearray(inode.disk)

    def kill(self) -> None:
        """SIGKILL: the system keeps all that was written, synced or not."""
        self.crash(power=False)

    def drop_caches(self) -> None:
        """Clean pages are read from the disk from now on."""
        for inode in self._inodes(self._root):
            inode.forget_cache()

    def flip(self, path: str, offset: int, bit: int = 0) -> None:
        """Change one bit, on the disk and in the cache."""
        inode = self._file(path)
        for image in (inode.data, inode.disk):
            image[offset] ^= 1 << bit

    def shorten(self, path: str, size: int) -> None:
        """Truncate a file, as another process would."""
        inode = self._file(path)
        del inode.data[size:], inode.disk[size:]

    @property
    def used(self) -> int:
        """Octets of all files."""
        return sum(len(inode.data) for inode in self._inodes(self._root))

    def content(self, path: str) -> bytes:
        return bytes(self._file(path).data)

    def put(self, path: str, data: bytes) -> None:
        """A file with durable content, from nowhere."""
        inode = FileImage(bytearray(data), bytearray(data))
        parent, name = self._parent(path)
        parent.names[name] = parent.disk[name] = inode

    def copy(self) -> DirectoryImage:
        """A copy of the state in the cache, for `put_back`."""
        return deepcopy(self._root)

    def put_back(self, copy: DirectoryImage) -> None:
        """Replace the whole content by a copy. Files that were open raise Crashed."""
        self._root = deepcopy(copy)
        for directory in self._directories(self._root):
            directory.sync()
        for inode in self._inodes(self._root):
            inode.sync()
        self.life += 1

    # --- failing --------------------------------------------------------------------------------------------

    def check_alive(self) -> None:
        if self.dead:
            raise Crashed

    def maybe_fail(self, op: str, path: str) -> None:
        for rule in self._rules:
            if rule.fires(op, path):
                raise _error(rule.error, path)

    def interrupted(self, op: str, path: str) -> bool:
        """A step that may happen in part: True if `fail_now` must be called afterwards."""
        self.check_alive()
        self.steps += 1
        if self._steps_left is not None:
            if self._steps_left == 0:
                self.dead = True
                return True
            self._steps_left -= 1
        try:
            self.maybe_fail(op, path)
        except OSError as error:
            self._pending = error
            return True
        return False

    def fail_now(self) -> None:
        raise self.pending()

    def pending(self) -> OSError:
        """The error of the step that was interrupted."""
        self.check_alive()
        assert self._pending is not None
        return self._pending

    def step(self, op: str, path: str) -> None:
        """An atomic changing operation."""
        if self.interrupted(op, path):
            self.fail_now()

    def shortens(self, path: str) -> bool:
        return any(rule.fires("short", path) for rule in self._rules) or (
            self.short_writes > 0 and self.rng.random() < self.short_writes
        )

    def room(self, inode: FileImage, end: int) -> int:
        """Octets available to a write that ends at `end`: those that it overwrites, and the free ones."""
        if self.capacity is None:
            return end
        return max(0, len(inode.data) + self.capacity - self.used)

    # --- the contract of mtl.log.files.Disk -----------------------------------------------------------------

    def make_dir(self, path: str) -> None:
        parent, name = self._parent(path)
        if isinstance(parent.names.get(name), DirectoryImage):
            return
        if name in parent.names:
            raise _error(errno.EEXIST, path)
        self.step("make_dir", path)
        parent.change(put(name, DirectoryImage()))

    def remove_dir(self, path: str) -> None:
        if self._directory(path).names:
            raise _error(errno.ENOTEMPTY, path)
        parent, name = self._parent(path)
        self.step("remove_dir", path)
        parent.change(remove(name))

    def list_dir(self, path: str) -> list[str]:
        return sorted(self._directory(path).names)

    def sizes(self, path: str) -> dict[str, int]:
        names = self._directory(path).names
        return {name: len(node.data) for name, node in sorted(names.items()) if isinstance(node, FileImage)}

    def exists(self, path: str) -> bool:
        try:
            parent, name = self._parent(path)
        except OSError:
            return False
        return not name or name in parent.names

    def open(self, path: str, mode: Mode) -> FaultyFile:
        assert mode in get_args(Mode)
        parent, name = self._parent(path)
        if mode != "create":
            self.maybe_fail("open", path)
            return FaultyFile(self, self._file(path), path, mode)
        self.step("create", path)
        found = parent.names.get(name)
        if isinstance(found, DirectoryImage):
            raise _error(errno.EISDIR, path)
        if found is not None:
            found.truncate(0)
            return FaultyFile(self, found, path, mode)
        inode = FileImage()
        parent.change(put(name, inode))
        return FaultyFile(self, inode, path, mode)

    def rename(self, source: str, target: str) -> None:
        parent, old = self._parent(source)
        target_parent, new = self._parent(target)
        node = parent.names.get(old)
        if node is None:
            raise _error(errno.ENOENT, source)
        if isinstance(node, DirectoryImage) and new in target_parent.names:
            raise _error(errno.ENOTEMPTY, target)
        self.step("rename", target)
        if parent is not target_parent:
            move_across(parent, old, target_parent, new)
        elif parent.names.get(new) is not node:  # two links of one file: nothing happens
            parent.change(move(old, new, node))

    def link(self, source: str, target: str) -> None:
        inode = self._file(source)
        parent, name = self._parent(target)
        if name in parent.names:
            raise _error(errno.EEXIST, target)
        self.step("link", target)
        parent.change(put(name, inode))

    def unlink(self, path: str) -> None:
        self._file(path)
        parent, name = self._parent(path)
        self.step("unlink", path)
        parent.change(remove(name))

    def fsync_dir(self, path: str) -> None:
        directory = self._directory(path)
        if self.interrupted("fsync_dir", path):
            if not self.dead:
                directory.lose(self.rng, "some")
            self.fail_now()
        directory.sync()

    def entropy(self, size: int) -> bytes:
        return self.rng.randbytes(size)

    def lock(self, directory: str) -> FaultyLock:
        if directory in self.locks:
            raise DirectoryInUse(
                f"another broker is using {directory}; stop it, or give this one a directory of its own"
            )
        self._directory(directory)
        self.locks.add(directory)
        return FaultyLock(self, directory)

    # --- walking --------------------------------------------------------------------------------------------

    def _parent(self, path: str) -> tuple[DirectoryImage, str]:
        self.check_alive()
        *above, name = [part for part in path.split("/") if part not in {"", "."}] or [""]
        node = self._root
        for part in above:
            found = node.names.get(part)
            if not isinstance(found, DirectoryImage):
                raise _error(errno.ENOENT, path)
            node = found
        return node, name

    def _directory(self, path: str) -> DirectoryImage:
        parent, name = self._parent(path)
        node = parent.names.get(name) if name else parent
        if not isinstance(node, DirectoryImage):
            raise _error(errno.ENOENT, path)
        return node

    def _file(self, path: str) -> FileImage:
        parent, name = self._parent(path)
        node = parent.names.get(name)
        if not isinstance(node, FileImage):
            raise _error(errno.ENOENT, path)
        return node

    def _directories(self, root: DirectoryImage) -> Iterator[DirectoryImage]:
        yield root
        for node in {id(node): node for node in (*root.names.values(), *root.disk.values())}.values():
            if isinstance(node, DirectoryImage):
                yield from self._directories(node)

    def _inodes(self, root: DirectoryImage) -> Iterator[FileImage]:
        """Every file once, however many names it has."""
        found: dict[int, FileImage] = {}
        for directory in self._directories(root):
            for node in (*directory.names.values(), *directory.disk.values()):
                if isinstance(node, FileImage):
                    found[id(node)] = node
        yield from found.values()
