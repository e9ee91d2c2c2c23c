"""The broker's durable state: one interface, and the engines that implement it. Read `api.py` first.

    api         actions, their answers, the view of a log, and `Engine`: values and protocols, no code
    keys, records   names of logs; the kinds of records, as JSON
    unreadable      records that are unknown because they are damaged
    directory       the engine of a data directory: `local` (logs, by `mtl.log`) and `sqlite` (records)
    memory          the engine of `--data memory:`, with `memory_log`

`local` uses `orphans`, `tombstones` and `interrupted` (logs without a record, and records without a log); `sqlite`
uses `database`, `rows`, `generation`, `salvage` and `precedence`. `inspection` and `recovering` are `mtl verify` and
`mtl recover`.

Imports: the core of the broker imports `api`, `keys`, `records` and `unreadable`, never an engine. The
broker's runtime chooses an engine and performs the core's actions on its threads. An engine imports neither the
broker nor the network. `.importlinter` has the rules.

State: durable state belongs to the engine and is changed by `Engine.perform` only, on a thread. The core has a
`LogView` of each log, on the loop's thread, with what is in memory. `Changes` come from the engine to the view; a
`Read` takes a `Snapshot` of the view to a thread, and its answer is a value. So a content is visible when, and only
when, the engine has answered that it is stored.

Decisions, checked against the design of a log on an object store:

- One group commit for all logs and records: `Engine.perform` takes a batch, and a `Lane` that is `together` gives it
  all waiting actions. A data directory has a lane per kind of work; memory has one lane, as an object store will.
- Records are deltas: `Save` has the records to write and to forget, never all records.
- A group may fail after it was written, when another owner took over: the answer `LogStopped` confirms nothing.
- The form of a log is internal to the engine: changes are opaque, and the broker does not read the places in a
  `ChunkRef`.
- Threads belong to the loop. An engine blocks, so the simulator and a test perform the same actions one by one, in
  any order that the interface allows.
- The view never reads: what is not in memory is the answer to a `Read`. A store whose reads take 50 ms delays only the
  reader or the request that needs one.
"""
