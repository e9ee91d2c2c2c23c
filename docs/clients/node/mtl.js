// A client of the `log` profile, written from PROTOCOL.md alone; its sections are in brackets. After a loss of the
// connection a Writer and a Reader get another lease and continue, without a lost or repeated content.
//
// Options of `open`: endpoint; user and password, if the broker requires a log-in; onLost(error), called before each
// new attempt.

import { CONFIRM, CONTENT, Leased, PONG, REJECT, SUMMON, WINDOW, shortString } from "./leased.js";
import { Lost, Refused } from "./session.js";

const CONFIRM_AFTER = { contents: WINDOW.contents / 4, bytes: WINDOW.bytes / 4, ms: 1000 };
const NO_PROPERTIES = Buffer.alloc(4); // an empty field table [1]

// Publishes under a name, so that each content is stored once, also over restarts of this process [5.4].
//
//   const writer = await Writer.open(options, "orders", "my-producer");
//   for (const body of bodies.slice(writer.last)) await writer.send(body);    // waits while the window is full
//   await writer.close();                                                     // all are confirmed
export class Writer extends Leased {
  last; // the number of contents that an earlier writer of this name has published
  #resource;
  #unconfirmed = new Map(); // number -> body, in order
  #octets = 0; // of the unconfirmed bodies
  #numbered = 0; // the number of the newest content
  #next = 1; // the number of the next content to send on this flow
  #confirmed = 0;
  #flow;
  #closing = false;

  static async open(options, resource, name) {
    const writer = new Writer(options, { resources: [resource], writer: name });
    writer.#resource = shortString(resource);
    writer._start("Connection.Writer");
    await writer._until(() => writer.last !== undefined);
    return writer;
  }

