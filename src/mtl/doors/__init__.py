"""Front doors: other protocols' ways to the broker's resources.

A door is a server of its protocol on one side and an MTL client (`mtl.aio`) on the other, so it runs on any machine
with access to the broker: in a process of the broker's (`[doors.mc0]` in broker.toml, `mtl door mc0`) or elsewhere.

    peer ──► codec ──► session (sans IO, a table of states) ──► door (sockets, tasks) ──► PeerSession ──► broker

The package has the code that all doors share: `bridge` (publishing, which ends with the broker's Confirm, and reading,
at the peer's pace), `pools` (the table of what all peers share), `peer_session` (a peer's uses of them), `listening`
(connections before their log-in), `budget` and `writers` (limits of memory), `properties` (metadata as properties),
`websocket` (for doors on WebSocket), `config` and `running`. Read `bridge` first. Doors keep nothing on disk;
`mbws.connection_store` stores connections in the broker.
"""
