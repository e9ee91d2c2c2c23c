// A client of the `log` profile in Go, written from PROTOCOL.md alone: a starting point.
//
//	client ENDPOINT publish RESOURCE NAME COUNT    contents 0 .. COUNT-1, each confirmed, as the writer NAME
//	client ENDPOINT read RESOURCE GROUP COUNT      COUNT contents, a line for each, as the holder of GROUP
//
// Both survive a restart of the broker: silence ends the connection, and a new lease goes on where the former one ended.
package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-zeromq/zmq4"
)

const (
	leaseKind, responseKind, summonKind, contentKind = 1, 2, 3, 5
	confirmKind, rejectKind, pingKind, pongKind      = 6, 7, 8, 9
	pingAfter                                        = time.Second // five times as much silence is a broker that is gone
	window                                           = 1000        // contents that are sent and not confirmed
)

var errLost = errors.New("lost")

type object = map[string]any

func header(kind byte, number uint64, rest ...byte) []byte {
	return append(binary.BigEndian.AppendUint64([]byte{kind}, number), rest...)
}

func short(text string) []byte { return append([]byte{byte(len(text))}, text...) }

// --- sockets: what is received comes through a channel, which is closed when the socket fails -----------------------

type socket struct {
	zmq4.Socket
	in    chan [][]byte
	close func()
}

func dial(open func(context.Context, ...zmq4.Option) zmq4.Socket, endpoint string) (*socket, error) {
	ctx, cancel := context.WithCancel(context.Background())
	one := &socket{Socket: open(ctx, zmq4.WithDialerMaxRetries(1)), in: make(chan [][]byte, window)}
	one.close = func() { cancel(); one.Close() }
	if err := one.Dial(endpoint); err != nil {
		one.close()
		return nil, errors.Join(errLost, err)
	}
	go func() {
		defer close(one.in)
		for {
			message, err := one.Recv()
			if err != nil || len(message.Frames) < 2 {
				return
			}
			select {
			case one.in <- message.Frames:
			case <-ctx.Done():
				return
			}
		}
	}()
	return one, nil
}

func (s *socket) say(frames ...[]byte) error {
	if err := s.SendMulti(zmq4.NewMsgFrom(frames...)); err != nil {
		return errors.Join(errLost, err)
	}
	return nil
}

// --- control flow (PROTOCOL.md 2): a DEALER with the empty frame that a REQ would send ------------------------------

type session struct {
	*socket
	token any
}

func (s *session) ask(command string, body object) (object, error) {
	if s.token != nil {
		body["session"] = s.token
	}
	text, _ := json.Marshal(body)
	if err := s.say(nil, []byte(command), text); err != nil {
		return nil, err
	}
	select {
	case frames, ok := <-s.in:
		reply := object{}
		if !ok || len(frames) != 3 || json.Unmarshal(frames[2], &reply) != nil {
			return nil, errLost
		}
		if frames[1][0] == '2' {
			return reply, nil
		}
		if reason := reply["reason"]; reason == "not-open" || reason == "overloaded" || reason == "storage" {
			return nil, errLost
		}
		return nil, fmt.Errorf("%s: %s %v: %v", command, frames[1], reply["reason"], reply["message"])
	case <-time.After(5 * time.Second):
		return nil, errLost
	}
}

// --- data flow (PROTOCOL.md 3) --------------------------------------------------------------------------------------

type command struct {
	kind       byte
	number     uint64
	rest, body []byte
}

type flow struct {
	*socket
	heard time.Time
	pings int    // without a Pong yet
	pong  string // the body of the last one
}

func (f *flow) ping() error {
	f.pings++
	return f.say([]byte{pingKind}, nil)
}

// next is the next command but Pings; kind 0 after a while without one.
func (f *flow) next() (command, error) {
	select {
	case frames, ok := <-f.in:
		if !ok {
			return command{}, errLost
		}
		f.heard = time.Now()
		head := frames[0]
		switch {
		case head[0] == pingKind:
			return command{}, f.say([]byte{pongKind}, nil)
		case head[0] == pongKind:
			f.pings, f.pong = f.pings-1, string(frames[1])
		case len(head) >= 9:
			return command{head[0], binary.BigEndian.Uint64(head[1:]), head[9:], frames[1]}, nil
		}
		return command{}, nil
	case <-time.After(pingAfter):
		if time.Since(f.heard) > 5*pingAfter {
			return command{}, errLost
		}
		return command{}, f.ping()
	}
}

// ask sends a Lease or a Summon, and waits for its Response.
func (f *flow) ask(kind byte, name string) error {
	err := f.say(header(kind, uint64(kind), short(name)...), nil)
	for err == nil {
		var answer command
		if answer, err = f.next(); answer.kind == responseKind {
			if !strings.HasPrefix(string(answer.body), "20") {
				return errLost
			}
			return nil
		}
	}
	return err
}

