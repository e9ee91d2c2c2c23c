"""The low-rate records in SQLite: one row each, one transaction per save, synced before it counts.

Every row has checksums (`rows`). One row, the state, has the number of rows of each kind, the sum of their checksums,
and a generation that every transaction increments. The generation is kept outside the database, too (`generation`). So
changed rows, missing rows and an older copy of the file are detected.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import msgspec

from mtl.errors import Damaged, OldRecords, StorageError
from mtl.storage.database import named, open_database, put
from mtl.storage.generation import GenerationFile, GenerationMark
from mtl.storage.precedence import Precedence
from mtl.storage.records import KINDS, AnyRecord, RecordDamage, SecretRecord, StateRecord, UserRecord
from mtl.storage.rows import (
    Loaded,
    Row,
    decode_row,
    encode_row,
    incomplete,
    read_rows,
    total,
)

T = TypeVar("T", UserRecord, SecretRecord)

_COLUMNS = "kind, key, value, named, crc"
_LOST = "the row that says how many there are is missing"


class RecordStore(Protocol):
    """A store of records; the simulator has one that can crash."""

    def load(self) -> Loaded:
        """All saved records, and the damages of those that cannot be read. Raises `OldRecords`, `StorageFailed`."""

    def save(self, put: Sequence[AnyRecord], forget: Sequence[AnyRecord]) -> None:
        """Write and remove records, all or none, durably; raises `StorageError`."""

    def complete(self, kinds: Sequence[str]) -> None:
        """Record durably that no record of these kinds is missing any more; raises `StorageError`."""

    def close(self) -> None:
        """Close the file."""


class SqliteStore:
    """Records in one SQLite file, WAL and synchronous=FULL: a save that returned survives a power cut.

    Another process may change records meanwhile (`mtl user` does): `changed` reports that. Only its owner can read the
    file. `notes` has harmless problems that were found at the opening. Raises `OldRecords` for a database that is older
    than its generation file says, unless the caller accepts it; `Damaged` for a damaged file (`salvage`). Changes of a
    store that is `first` have precedence over those of others (`precedence`).
    """

    def __init__(self, path: str, *, accept: bool = False, first: bool = False) -> None:
        self._path = path
        self._file = GenerationFile(Path(path).parent)
        self._precedence = Precedence(Path(path).parent, first=first)
        self.notes: list[str] = []
        self._damaged: set[tuple[str, str]] = set()
        mark = self._mark()  # before the database, which other processes may change meanwhile
        if mark is not None and mark.generation and not Path(path).exists() and not accept:
            raise too_old(path, "is not there", mark)
        self._db = open_database(path, lambda: self._new_name(mark, accept=accept))
        try:
            self._check_generation(mark, accept=accept)
        except sqlite3.Error as e:
            self._db.close()
            raise named(path, e, opening=True) from e
        except BaseException:
            self._db.close()
            raise

    def _mark(self) -> GenerationMark | None:
        try:
            return self._file.read()
        except Damaged as e:
            self.notes.append(str(e))
            return None

    def _new_name(self, mark: GenerationMark | None, *, accept: bool) -> str:
        """The name of a new database; it is written to the generation file first."""
        if mark is not None and mark.generation and not accept:
            raise too_old(self._path, "has no transaction", mark)
        name = mark.database if mark is not None else secrets.token_hex(4)
        self._file.write(GenerationMark(name, 0), sync=True)
        return name

    def _check_generation(self, mark: GenerationMark | None, *, accept: bool) -> None:
        """Check the generation, and make the state again if it does not verify."""
        state = self._state()
        if mark is None and not self.notes and state is not None and state.generation > 1:
            self.notes.append(
                f"{self._file.path} is missing, so it cannot tell whether {self._path} is the newest"
            )
        if state is not None and mark is not None and not accept:
            if state.database != mark.database:
                raise too_old(self._path, "belongs to another data directory", mark)
            if state.generation < mark.generation:
                raise too_old(self._path, f"ends with transaction {state.generation}", mark)
        if state is None or accept:
            self._restate(mark, state, accept=accept)
            state = self._state()
        assert state is not None
        self._file.write(GenerationMark(state.database, state.generation), sync=True, back=accept)
        self._data_version = self._version()

    def _restate(self, mark: GenerationMark | None, state: StateRecord | None, *, accept: bool) -> None:
        """Write the state again. If its row is damaged the other rows are not affected; if it is missing, others may be
        missing, too.
        """
        exists = self._db.execute("SELECT 1 FROM record WHERE kind = 'state'").fetchone() is not None
        lost = {} if exists or accept else dict.fromkeys(sorted(KINDS.keys() - {"state"}), _LOST)
        name = (
            mark.database
            if mark is not None
            else state.database
            if state is not None
            else secrets.token_hex(4)
        )
        generation = 1 + max(mark.generation if mark else 0, state.generation if state else 0)
        if state is None:
            self.notes.append(
                f"{self._path}: the row with the state of the records did not verify; it is written again"
            )
        self._db.execute("BEGIN IMMEDIATE")
        kinds = [
            k for (k,) in self._db.execute("SELECT DISTINCT kind FROM record") if k in KINDS and k != "state"
        ]
        totals = {kind: count(self._db, kind) for kind in kinds}
        put(self._db, encode_row(StateRecord(name, generation, totals, lost)))
        self._db.execute("COMMIT")

    def _version(self) -> int:
        """SQLite's count of changes by other connections."""
        version: int = self._db.execute("PRAGMA data_version").fetchone()[0]
        return version

    def changed(self) -> bool:
        """Whether another process changed a record since the last call."""
        try:
            before, self._data_version = self._data_version, self._version()
        except sqlite3.Error as e:
            raise named(self._path, e) from e
        return before != self._data_version

    # --- reading --------------------------------------------------------------------------------------------

    def load(self) -> Loaded:
        """All saved records, in order of kind and key. Raises `OldRecords` for rows of an older transaction."""
        try:
            loaded = read_rows(self._select("ORDER BY kind, key"))
            state = self._state()
        except sqlite3.Error as e:
            raise named(self._path, e, opening=True) from e
        if state is None:
            raise Damaged(f"{self._path}: the state of the records does not verify any more", file=self._path)
        gone = incomplete(loaded, state, self._path)
        known = [d for d in loaded.damages if d.key is not None or (d.kind is None and not gone)]
        self._damaged = {(d.kind, d.key) for d in known if d.kind is not None and d.key is not None}
        if loaded.repaired:
            self._mend(loaded.repaired)
        records = [r for r in loaded.records if not isinstance(r, StateRecord)]
        return loaded._replace(records=records, damages=known + gone)

    def remove_keyless_rows(self) -> list[tuple[Any, ...]]:
        """Remove rows of which not even the key is known, and return them."""
        with self._transaction():
            rows = [row for row in self._select("") if _is_unknown(row)]
            for kind, key, *_ in rows:
                self._delete_row(kind, key)
        return rows

    def _delete_row(self, kind: object, key: object) -> None:
        columns = [x.encode("utf-8", "surrogateescape") if isinstance(x, str) else x for x in (kind, key)]
        self._db.execute("DELETE FROM record WHERE kind = CAST(? AS TEXT) AND key = CAST(? AS TEXT)", columns)

    def _mend(self, repaired: Sequence[tuple[AnyRecord, tuple[str, str]]]) -> None:
        """Write rows with a damaged kind or key again."""
        with self._transaction():
            for record, where in repaired:
                self._delete_row(*where)
                put(self._db, encode_row(record))

    def of(self, kind: type[T]) -> list[T]:
        """The records of one kind that verify."""
        try:
            rows = self._select("WHERE kind = ? ORDER BY key", kind.kind)
        except sqlite3.Error as e:
            raise named(self._path, e) from e
        return cast("list[T]", read_rows(rows).records)

    def _select(self, which: str, *values: str) -> list[tuple[Any, ...]]:
        return self._db.execute(f"SELECT {_COLUMNS} FROM record {which}", values).fetchall()  # noqa: S608 ours

    def _state(self) -> StateRecord | None:
        rows = self._select("WHERE kind = ? AND key = ?", StateRecord.kind, StateRecord.key)
        record = decode_row(rows[0]) if rows else None
        return record if isinstance(record, StateRecord) else None

    # --- writing --------------------------------------------------------------------------------------------

    def save(self, put: Sequence[AnyRecord], forget: Sequence[AnyRecord]) -> None:
        """One transaction."""
        with self._transaction() as change:
            for record in put:
                change.put(encode_row(record))
            for record in forget:
                change.forget(record.kind, record.key)

    def edit(self, kind: type[T], key: str, change: Callable[[T | None], T | None]) -> None:
        """Replace one record by the result of `change` (None: no record), in one transaction. If `change` raises, the
        record is unchanged. Raises `Damaged` for a record that does not verify.
        """
        with self._transaction() as transaction:
            rows = self._select("WHERE kind = ? AND key = ?", kind.kind, key)
            record = decode_row(rows[0]) if rows else None
            if isinstance(record, RecordDamage):
                raise Damaged(f"{self._path}: {record}; remove it and make it again", file=self._path)
            after = change(cast("T | None", record))
            if after is None:
                transaction.forget(kind.kind, key)
            else:
                transaction.put(encode_row(after))

    def complete(self, kinds: Sequence[str]) -> None:
        """The present rows of these kinds count as complete from now on."""
        with self._transaction() as change:
            change.complete(kinds)

    def forget(self, kind: str, key: str) -> None:
        """Remove a record, whether or not it verifies."""
        with self._transaction() as change:
            change.forget(kind, key)

    @contextmanager
    def _transaction(self) -> Iterator[_Transaction]:
        """A transaction, with the state written at its end and the generation file after it."""
        with self._precedence.turn(), self._exclusively() as change:
            yield change

    @contextmanager
    def _exclusively(self) -> Iterator[_Transaction]:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            state = self._state()
            if state is None:
                raise Damaged(
                    f"{self._path}: the state of the records does not verify any more", file=self._path
                )
            change = _Transaction(self._db, state, self._damaged)
            yield change
            after = change.finish()
            self._db.execute("COMMIT")
        except sqlite3.Error as e:
            raise named(self._path, e) from e
        finally:
            self._roll_back()
        self._damaged -= change.touched
        with suppress(StorageError):  # the records are saved; the file is behind until the next transaction
            self._file.write(GenerationMark(after.database, after.generation))

    def _roll_back(self) -> None:
        """Roll back an open transaction. If this fails, the next save repeats it."""
        try:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except sqlite3.Error:
            pass

    def close(self) -> None:
        """Close the file, with the generation synced."""
        try:
            state = self._state()
            if state is not None:
                self._file.write(GenerationMark(state.database, state.generation), sync=True)
        except (sqlite3.Error, StorageError):
            pass  # the generation file may be behind the database
        self._db.close()
        self._precedence.close()


