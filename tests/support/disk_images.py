"""Images of files and directories, in the page cache and on the disk: the data behind FaultyDisk."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

PAGE = 4096
SECTOR = 512

Names: TypeAlias = "dict[str, FileImage | DirectoryImage]"
Step: TypeAlias = "Callable[[Names], None]"


@dataclass(eq=False)
class FileImage:
    """A file: `data` is the content in the cache, `disk` the content on the disk."""

    data: bytearray = field(default_factory=bytearray)
    disk: bytearray = field(default_factory=bytearray)
    versions: dict[int, list[bytes]] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)

    def write(self, data: bytes, offset: int) -> None:
        end = offset + len(data)
        if end > len(self.data):
            self.data.extend(bytes(end - len(self.data)))
            self.sizes.append(end)
        self.data[offset:end] = data
        for page in range(offset // PAGE, (end + PAGE - 1) // PAGE):
            self.versions.setdefault(page, []).append(self._page(self.data, page))

    def truncate(self, size: int) -> None:
        if size < len(self.data):
            del self.data[size:]
        else:
            self.data.extend(bytes(size - len(self.data)))
        self.sizes.append(size)
        last = size // PAGE
        for page in [page for page in self.versions if page > last]:
            self.versions[page].append(bytes(PAGE))
        if size % PAGE:
            self.versions.setdefault(last, []).append(self._page(self.data, last))

    def sync(self) -> None:
        for page in self.versions:
            self._put(page, self._page(self.data, page))
        self._resize(len(self.data))
        self.versions.clear()
        self.sizes.clear()

    def lose(self, rng: random.Random, keep: str = "some") -> None:
        """Each unsynced octet reaches the disk or is lost; none is written later."""
        if keep == "all":
            self.sync()
        elif keep == "some":
            size = rng.choice([len(self.disk), *self.sizes])
            for page in sorted(self.versions):
                self._put(page, self._choose(page, rng))
            self._resize(size)
        self.versions.clear()
        self.sizes.clear()

    def _choose(self, page: int, rng: random.Random) -> bytes:
        candidates = [self._page(self.disk, page), *self.versions[page]]
        first = rng.choice(candidates)
        if rng.random() < 0.75:
            return first
        torn = rng.randrange(PAGE // SECTOR) * SECTOR
        return first[:torn] + rng.choice(candidates)[torn:]

    @staticmethod
    def _page(image: bytearray, page: int) -> bytes:
        return bytes(image[page * PAGE : (page + 1) * PAGE]).ljust(PAGE, b"\0")

    def _put(self, page: int, data: bytes) -> None:
        end = (page + 1) * PAGE
        if len(self.disk) < end:
            self.disk.extend(bytes(end - len(self.disk)))
        self.disk[page * PAGE : end] = data

    def _resize(self, size: int) -> None:
        del self.disk[size:]
        self.disk.extend(bytes(size - len(self.disk)))

    def forget_cache(self) -> None:
        """Drop clean pages from the cache, possible at any time: later reads return the content on the disk."""
        for page in range((len(self.data) + PAGE - 1) // PAGE):
            if page not in self.versions:
                end = min((page + 1) * PAGE, len(self.data))
                self.data[page * PAGE : end] = self._page(self.disk, page)[: end - page * PAGE]


@dataclass(eq=False)
class DirectoryImage:
    """Names: `names` in the cache, `disk` on the disk, `steps` the changes from the latter to the former."""

    names: Names = field(default_factory=dict)
    disk: Names = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)

    def change(self, step: Step) -> None:
        step(self.names)
        self.steps.append(step)

    def sync(self) -> None:
        for step in self.steps:
            step(self.disk)
        self.disk = dict(self.names)
        self.steps.clear()

    def lose(self, rng: random.Random, keep: str) -> None:
        for step in self.steps:
            if keep == "all" or (keep == "some" and rng.random() < 0.5):
                step(self.disk)
        self.steps.clear()


def put(name: str, node: FileImage | DirectoryImage) -> Step:
    def step(names: Names) -> None:
        names[name] = node

    return step


def remove(name: str) -> Step:
    def step(names: Names) -> None:
        names.pop(name, None)

    return step


def move(old: str, new: str, node: FileImage | DirectoryImage) -> Step:
    def step(names: Names) -> None:
        names.pop(old, None)
        names[new] = node

    return step


def move_across(source: DirectoryImage, old: str, target: DirectoryImage, new: str) -> None:
    """Move a name from one directory to another, atomically, whichever of the two reaches the disk first."""
    node = source.names.pop(old)
    target.names[new] = node

    def step(_: Names) -> None:
        source.disk.pop(old, None)
        target.disk[new] = node

    source.steps.append(step)
    target.steps.append(step)
