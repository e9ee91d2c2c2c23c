"""Front doors: other protocols' ways to the broker's resources.

A door is a server of its protocol on one side and an MTL client (`mtl.aio`) on the other, so it runs wherever a client
can: in a process beside the broker (`[doors.mc0]` in broker.toml, `mtl door mc0`), far from it, several at once.

    peer ──► codec ──► session (sans IO, a table of states) ──► door (sockets, tasks) ──► Bridge ──► broker

What all doors share is here: `bridge` (publishing, which ends with the broker's Confirm, and reading, at the peer's
pace), `budget` and `writers` (what bounds it), `properties` (what becomes of metadata), `websocket` (for those that
speak it), `config` and `running`. Doors keep nothing on disk; `mbws.connection_store` stores
connections in the broker.
"""
