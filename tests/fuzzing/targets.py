"""Every decoder that reads octets of a peer, of the disk or of a checkpoint: one line each in TARGETS."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pyarrow as pa

from mtl.broker.access.patterns import matching
from mtl.doors.mbws import connection_records
from mtl.errors import Malformed, OffsetError, Refused
from mtl.limits import MAX_PACK, PACK_OVERHEAD
from mtl.storage.records import KINDS
from mtl.wire import commands, control
from mtl.wire.fields import decode_table, encode_short, encode_table, read_short
from mtl.wire.packs import SCHEMA, decode_pack, encode_batch, unpack
from mtl.wire.text import text
from pyspark_mtl.rows.properties import to_maps
from pyspark_mtl.source import offsets
from tests.fuzzing import bodies, examples, logs, mbws, mc0, micromessage, reactive, sasl
from tests.fuzzing.target import Target, check_refusal, codec, split

# --- data commands: two octets with the size of the header, the header, the body ----------------------------


def decode_command(data: bytes) -> commands.Command:
    _, header, body = split(data, (2, int.from_bytes(data[:2], "big")))
    command = commands.decode(header, body)
    if isinstance(command, commands.Content):  # the broker's check of every content
        commands.packed_count(command.properties)
        commands.delivery_timestamp(command.properties)
        commands.reserved(command.properties)
    return command


def encode_command(command: commands.Command) -> bytes:
    header, body = commands.encode(command)
    return examples.framed(header, bytes(body))


# --- control: the command (and for a reply its status) on a line, then JSON ---------------------------------


def decode_request(data: bytes) -> control.Request:
    name, _, body = data.partition(b"\n")
    return control.decode_request([name, body])


def encode_request(request: control.Request) -> bytes:
    return b"\n".join(control.encode_request(request))


def decode_reply(data: bytes) -> tuple[type[control.Request], control.Reply | Refused]:
    """A refusal is a valid result here."""
    line, _, body = data.partition(b"\n")
    name, _, status = line.partition(b" ")
    request = control.REQUESTS.get(name.decode("latin-1").lower(), control.ConnectionOpen)
    try:
        return request, control.decode_reply([status, body], request)
    except Refused as refused:
        return request, refused


def encode_reply(value: tuple[type[control.Request], control.Reply | Refused]) -> bytes:
    request, reply = value
    frames = (
        control.encode_refusal(reply)
        if isinstance(reply, Refused)
        else control.encode_reply(reply.code, reply)
    )
    return request.command.encode() + b" " + b"\n".join(frames)


# --- packs: two octets with the number of contents, the body ------------------------------------------------


def run_pack(data: bytes) -> None:
    """Arrow's own memory is watched as well: an input must not make it allocate more than a pack may have."""
    count, body = int.from_bytes(data[:2], "big"), data[2:]
    pool = pa.default_memory_pool()
    before, peak = pool.bytes_allocated(), pool.max_memory()
    try:
        batch = decode_pack(body, count)
    except Malformed as refused:
        check_refusal(refused)
        return
    finally:
        most = max(peak, before + MAX_PACK + PACK_OVERHEAD)
        assert pool.max_memory() <= most, (
            f"{len(data)} octets made Arrow allocate {pool.max_memory() - before}"
        )
    contents = [(bytes(table), bytes(content)) for table, content in unpack(batch)]
    assert len(contents) == count
    for table, _ in contents:
        decode_table(table)
    again = decode_pack(encode_batch(batch), count)
    # An empty table and a missing one are equal.
    assert [(bytes(table), bytes(content)) for table, content in unpack(again)] == contents
    assert batch.schema == SCHEMA


def run_maps(data: bytes) -> None:
    """Properties as Spark's map: the values as text, whatever their types."""
    try:
        table = decode_table(data)
    except Malformed as refused:
        check_refusal(refused)
        return
    expected = [(name, text(value)) for name, value in table.items()]
    assert to_maps(pa.array([data, None, data], pa.binary())).to_pylist() == [expected, [], expected]


# --- JSON that we keep --------------------------------------------------------------------------------------


def decode_record(data: bytes) -> Any:
    kind, _, value = data.partition(b"\n")
    return msgspec.json.decode(value, type=KINDS[kind.decode("ascii")])


def encode_record(record: Any) -> bytes:
    return b"%s\n%s" % (record.kind.encode(), msgspec.json.encode(record))


def decode_offset(data: bytes) -> offsets.Offset:
    """As received from Spark: the text of its log, parsed by Python's json."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise OffsetError("no JSON") from error
    return offsets.parse(value)


def encode_offset(offset: offsets.Offset) -> bytes:
    return json.dumps(offset.json()).encode()


# --- the table ----------------------------------------------------------------------------------------------

RECORD_ERRORS = (msgspec.DecodeError, KeyError, UnicodeDecodeError)

TARGETS = (
    Target("fields", codec(decode_table, encode_table), examples.TABLES),
    Target("short", codec(lambda data: read_short(data, 0)[0], encode_short), (b"\0", b"\x05orders"[:6])),
    Target("commands", codec(decode_command, encode_command), examples.COMMANDS),
    Target(
        "requests",
        codec(decode_request, encode_request, (Malformed, Refused)),
        examples.REQUESTS,
        examples.MEMBERS,
    ),
    Target("replies", codec(decode_reply, encode_reply), examples.REPLIES, examples.MEMBERS),
    Target("packs", run_pack, examples.PACKS),
    Target("property-maps", run_maps, examples.TABLES, apart=True),
    Target("sasl-server", sasl.run_server, sasl.SERVER, sasl.TOKENS),
    Target("sasl-client", sasl.run_client, sasl.CLIENT, sasl.TOKENS),
    Target("patterns", codec(lambda data: examples.match(matching, data), error=Refused), examples.PATTERNS),
    Target("chunks", logs.run_segment, logs.SEGMENTS, logs.TOKENS),
    Target("indexes", logs.run_index, logs.INDEXES, logs.TOKENS),
    Target("manifests", logs.run_manifest, logs.MANIFESTS, (b"epochs", b"earliest", b"newest", b"owner")),
    Target("recovery", logs.run_recovery, logs.DIRECTORIES, logs.TOKENS),
    Target("records", codec(decode_record, encode_record, RECORD_ERRORS), examples.RECORDS, examples.MEMBERS),
    Target("reactive", reactive.run, reactive.MESSAGES),
    Target("text-bodies", bodies.run("text", bodies.of_text), bodies.TEXTS, apart=True),
    Target("json-bodies", bodies.run("json", bodies.of_json), bodies.JSONS, bodies.JSON_TOKENS, apart=True),
    Target("msgpack-bodies", bodies.run("msgpack", bodies.of_msgpack), bodies.MSGPACKS, apart=True),
    Target("arrow-bodies", bodies.run("arrow", bodies.of_arrow), bodies.ARROWS, apart=True),
    Target("offsets", codec(decode_offset, encode_offset, OffsetError), examples.OFFSETS),
    Target("mbws", mbws.run, mbws.MESSAGES, mbws.TOKENS),
    Target("mbws-kept", codec(connection_records.decode, connection_records.encode), mbws.KEPT),
    Target("mbws-query", mbws.run_query, mbws.QUERIES),
    Target("mc0", mc0.run, mc0.MESSAGES, mc0.TOKENS),
    Target("micromessage", micromessage.run, micromessage.SEEDS, micromessage.TOKENS),
    Target("micromessage-filter", micromessage.run_filter, micromessage.FILTERS, micromessage.TOKENS),
)

BY_NAME = {target.name: target for target in TARGETS}