class _Transaction:
    """The changes of one transaction, and the totals after it."""

    def __init__(
        self, db: sqlite3.Connection, state: StateRecord, damaged: Collection[tuple[str, str]]
    ) -> None:
        self._db = db
        self.state = state
        self._totals = dict(state.totals)
        self._damaged = damaged
        self.touched: set[tuple[str, str]] = set()
        """Formerly damaged rows that were written or removed."""

    def put(self, row: Row) -> None:
        """Write a row."""
        self._uncount(row.kind, row.key)
        put(self._db, row)
        rows, crcs = self._totals.get(row.kind, (0, 0))
        self._totals[row.kind] = rows + 1, total([row.crc], crcs)

    def forget(self, kind: str, key: str) -> None:
        """Remove a row that may not be there."""
        self._uncount(kind, key)
        self._db.execute("DELETE FROM record WHERE kind = ? AND key = ?", (kind, key))

    def _uncount(self, kind: str, key: str) -> None:
        row = self._db.execute("SELECT crc FROM record WHERE kind = ? AND key = ?", (kind, key)).fetchone()
        if row is not None:
            rows, crcs = self._totals.get(kind, (0, 0))
            self._totals[kind] = rows - 1, total([-row[0] if isinstance(row[0], int) else 0], crcs)
        if (kind, key) in self._damaged:
            self.touched.add((kind, key))

    def complete(self, kinds: Sequence[str]) -> None:
        """Count the rows of these kinds again."""
        for kind in kinds:
            self._totals[kind] = count(self._db, kind)
        left = {kind: why for kind, why in self.state.incomplete.items() if kind not in kinds}
        self.state = msgspec.structs.replace(self.state, incomplete=left)

    def finish(self) -> StateRecord:
        """Write the state. For kinds with formerly damaged rows the sum is computed again, because it may include a
        wrong checksum.
        """
        for kind in {k for k, _ in self.touched}:
            rows, crcs = count(self._db, kind)
            if rows == self._totals[kind][0]:
                self._totals[kind] = rows, crcs
        after = msgspec.structs.replace(self.state, generation=self.state.generation + 1, totals=self._totals)
        put(self._db, encode_row(after))
        return after


def count(db: sqlite3.Connection, kind: str) -> tuple[int, int]:
    """The number of rows of a kind, and the sum of their checksums."""
    rows = db.execute("SELECT crc FROM record WHERE kind = ?", (kind,)).fetchall()
    return len(rows), total(crc for (crc,) in rows if isinstance(crc, int))


def too_old(path: str, problem: str, mark: GenerationMark) -> OldRecords:
    """The error for a database that is older than the data directory's last transaction."""
    return OldRecords(
        f"{path} {problem}; the last transaction of this data directory is {mark.generation} of database "
        f"{mark.database}. {OldRecords.WAYS}"
    )


def _is_unknown(row: Sequence[Any]) -> bool:
    record = decode_row(row)
    return isinstance(record, RecordDamage) and record.key is None