// lasting runs `once` with a lease until it returns; again after a loss. `wanted` is what the lease is asked for with. Its
// `request-id` ends the lease before, which would hold the cursor of the group back (PROTOCOL.md 3, 5.3).
func lasting(endpoint, kind string, wanted object, once func(*flow, object) error) error {
	holder := fmt.Sprintf("%x%x", rand.Uint64(), rand.Uint64())
	wanted["holder"], wanted["request-id"], wanted["confirm"] = holder, holder, "full"
	for {
		err := leased(endpoint, kind, wanted, once)
		if !errors.Is(err, errLost) {
			return err
		}
		fmt.Fprintln(os.Stderr, "again:", err)
		time.Sleep(200 * time.Millisecond)
	}
}

func leased(endpoint, kind string, wanted object, once func(*flow, object) error) error {
	control, err := dial(zmq4.NewDealer, endpoint)
	if err != nil {
		return err
	}
	defer control.close()
	s := &session{socket: control}
	ready, err := s.ask("Connection.Open", object{"protocol": object{"name": "MTL", "version": 1}})
	if err != nil {
		return err
	}
	s.token = ready["session"]
	if _, err = s.ask("Connection.Profile", object{"profile": "log"}); err != nil {
		return err
	}
	lease, err := s.ask("Connection."+kind, wanted)
	if err != nil {
		return err
	}
	data, err := dial(zmq4.NewDealer, fmt.Sprintf("%s:%v", endpoint[:strings.LastIndex(endpoint, ":")], lease["port"]))
	if err != nil {
		return err
	}
	defer data.close()
	f := &flow{socket: data, heard: time.Now()}
	if err = f.ask(leaseKind, lease["lease"].(string)); err == nil {
		if err = once(f, lease); err == nil {
			_, err = s.ask("Lease.Close", object{"lease": lease["lease"]})
		}
	}
	return err
}

// --- what it is for -------------------------------------------------------------------------------------------------

func publish(endpoint, resource, name string, count uint64) error {
	var confirmed uint64 // a named writer's numbers count its contents, over all its leases (PROTOCOL.md 5.4)
	wanted := object{"resources": []string{resource}, "writer": name}
	return lasting(endpoint, "Writer", wanted, func(f *flow, lease object) error {
		wanted["epoch"] = lease["epoch"]
		if last, ok := lease["last"].(object)[resource].(float64); ok {
			confirmed = max(confirmed, uint64(last))
		}
		next := confirmed + 1
		for confirmed < count {
			for ; next <= count && next-confirmed <= window; next++ {
				head := append(header(contentKind, next, short(resource)...), 0, 0, 0, 0)
				if err := f.say(head, []byte(strconv.FormatUint(next-1, 10))); err != nil {
					return err
				}
			}
			got, err := f.next()
			switch {
			case err != nil:
				return err
			case got.kind == confirmKind:
				confirmed = max(confirmed, got.number)
			case got.kind == rejectKind && got.rest[1] == 1: // recycle: everything again
				next = confirmed + 1
			case got.kind == rejectKind:
				return fmt.Errorf("content %d was rejected", got.number)
			}
		}
		return nil
	})
}

func read(endpoint, resource, group string, count uint64) error {
	wanted := object{"resources": []string{resource}, "group": group, "window": object{"contents": window, "bytes": 8 << 20}}
	wanted["from"] = "group" // the group's cursor; then the sequence after the last content
	return lasting(endpoint, "Reader", wanted, func(f *flow, lease object) error {
		at := uint64(lease["from"].(float64))
		if err := f.ask(summonKind, resource); err != nil {
			return err
		}
		for count > 0 {
			got, err := f.next()
			if err != nil {
				return err
			}
			if got.kind != contentKind || got.number < at {
				continue
			}
			fmt.Println(string(got.body))
			at, count, wanted["from"] = got.number+1, count-1, got.number+1
			if got.number%(window/4) == 0 {
				if err := f.say(header(confirmKind, got.number, 1), nil); err != nil {
					return err
				}
			}
		}
		// All of it, also what an earlier flow has lost. The Pong says where the group is then (PROTOCOL.md 5.3).
		err := errors.Join(f.say(header(confirmKind, at-1, 1), nil), f.ping())
		for err == nil && f.pings > 0 {
			_, err = f.next()
		}
		if err == nil && f.pong != fmt.Sprint(at) {
			return errLost
		}
		return err
	})
}

func main() {
	count, _ := strconv.ParseUint(os.Args[5], 10, 64)
	do := map[string]func(string, string, string, uint64) error{"publish": publish, "read": read}[os.Args[2]]
	if err := do(os.Args[1], os.Args[3], os.Args[4], count); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
