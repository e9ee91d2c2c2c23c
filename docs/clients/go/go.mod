module example/mtl-client

go 1.24

require (
	github.com/go-zeromq/zmq4 v0.17.0
	golang.org/x/sync v0.7.0
	golang.org/x/text v0.15.0
)

require github.com/go-zeromq/goczmq/v4 v4.2.2 // indirect
