"""The data source `format("mtl")`: Spark finds it by name and passes the options to it.

The module has few imports, because Spark imports it to read the format's name, and creates a data source for every
plan. Readers and writers, and with them pyarrow and the client, are imported on first use. The import checks
PySpark's version, so that a missing or old PySpark is a SparkMissing error.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

from mtl.errors import MtlError, SchemaError, SparkMissing
from pyspark_mtl import versions
from pyspark_mtl.options.settings import (
    Bodies,
    Given,
    ReadSettings,
    WriteSettings,
    bodies,
    parse,
    read_settings,
    write_settings,
)
from pyspark_mtl.rows import columns
from pyspark_mtl.rows.columns import Column
from pyspark_mtl.workers import set_modules_aside

try:
    import pyspark
    from pyspark.sql import types
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.types import StructType
except ImportError as error:
    oldest = ".".join(map(str, versions.OLDEST))
    raise SparkMissing(
        f"format mtl needs PySpark {oldest} or newer, which cannot be imported: {error}; {versions.INSTALL}"
    ) from error

HAS_LIMITS = versions.has_limits(pyspark.__version__)
"""Whether Spark asks for a batch within limits. SparkMissing on import if PySpark is too old."""

if TYPE_CHECKING:
    from pyspark_mtl.rows.bodies.shape import Shape
    from pyspark_mtl.sink.sink import BatchWriter, StreamWriter
    from pyspark_mtl.source.source import BatchReader, StreamReader


class MtlDataSource(DataSource):
    """MTL resources as DataFrames: reads and writes, batch and streaming. Options: pyspark_mtl.options.table."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Check each option by itself; `reader` and `writer` check combinations. Sends no request."""
        super().__init__(options)
        set_modules_aside()  # planning workers open no connection, so connections.py does not call this for them
        self._options: Given = parse(options)

    @classmethod
    def name(cls) -> str:
        """The format's name, "mtl"."""
        return "mtl"

    def schema(self) -> StructType:
        """The columns of a source without a user's schema. SchemaError if the bodyFormat needs one."""
        typed = bodies(self._options)
        if typed is not None:
            return _struct(columns.of_typed_source(typed.format, metadata=typed.metadata))
        return _struct(columns.of_source(include_properties=self._options["includeProperties"]))

    def reader(self, schema: StructType) -> BatchReader:
        """A batch read. OptionError for options that do not apply to it, SchemaError for a schema that does not fit."""
        from pyspark_mtl.source.source import BatchReader  # noqa: PLC0415 see above

        settings = self._read_settings(schema, streaming=False)
        return BatchReader(settings, self._shape_of_source(schema, settings.bodies))

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 Spark's name, here and below
        """A streaming read. The reader raises errors later: Spark 4.3.0 shows one raised here as UnboundLocalError."""
        reader = _stream_reader()
        try:
            if not HAS_LIMITS:
                versions.refuse_limits(self._options, pyspark.__version__)
            settings = self._read_settings(schema, streaming=True)
            return reader(settings, self._shape_of_source(schema, settings.bodies))
        except MtlError as error:
            return reader(error)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """A batch write; `overwrite` is Spark's mode of that name. OptionError and SchemaError as for `reader`."""
        from pyspark_mtl.sink.sink import BatchWriter  # noqa: PLC0415

        settings = self._write_settings(schema, streaming=False, overwrite=overwrite)
        return BatchWriter(settings, self._shape_of_sink(schema, settings.bodies))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        """A streaming write; `overwrite` is output mode complete. OptionError and SchemaError as for `reader`."""
        from pyspark_mtl.sink.sink import StreamWriter  # noqa: PLC0415

        settings = self._write_settings(schema, streaming=True, overwrite=overwrite)
        return StreamWriter(settings, self._shape_of_sink(schema, settings.bodies))

    def _read_settings(self, schema: StructType, *, streaming: bool) -> ReadSettings:
        settings = read_settings(self._options, streaming=streaming)
        if settings.bodies is None:
            columns.check_source(_columns(schema), include_properties=settings.include_properties)
        return settings

    def _write_settings(self, schema: StructType, *, streaming: bool, overwrite: bool) -> WriteSettings:
        settings = write_settings(self._options, streaming=streaming, overwrite=overwrite)
        if settings.bodies is None:
            columns.check_sink(_columns(schema), resource=settings.resource)
        else:
            columns.check_target(
                _columns(schema), resource=settings.resource, metadata=settings.bodies.metadata
            )
        return settings

    @staticmethod
    def _shape_of_source(schema: StructType, typed: Bodies | None) -> Shape | None:
        """The shape of the bodies' columns; None for raw bodies, which need no decoder."""
        if typed is None:
            return None
        from pyspark_mtl.rows.bodies.shape import of_source  # noqa: PLC0415 see above

        return of_source(_arrow(schema), typed)

    @staticmethod
    def _shape_of_sink(schema: StructType, typed: Bodies | None) -> Shape | None:
        if typed is None:
            return None
        from pyspark_mtl.rows.bodies.shape import of_sink  # noqa: PLC0415 see above

        return of_sink(_arrow(schema), typed)


def _stream_reader() -> type[StreamReader]:
    """The stream reader for this version of Spark; each imports classes that other versions lack."""
    if HAS_LIMITS:
        from pyspark_mtl.source.stream_limited import LimitedStreamReader  # noqa: PLC0415 see above

        return LimitedStreamReader
    from pyspark_mtl.source.stream_unlimited import UnlimitedStreamReader  # noqa: PLC0415

    return UnlimitedStreamReader


_TYPES: dict[str, types.DataType] = {
    "string": types.StringType(),
    "bigint": types.LongType(),
    "timestamp": types.TimestampType(),
    "binary": types.BinaryType(),
    "map<string,string>": types.MapType(types.StringType(), types.StringType()),
}
"""The types of a source's columns by their names. Spark would read the names as DDL, which depends on the session."""


def _struct(columns: Sequence[Column]) -> StructType:
    return StructType(
        [types.StructField(column.name, _TYPES[column.type], column.nullable) for column in columns]
    )


def _columns(schema: StructType) -> list[Column]:
    return [Column(field.name, field.dataType.simpleString(), field.nullable) for field in schema.fields]


def _arrow(schema: StructType) -> Any:
    """The schema in Arrow's types. SchemaError for a Spark type without an Arrow type."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 } load pyarrow
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 }

    zone: dict[str, Any] = {"timezone": "UTC"} if HAS_LIMITS else {}  # Spark 4.0 and 4.1 use UTC by default
    try:
        return to_arrow_schema(schema, **zone)
    except PySparkException as error:
        raise SchemaError(f"a column of the schema has a type that bodies cannot hold: {error}") from error


DefaultSource = MtlDataSource
"""The name under which Spark looks for a data source in packages named `pyspark_*`."""
