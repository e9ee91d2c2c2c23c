// A client of the `log` profile that survives restarts of the broker, from PROTOCOL.md alone ([sections]).
//
//	client ENDPOINT publish RESOURCE WRITER COUNT    publish the contents 0 .. COUNT-1, all confirmed
//	client ENDPOINT read RESOURCE GROUP COUNT        print COUNT contents, a line each
package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/go-zeromq/zmq4"
)

const (
	leaseKind, responseKind, summonKind, contentKind = 1, 2, 3, 5
	confirmKind, rejectKind, pingKind, pongKind      = 6, 7, 8, 9
	window                                           = 1000 // contents sent and not confirmed
)

type object = map[string]any
type socket struct{ zmq4.Socket }

func must(err error) { // a loss of the connection: see tried
	if err != nil {
		panic(err)
	}
}

func (s socket) send(frames ...[]byte) { must(s.SendMulti(zmq4.NewMsgFrom(frames...))) }

func (s socket) receive() [][]byte {
	defer time.AfterFunc(15*time.Second, func() { s.Close() }).Stop() // three heartbeats; Recv has no timeout
	message, err := s.Recv()
	must(err)
	return message.Frames
}

// ask sends a request of the control flow, after the empty frame that a REQ sends, and returns its reply [2].
func (s socket) ask(command string, body object) (reply object) {
	text, _ := json.Marshal(body)
	s.send(nil, []byte(command), text)
	frames := s.receive()
	must(json.Unmarshal(frames[2], &reply))
	if code := frames[1][0]; code == '5' { // overloaded, or the storage fails
		panic(string(frames[2]))
	} else if code == '4' {
		log.Fatalf("%s: %s", command, frames[2])
	}
	return reply
}

func short(text string) []byte { return append([]byte{byte(len(text))}, text...) }
func (s socket) command(kind byte, number uint64, rest, body []byte) {
	s.send(append(binary.BigEndian.AppendUint64([]byte{kind}, number), rest...), body)
}

// next returns the header and the body of the next command except Pings and good Responses [3].
func (s socket) next() ([]byte, []byte) {
	for {
		frames := s.receive()
		if kind := frames[0][0]; kind == pingKind {
			s.send([]byte{pongKind}, nil)
		} else if kind != responseKind {
			return frames[0], frames[1]
		} else if string(frames[1]) != "200" {
			panic("a Response " + string(frames[1]))
		}
	}
}

// The arguments and the request for a lease. The repeated request-id ends the former lease of the group.
var endpoint, resource, name, count = os.Args[1], os.Args[3], os.Args[4], uint64(0)
var wanted = object{"resources": []string{resource}, "confirm": "full", "request-id": fmt.Sprint(rand.Int())}

// tried does work with a lease, and reports whether it ended without a loss.
func tried(kind string, work func(data socket, lease object)) (done bool) {
	defer func() {
		if problem := recover(); problem != nil {
			log.Print("again: ", problem)
			time.Sleep(200 * time.Millisecond)
		}
	}()
	control := socket{zmq4.NewDealer(context.Background(), zmq4.WithDialerMaxRetries(1))}
	defer control.Close()
	must(control.Dial(endpoint))
	control.ask("Connection.Open", object{"protocol": object{"name": "MTL", "version": 1}})
	control.ask("Connection.Profile", object{"profile": "log"})
	lease := control.ask("Connection."+kind, wanted)
	data := socket{zmq4.NewDealer(context.Background(), zmq4.WithDialerMaxRetries(1))}
	defer data.Close()
	must(data.Dial(fmt.Sprintf("%s:%v", endpoint[:strings.LastIndex(endpoint, ":")], lease["port"])))
	data.command(leaseKind, 1, short(lease["lease"].(string)), nil)
	work(data, lease)
	control.ask("Lease.Close", object{"lease": lease["lease"]})
	return true
}

func publish(data socket, lease object) {
	wanted["epoch"] = lease["epoch"]
	last, _ := lease["last"].(object)[resource].(float64) // numbers count over all leases of a writer [5.4]
	for confirmed, next := uint64(last), uint64(last)+1; confirmed < count; {
		for ; next <= count && next-confirmed <= window; next++ {
			data.command(contentKind, next, append(short(resource), 0, 0, 0, 0), []byte(fmt.Sprint(next-1)))
		}
		head, _ := data.next()
		if head[0] == confirmKind {
			confirmed = max(confirmed, binary.BigEndian.Uint64(head[1:]))
		} else if next = confirmed + 1; head[10] == 0 { // a Reject; with "recycle": send again from here
			log.Fatalf("rejected: content %d", binary.BigEndian.Uint64(head[1:]))
		}
	}
}

func read(data socket, lease object) {
	data.command(summonKind, 2, short(resource), nil)
	at := uint64(lease["from"].(float64)) // the position of the group
	for count > 0 {
		head, body := data.next()
		fmt.Println(string(body))
		at = binary.BigEndian.Uint64(head[1:]) + 1
		wanted["from"], count = at, count-1
		data.command(confirmKind, at-1, []byte{1}, nil)
	}
	data.command(confirmKind, at-1, []byte{1}, nil) // again: an earlier flow may have lost it
	data.send([]byte{pingKind}, nil)                // the Pong has the position of the group [5.3]
	for pong := false; !pong; {
		head, body := data.next()
		if pong = head[0] == pongKind; pong && string(body) != fmt.Sprint(at) {
			panic("the group is at " + string(body))
		}
	}
}

func main() {
	fmt.Sscan(os.Args[5], &count)
	kind, work := "Writer", publish
	wanted["holder"], wanted["writer"] = wanted["request-id"], name
	if os.Args[2] == "read" {
		kind, work, wanted["group"], wanted["from"] = "Reader", read, name, "group"
	}
	for !tried(kind, work) {
	}
}
