package mtl

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// A Confirm is sent after so many contents or octets, or this time after the first of them.
const (
	confirmContents = windowContents / 4
	confirmOctets   = windowOctets / 4
	confirmTime     = time.Second
)

// Content is a content of a Reader. Number is its position in the resource.
type Content struct {
	Number uint64
	Body   []byte
	flow   *flow
}

// Reader reads as the holder of a group [5.3]. A content that was not confirmed is delivered again, to the next reader.
type Reader struct {
	ctx       context.Context // of the work; its cause is the error
	resource  string
	body      object // the request for a lease
	contents  chan Content
	confirms  chan Content
	closing   chan struct{}
	delivered uint64 // number of the newest delivered content
	processed uint64 // position after the newest confirmed content; 0 if there is none
}

// OpenReader begins to read. The reader ends with the context.
func OpenReader(ctx context.Context, options Options, resource, group string) (*Reader, error) {
	window := object{"contents": windowContents, "bytes": windowOctets}
	body, err := wanted(resource, object{"group": group, "from": "group", "window": window})
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancelCause(ctx)
	r := &Reader{
		ctx: ctx, resource: resource, body: body,
		contents: make(chan Content), confirms: make(chan Content), closing: make(chan struct{}),
	}
	go func() { end(cmp.Or(withLease(ctx, options, "Reader", body, r.work), errClosed)) }()
	return r, nil
}

// Next waits for a content.
func (r *Reader) Next() (Content, error) {
	select {
	case content := <-r.contents:
		return content, nil
	case <-r.ctx.Done():
		return Content{}, context.Cause(r.ctx)
	}
}

// Confirm confirms a content and all contents before it.
func (r *Reader) Confirm(content Content) error {
	select {
	case r.confirms <- content:
		return nil
	case <-r.ctx.Done():
		return context.Cause(r.ctx)
	}
}

// Close waits until the broker has confirmed the position of the group.
func (r *Reader) Close() error {
	close(r.closing)
	<-r.ctx.Done()
	if err := context.Cause(r.ctx); err != errClosed {
		return err
	}
	return nil
}

// work receives and confirms with one lease.
func (r *Reader) work(f *flow, l *lease) error {
	defer r.resumeAfter(l)
	if err := f.send(command{kind: summonKind, number: 2, fields: shortString(r.resource)}); err != nil {
		return err
	}
	confirm := func() error {
		if r.processed == 0 {
			return nil
		}
		return f.send(command{kind: confirmKind, number: r.processed - 1, fields: []byte{1}})
	}
	if err := confirm(); err != nil { // the former flow may have lost it
		return err
	}
	var received []Content   // not delivered to the application; the window limits them
	var contents, octets int // confirmed by the application and not yet to the broker
	var due <-chan time.Time
	closing := r.closing
	for {
		var out chan Content
		var head Content
		if len(received) > 0 {
			out, head = r.contents, received[0]
		}
		var err error
		select {
		case out <- head:
			received, r.delivered = received[1:], head.Number
		case content := <-r.confirms:
			if !l.extended { // the numbers of a server of RFC 11 alone are no positions [2]
				if content.flow == f {
					err = f.send(command{kind: confirmKind, number: content.Number, fields: []byte{0}})
				}
				break
			}
			r.processed = content.Number + 1
			contents, octets = contents+1, octets+len(content.Body)
			if contents >= confirmContents || octets >= confirmOctets {
				contents, octets, due = 0, 0, nil
				err = confirm()
			} else if due == nil {
				due = time.After(confirmTime)
			}
		case <-due:
			contents, octets, due = 0, 0, nil
			err = confirm()
		case got, open := <-f.commands:
			switch {
			case !open:
				return f.err
			case got.kind == contentKind && !(l.extended && got.number <= r.delivered):
				received = append(received, Content{got.number, got.body, f})
			case got.kind == pongKind && got.last && closing == nil: // it has the position of the group [5.3]
				if l.extended && r.processed > 0 && string(got.body) != fmt.Sprint(r.processed) {
					return lost("the group is at %s", got.body)
				}
				return nil
			}
		case <-closing:
			closing = nil
			if err = confirm(); err == nil {
				err = f.ping()
			}
		case <-r.ctx.Done():
			return context.Cause(r.ctx)
		}
		if err != nil {
			return err
		}
	}
}

// resumeAfter sets the position of the next lease, and the epoch of the content before it [5.1.1].
func (r *Reader) resumeAfter(l *lease) {
	if !l.extended {
		return
	}
	// With its epoch a holder learns of a newer one, and does not take the group back [3.1].
	r.body["epoch"], r.body["incarnation"] = l.Epoch, l.Incarnation
	position := cmp.Or(r.processed, l.From)
	r.body["from"] = position
	delete(r.body, "log-epoch")
	for _, epoch := range l.History {
		if first, ok := epoch[0].(float64); ok && uint64(first) < position {
			r.body["log-epoch"] = epoch[1]
		}
	}
}