  // Waits until the window has room.
  async send(body) {
    const octets = Buffer.from(body);
    const fits = () => this.#octets + octets.length <= WINDOW.bytes && this.#unconfirmed.size < WINDOW.contents;
    await this._until(() => this.#unconfirmed.size === 0 || fits());
    this.#numbered += 1;
    this.#unconfirmed.set(this.#numbered, octets);
    this.#octets += octets.length;
    this._changed();
  }

  async flush() {
    await this._until(() => this.#unconfirmed.size === 0);
  }

  async close() {
    this.#closing = true;
    this._changed();
    await this._over();
  }

  get #done() {
    return this.#closing && this.#unconfirmed.size === 0;
  }

  async _work(flow, lease, extended) {
    const last = lease.last?.[this._wanted.resources[0]] ?? 0;
    if (this.last === undefined) this.last = this.#numbered = last;
    else if (extended && last < this.#confirmed) {
      throw new Refused(`the broker has lost contents: it has ${last} of ${this.#confirmed} confirmed ones`);
    }
    this._wanted.epoch = lease.epoch;
    this.#settle(last, true);
    this.#next = last + 1;
    this.#flow = flow;
    this._changed();
    const sending = this.#sendAll(flow);
    try {
      if (this.#done) return;
      for await (const { kind, number, fields } of flow.commands()) {
        if (kind === CONFIRM) {
          this._wanted["log-epochs"] = lease["log-epochs"]; // where the confirmed contents are [5.1.1]
          this.#settle(Number(number), fields[0] === 1);
        } else if (kind === REJECT && fields[1] === 0) {
          throw new Refused(`content ${number} was rejected`);
        } else if (kind === REJECT) {
          throw new Lost(`content ${number} is to be sent again`); // "recycle": it and all after it
        }
        this._changed();
        if (this.#done) return;
      }
    } finally {
      this.#flow = undefined;
      this._changed();
      await sending;
    }
  }

  async #sendAll(flow) {
    for (;;) {
      await this._until(() => this.#flow !== flow || this.#next <= this.#numbered);
      if (this.#flow !== flow) return;
      const body = this.#unconfirmed.get(this.#next);
      this.#next += 1;
      if (body) await flow.send(CONTENT, this.#next - 1, Buffer.concat([this.#resource, NO_PROPERTIES]), body);
    }
  }

  #settle(upTo, multiple) {
    if (multiple) this.#confirmed = Math.max(this.#confirmed, upTo);
    for (const number of multiple ? this.#unconfirmed.keys() : [upTo]) {
      if (number > upTo) return;
      this.#octets -= this.#unconfirmed.get(number)?.length ?? 0;
      this.#unconfirmed.delete(number);
    }
  }
}

// Reads as the holder of a group [5.3]. A content that was not confirmed is delivered again, to the next reader.
//
//   const reader = await Reader.open(options, "orders", "my-group");
//   for await (const content of reader) {
//     console.log(content.number, content.body);
//     reader.confirm(content); // it and all before it
//   }
export class Reader extends Leased {
  #contents = []; // received and not delivered to the application; the window limits them
  #delivered = 0n; // the number of the newest delivered content
  #processed; // the position after the newest confirmed content
  #waiting = { contents: 0, bytes: 0 }; // confirmed by the application and not yet to the broker
  #timer;
  #flow;
  #extended;
  #history = [];
  #closing = false;

  static async open(options, resource, group) {
    const reader = new Reader(options, { resources: [resource], group, from: "group", window: WINDOW });
    reader._start("Connection.Reader");
    await reader._until(() => reader.#flow !== undefined);
    return reader;
  }

  async *[Symbol.asyncIterator]() {
    for (;;) {
      await this._until(() => this.#contents.length > 0);
      const content = this.#contents.shift();
      this.#delivered = content.number;
      yield content;
    }
  }

  confirm({ number, body, flow }) {
    if (!this.#extended) { // the numbers of a server of RFC 11 alone are no positions [2]
      if (flow === this.#flow) flow.send(CONFIRM, number, Buffer.from([0]));
      return;
    }
    this.#processed = number + 1n;
    this.#waiting.contents += 1;
    this.#waiting.bytes += body.length;
    const { contents, bytes, ms } = CONFIRM_AFTER;
    if (this.#waiting.contents >= contents || this.#waiting.bytes >= bytes) this.#confirm();
    else this.#timer ??= setTimeout(() => this.#confirm(), ms);
  }

  // Ends when the broker has confirmed the group's position.
  async close() {
    this.#closing = true;
    if (this.#flow) await this.#end(this.#flow);
    await this._over();
  }

  // The Pong to this Ping has the group's position after the Confirm [5.3].
  #end(flow) {
    this.#confirm();
    return flow.ping();
  }

  #confirm() {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#waiting = { contents: 0, bytes: 0 };
    if (this.#flow && this.#processed) this.#flow.send(CONFIRM, this.#processed - 1n, Buffer.from([1]));
  }

  async _work(flow, lease, extended) {
    this.#extended = extended;
    // With its epoch a holder learns of a newer one, and does not take the group back [3.1].
    Object.assign(this._wanted, { epoch: lease.epoch, incarnation: lease.incarnation });
    this.#history = lease.history ?? [];
    this.#contents = [];
    this.#flow = flow;
    this._changed();
    try {
      await flow.send(SUMMON, 2, shortString(this._wanted.resources[0]));
      if (this.#closing) await this.#end(flow);
      else this.#confirm(); // the former flow may have lost it
      for await (const { kind, number, fields, body } of flow.commands()) {
        if (kind === CONTENT && !(extended && number <= this.#delivered)) {
          this.#contents.push({ number, body, flow });
          this._changed();
        } else if (kind === PONG && this.#closing && flow.pongsDue === 0) {
          if (!extended || !this.#processed || body.toString() === String(this.#processed)) return;
          throw new Lost(`the group is at ${body}`);
        }
      }
    } finally {
      this.#flow = undefined;
      if (extended) this.#resumeAt(this.#processed ?? BigInt(lease.from));
    }
  }

  // The next lease begins at this position, in the epoch of the content before it [5.1.1].
  #resumeAt(position) {
    const before = this.#history.filter(([first]) => BigInt(first) < position).at(-1);
    Object.assign(this._wanted, { from: Number(position), "log-epoch": before?.[1] });
  }
}
