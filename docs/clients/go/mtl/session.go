// Package mtl is a client of the `log` profile, written from PROTOCOL.md alone; its sections are in brackets.
//
// After a loss of the connection a Writer and a Reader get another lease and continue, without a lost or repeated
// content.
package mtl

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-zeromq/zmq4"
)

const (
	requestTime = 5 * time.Second // a reply that takes longer is lost
	attempts    = 3               // log-ins for one request
)

// Options of a Writer or a Reader. User is empty if the broker requires no log-in. OnLost is called before each new
// attempt to connect.
type Options struct {
	Endpoint, User, Password string
	OnLost                   func(error)
}

// errLost is in the errors after which a new connection may succeed. All other errors are final.
var errLost = errors.New("connection lost")

func lost(format string, arguments ...any) error {
	return fmt.Errorf("%w: %s", errLost, fmt.Sprintf(format, arguments...))
}

// RefusedError is a refusal by the broker.
type RefusedError struct {
	Command         string
	Code            int
	Status          string
	Reason, Message string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s: %d %s %s %s", e.Command, e.Code, e.Status, e.Reason, e.Message)
}

func (e *RefusedError) Is(target error) bool {
	// unknown-lease: the broker has ended the lease, for example after a new password.
	passing := e.Code == 503 || e.Reason == "not-open" || e.Reason == "unknown-lease"
	return target == errLost && passing
}

type object = map[string]any

// session is the control flow [2]: requests, and the log-in that any of them may need [2.1].
type session struct {
	options Options
	socket  zmq4.Socket
	token   string // empty if the server implements RFC 11 alone [2]
}

// dial connects a DEALER socket, which does not connect again after the end of its connection.
func dial(ctx context.Context, endpoint string) (zmq4.Socket, error) {
	socket := zmq4.NewDealer(ctx, zmq4.WithDialerMaxRetries(0), zmq4.WithDialerTimeout(requestTime))
	if err := socket.Dial(endpoint); err != nil {
		socket.Close()
		return nil, lost("%v", err)
	}
	return socket, nil
}

// receive returns the frames of the next message. The library passes heartbeats of ZMTP on, too.
func receive(socket zmq4.Socket) ([][]byte, error) {
	for {
		message, err := socket.Recv()
		if err != nil || message.Type != zmq4.CmdMsg {
			return message.Frames, err
		}
	}
}

func openSession(ctx context.Context, options Options) (*session, error) {
	socket, err := dial(ctx, options.Endpoint)
	if err != nil {
		return nil, err
	}
	s := &session{options: options, socket: socket}
	if err := s.open(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *session) open() error {
	const command = "Connection.Open"
	reply, err := s.exchange(command, object{"protocol": object{"name": "MTL", "version": 1}})
	if err != nil {
		return err
	}
	switch reply.code {
	case 201:
		s.token = reply.Session
	case 401:
		err = s.logIn(reply.Mechanisms)
	default:
		err = reply.refused(command)
	}
	if err != nil {
		return err
	}
	_, err = s.ask("Connection.Profile", object{"profile": "log"})
	return err
}

func (s *session) close() { s.socket.Close() }

// ask returns the body of a reply. It answers a 401 by a log-in and repeats the request.
func (s *session) ask(command string, body object) ([]byte, error) {
	for attempt := 1; ; attempt++ {
		reply, err := s.exchange(command, body)
		if err != nil {
			return nil, err
		}
		switch {
		case reply.code < 300:
			return reply.body, nil
		case reply.code != 401 || attempt > attempts:
			return nil, reply.refused(command)
		}
		if err := s.logIn(reply.Mechanisms); err != nil {
			return nil, err
		}
	}
}

func (s *session) logIn(mechanisms []string) error {
	offers := func(name string) bool {
		return slices.ContainsFunc(mechanisms, func(offered string) bool { return strings.EqualFold(offered, name) })
	}
	if s.options.User == "" && offers("ANONYMOUS") {
		_, err := s.authorize("ANONYMOUS", "", 201)
		return err
	}
	const mechanism = "SCRAM-SHA-256"
	if s.options.User == "" || !offers(mechanism) {
		return fmt.Errorf("the broker offers the log-ins %v; this client has the user %q and knows %s",
			mechanisms, s.options.User, mechanism)
	}
	conversation := newScram(s.options.User, s.options.Password)
	serverFirst, err := s.authorize(mechanism, conversation.first(), 402)
	if err != nil {
		return err
	}
	final, err := conversation.final(serverFirst)
	if err != nil {
		return err
	}
	serverFinal, err := s.authorize(mechanism, final, 402)
	if err != nil {
		return err
	}
	if err := conversation.check(serverFinal); err != nil {
		return err
	}
	_, err = s.authorize(mechanism, "", 201)
	return err
}

// authorize takes one step of a log-in, and returns the challenge of its answer.
func (s *session) authorize(mechanism, response string, expected int) (string, error) {
	const command = "Connection.Authorize"
	encoded := base64.StdEncoding.EncodeToString([]byte(response))
	reply, err := s.exchange(command, object{"mechanism": mechanism, "response": encoded})
	if err != nil {
		return "", err
	}
	switch {
	case reply.code == 401:
		return "", fmt.Errorf("the log-in as %q was refused", s.options.User)
	case reply.code != expected:
		return "", reply.refused(command)
	case reply.code == 201:
		s.token = reply.Session // it makes the former token unknown
	}
	challenge, err := base64.StdEncoding.DecodeString(reply.Challenge)
	return string(challenge), err
}

type reply struct {
	code                    int
	body                    []byte
	Status, Reason, Message string
	Session, Challenge      string
	Mechanisms              []string
}

func (r *reply) refused(command string) error {
	return &RefusedError{command, r.code, r.Status, r.Reason, r.Message}
}

func (s *session) exchange(command string, body object) (*reply, error) {
	if s.token != "" {
		body["session"] = s.token
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	// Recv has no time limit; the end of the socket ends it.
	defer time.AfterFunc(requestTime, func() { s.socket.Close() }).Stop()
	// A REQ socket sends an empty frame before its request.
	if err := s.socket.SendMulti(zmq4.NewMsgFrom(nil, []byte(command), text)); err != nil {
		return nil, lost("%s: %v", command, err)
	}
	frames, err := receive(s.socket)
	if err != nil {
		return nil, lost("no reply to %s: %v", command, err)
	}
	if len(frames) != 3 {
		return nil, fmt.Errorf("a reply of %d frames to %s", len(frames), command)
	}
	received := &reply{body: frames[2]}
	if received.code, err = strconv.Atoi(string(frames[1])); err != nil {
		return nil, fmt.Errorf("the reply to %s: %w", command, err)
	}
	if err := json.Unmarshal(received.body, received); err != nil {
		return nil, fmt.Errorf("the reply to %s: %w", command, err)
	}
	return received, nil
}
