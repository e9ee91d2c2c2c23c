package mtl

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-zeromq/zmq4"
)

const (
	leaseKind, responseKind, summonKind, contentKind = 1, 2, 3, 5
	confirmKind, rejectKind, pingKind, pongKind      = 6, 7, 8, 9

	windowContents = 1000 // what may be unconfirmed, in either direction
	windowOctets   = 8 << 20
	heartbeat      = 5 * time.Second // for a lease that names no other interval
	firstPause     = 100 * time.Millisecond
	longestPause   = 5 * time.Second
)

// lease is a 202 [3].
type lease struct {
	Port        int
	Lease       string
	Endpoint    string
	Heartbeat   float64
	Epoch       json.RawMessage   // of a writer's name or a reader's group
	Incarnation string            // of a reader's resource
	Last        map[string]uint64 // number of the last content, by resource
	LogEpochs   json.RawMessage   `json:"log-epochs"`
	From        uint64            // position of a reader
	History     [][2]any          // [first position, epoch], ascending
	extended    bool              // the server implements PROTOCOL.md, and not RFC 11 alone [2]
}

// command is a command of the data flow [3].
type command struct {
	kind   byte
	number uint64
	fields []byte // the rest of the header
	body   []byte
	last   bool // a Pong, and no other Ping waits for one
}

func (c command) flag(at int) bool { return at < len(c.fields) && c.fields[at] == 1 }

// flow is the data flow of one lease. commands is closed at its end.
type flow struct {
	socket   zmq4.Socket
	commands chan command
	err      error        // why it ended; valid when commands is closed
	pongsDue atomic.Int64 // Pings without a Pong
}

func newFlow(ctx context.Context, endpoint string, l *lease) (*flow, error) {
	if endpoint = endpoint[:strings.LastIndex(endpoint, ":")] + fmt.Sprintf(":%d", l.Port); l.Endpoint != "" {
		endpoint = l.Endpoint
	}
	socket, err := dial(ctx, endpoint)
	if err != nil {
		return nil, err
	}
	interval := heartbeat
	if l.Heartbeat > 0 {
		interval = time.Duration(l.Heartbeat * float64(time.Second))
	}
	f := &flow{socket: socket, commands: make(chan command)}
	go f.receive(ctx, interval)
	return f, nil
}

// receive passes commands on, and answers Pings. It ends after a long silence, and with its socket.
func (f *flow) receive(ctx context.Context, interval time.Duration) {
	defer close(f.commands)
	due := time.AfterFunc(interval, func() { f.ping() })
	defer due.Stop()
	silence := time.AfterFunc(3*interval, f.close)
	defer silence.Stop()
	for {
		frames, err := receive(f.socket)
		if err != nil {
			f.err = lost("the data flow ended: %v", err)
			return
		}
		due.Reset(interval)
		silence.Reset(3 * interval)
		received, err := parsed(frames)
		switch {
		case err != nil:
		case received.kind == pongKind:
			received.last = f.pongsDue.Add(-1) == 0
		case received.kind == pingKind:
			err = f.send(command{kind: pongKind})
		case received.kind == responseKind && string(received.body) != "200":
			err = lost("the broker answered %s", received.body)
		}
		if err != nil {
			f.err = err
			return
		}
		select {
		case f.commands <- received:
		case <-ctx.Done():
			f.err = ctx.Err()
			return
		}
	}
}

func parsed(frames [][]byte) (command, error) {
	if len(frames) != 2 || len(frames[0]) == 0 {
		return command{}, lost("a command of %d frames", len(frames))
	}
	header := frames[0]
	received := command{kind: header[0], body: frames[1]}
	if received.kind == pingKind || received.kind == pongKind {
		return received, nil
	}
	if len(header) < 9 {
		return command{}, lost("a header of %d octets", len(header))
	}
	received.number, received.fields = binary.BigEndian.Uint64(header[1:]), header[9:]
	return received, nil
}

func (f *flow) ping() error {
	f.pongsDue.Add(1)
	return f.send(command{kind: pingKind})
}

func (f *flow) send(c command) error {
	header := []byte{c.kind}
	if c.kind != pingKind && c.kind != pongKind {
		header = append(binary.BigEndian.AppendUint64(header, c.number), c.fields...)
	}
	if err := f.socket.SendMulti(zmq4.NewMsgFrom(header, c.body)); err != nil {
		return lost("%v", err)
	}
	return nil
}

func (f *flow) close() { f.socket.Close() }

// errClosed is the cause of the end of a Writer or Reader that was closed.
var errClosed = errors.New("closed")

// shortString is a short string [1].
func shortString(text string) []byte { return append([]byte{byte(len(text))}, text...) }

// wanted is a request for a lease. The repeated request-id ends the former lease, which would hold the cursor of a
// group back [3, 5.3].
func wanted(resource string, more object) (object, error) {
	if len(resource) > 255 {
		return nil, fmt.Errorf("a name has at most 255 octets, and this one %d: %s", len(resource), resource)
	}
	body := object{"resources": []string{resource}, "confirm": "full", "request-id": rand.Text(), "holder": rand.Text()}
	for name, value := range more {
		body[name] = value
	}
	return body, nil
}

// withLease does the work with a lease, and after each loss with another lease, until the work is done.
func withLease(ctx context.Context, options Options, kind string, body object, work func(*flow, *lease) error) error {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		granted, err := onceWithLease(ctx, options, kind, body, work)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !errors.Is(err, errLost) {
			return err
		}
		if options.OnLost != nil {
			options.OnLost(err)
		}
		if granted {
			pause = firstPause
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func onceWithLease(
	ctx context.Context, options Options, kind string, body object, work func(*flow, *lease) error,
) (granted bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	session, err := openSession(ctx, options)
	if err != nil {
		return false, err
	}
	defer session.close()
	text, err := session.ask("Connection."+kind, body)
	if err != nil {
		return false, err
	}
	var l lease
	if err := json.Unmarshal(text, &l); err != nil {
		return false, err
	}
	l.extended = session.token != ""
	flow, err := newFlow(ctx, options.Endpoint, &l)
	if err != nil {
		return true, err
	}
	defer flow.close()
	if err := flow.send(command{kind: leaseKind, number: 1, fields: shortString(l.Lease)}); err != nil {
		return true, err
	}
	if err := work(flow, &l); err != nil || !l.extended {
		return true, err
	}
	_, err = session.ask("Lease.Close", object{"lease": l.Lease})
	return true, err
}
