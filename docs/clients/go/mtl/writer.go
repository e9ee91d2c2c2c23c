package mtl

import (
	"cmp"
	"context"
	"fmt"

	"golang.org/x/sync/semaphore"
)

type numbered struct {
	number uint64
	body   []byte
}

// Writer publishes under a name, so that each content is stored once, also over restarts of this process [5.4].
type Writer struct {
	// Last is the number of contents that an earlier writer of this name has published: continue after them.
	Last uint64

	ctx       context.Context // of the work; its cause is the error
	resource  string
	body      object // the request for a lease
	room      *semaphore.Weighted
	contents  chan []byte
	closing   chan struct{}
	ready     chan struct{} // closed when Last is known
	next      uint64        // number of the next content
	confirmed uint64
	waiting   []numbered // unconfirmed, in order
}

// OpenWriter waits for the first lease. The writer ends with the context.
func OpenWriter(ctx context.Context, options Options, resource, name string) (*Writer, error) {
	body, err := wanted(resource, object{"writer": name})
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancelCause(ctx)
	w := &Writer{
		ctx: ctx, resource: resource, body: body, room: semaphore.NewWeighted(windowOctets),
		contents: make(chan []byte), closing: make(chan struct{}), ready: make(chan struct{}),
	}
	go func() { end(cmp.Or(withLease(ctx, options, "Writer", body, w.work), errClosed)) }()
	select {
	case <-w.ready:
		return w, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// weight is the share of a content in the window, which has a limit of octets and one of contents.
func weight(body []byte) int64 {
	return int64(min(max(len(body), windowOctets/windowContents), windowOctets))
}

// Send waits until the window has room.
func (w *Writer) Send(body []byte) error {
	if w.room.Acquire(w.ctx, weight(body)) != nil {
		return context.Cause(w.ctx)
	}
	select {
	case w.contents <- body:
		return nil
	case <-w.ctx.Done():
		return context.Cause(w.ctx)
	}
}

// Close waits until all contents are confirmed.
func (w *Writer) Close() error {
	close(w.closing)
	<-w.ctx.Done()
	if err := context.Cause(w.ctx); err != errClosed {
		return err
	}
	return nil
}

// work sends and confirms with one lease.
func (w *Writer) work(f *flow, l *lease) error {
	last := l.Last[w.resource]
	if w.next == 0 {
		w.Last, w.confirmed, w.next = last, last, last+1
		close(w.ready)
	} else if l.extended && last < w.confirmed {
		return fmt.Errorf("the broker has lost contents: it has %d of %d confirmed ones", last, w.confirmed)
	}
	if l.Epoch != nil {
		w.body["epoch"] = l.Epoch
	}
	w.settle(last, true)
	for _, content := range w.waiting {
		if err := w.send(f, content); err != nil {
			return err
		}
	}
	closing := w.closing
	for {
		if closing == nil && len(w.waiting) == 0 {
			return nil
		}
		select {
		case body := <-w.contents:
			content := numbered{w.next, body}
			w.next++
			w.waiting = append(w.waiting, content)
			if err := w.send(f, content); err != nil {
				return err
			}
		case received, open := <-f.commands:
			if !open {
				return f.err
			}
			switch {
			case received.kind == confirmKind:
				if l.LogEpochs != nil {
					w.body["log-epochs"] = l.LogEpochs // where the confirmed contents are [5.1.1]
				}
				w.settle(received.number, received.flag(0))
			case received.kind == rejectKind && !received.flag(1):
				return fmt.Errorf("content %d was rejected", received.number)
			case received.kind == rejectKind: // "recycle": this content and all after it
				return lost("content %d is to be sent again", received.number)
			}
		case <-closing:
			closing = nil
		case <-w.ctx.Done():
			return context.Cause(w.ctx)
		}
	}
}

func (w *Writer) send(f *flow, content numbered) error {
	fields := append(shortString(w.resource), 0, 0, 0, 0) // an empty field table [1]
	return f.send(command{kind: contentKind, number: content.number, fields: fields, body: content.body})
}

// settle removes a content, or with multiple all contents up to it.
func (w *Writer) settle(number uint64, multiple bool) {
	if multiple {
		w.confirmed = max(w.confirmed, number)
	}
	kept := w.waiting[:0]
	for _, content := range w.waiting {
		if content.number == number || multiple && content.number < number {
			w.room.Release(weight(content.body))
		} else {
			kept = append(kept, content)
		}
	}
	w.waiting = kept
}
