"""Where the broker keeps what outlives it: one interface, and the engines behind it. Read `api.py` first.

    api         actions, their answers, the view of a log, and `Engine`: values and protocols, no code
    keys, records   names of logs; the kinds of records, as JSON
    unreadable      what damaged records leave unknown
    directory       the engine of a data directory: `local` (logs, by `mtl.log`) and `sqlite` (records)
    memory          the engine of `--data memory:`, with `memory_log`

`local` has beside it: `orphans`, `tombstones`, `interrupted` (logs without a record, and records without a log), and
`sqlite` has: `database`, `rows`, `generation`, `salvage`, `precedence`. `inspection` and `recovering` are `mtl
verify` and `mtl recover`.

Who imports whom: the core of the broker imports `api`, `keys`, `records` and `unreadable`, never an engine. The
broker's runtime chooses an engine and performs the core's actions on its threads. An engine imports neither the
broker nor the network. `tests/test_architecture.py` checks that.

Where state lives: what is durable belongs to the engine and is changed by `Engine.perform` only, on a thread. What
the core knows of a log is its `LogView`, on the loop's thread. `Changes` are all that goes from one to the other. So
a content is visible when, and only when, the engine has answered that it is kept.

Decisions, and the design of a log on an object store that they were held against:

- One group commit for all logs and records: `Engine.perform` takes a batch, and a `Lane` that is `together` gives it
  all that waits. A data directory has a lane per kind of work; the memory has one lane, as an object store will.
- Records are deltas: `Save` says what to write and what to forget, never the whole.
- A confirm may be refused after the fact, by an owner that took over: the answer `LogStopped` confirms nothing.
- What a log is made of is the engine's own: changes are opaque, and of the places in a `ChunkRef` the broker reads
  none.
- Threads belong to the loop. An engine blocks, so the simulator and a test perform the same actions one by one, in
  any order that the interface allows.
- The view answers at once: indexes and recent contents are in memory, or on a disk that answers like memory. A store
  whose reads take 50 ms needs an action for a read, with an answer, like every write; that is not part of this
  interface yet.
"""
