// A lease, its data flow, and another lease after each loss. Sections of PROTOCOL.md are in brackets.

import { randomUUID } from "node:crypto";
import { EventEmitter, once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { Dealer } from "zeromq";
import { Lost, Refused, Session } from "./session.js";

export const LEASE = 1, RESPONSE = 2, SUMMON = 3, CONTENT = 5, CONFIRM = 6, REJECT = 7, PING = 8, PONG = 9;
export const WINDOW = { contents: 1000, bytes: 8 << 20 }; // what may be unconfirmed, in either direction
const HEARTBEAT_S = 5; // for a lease that names no other interval
const PAUSE_MS = { first: 100, longest: 5000 }; // between attempts; doubled each time
const EMPTY = Buffer.alloc(0);

// A short string [1].
export function shortString(text) {
  const raw = Buffer.from(text);
  if (raw.length > 255) throw new Refused(`a name has at most 255 octets, and this one ${raw.length}: ${text}`);
  return Buffer.concat([Buffer.from([raw.length]), raw]);
}

// The data flow of one lease [3].
class Flow {
  #dealer;
  #heartbeatMs;
  #sending = Promise.resolve(); // a socket sends one message at a time
  #closed = false;
  pongsDue = 0; // Pings without a Pong

  constructor(endpoint, lease) {
    this.#heartbeatMs = 1000 * (lease.heartbeat ?? HEARTBEAT_S);
    this.#dealer = new Dealer({ linger: 1000, receiveTimeout: this.#heartbeatMs, sendHighWaterMark: 0 });
    this.#dealer.connect(lease.endpoint ?? `${endpoint.slice(0, endpoint.lastIndexOf(":"))}:${lease.port}`);
    // The socket would connect again by itself, and the lease would not be presented on that connection.
    this.#dealer.events.on("disconnect", () => this.close());
  }

  send(kind, number, fields = EMPTY, body = EMPTY) {
    const header = Buffer.alloc(9);
    header[0] = kind;
    header.writeBigUInt64BE(BigInt(number), 1);
    return this.#send([Buffer.concat([header, fields]), body]);
  }

  ping() {
    this.pongsDue += 1;
    return this.#send([Buffer.from([PING]), EMPTY]);
  }

  // The commands of the broker. Pings are answered; a long silence throws `Lost`.
  async *commands() {
    for (let heard = performance.now(); ; ) {
      let frames;
      try {
        frames = await this.#dealer.receive();
      } catch (error) {
        if (this.#closed) throw new Lost("the connection has ended");
        if (error.code !== "EAGAIN") throw error;
        if (performance.now() - heard > 2.5 * this.#heartbeatMs) throw new Lost("the broker is silent");
        await this.ping();
        continue;
      }
      heard = performance.now();
      const [header, body] = frames;
      const kind = header[0];
      const short = kind === PING || kind === PONG ? 1 : 9;
      if (frames.length !== 2 || header.length < short) throw new Lost("an ill-formed command");
      if (kind === PING) await this.#send([Buffer.from([PONG]), EMPTY]);
      else if (kind === RESPONSE && body.toString() !== "200") throw new Lost(`the broker answered ${body}`);
      else if (kind === PONG) {
        this.pongsDue -= 1;
        yield { kind, body };
      } else yield { kind, number: header.readBigUInt64BE(1), fields: header.subarray(9), body };
    }
  }

  close() {
    this.#closed = true;
    this.#dealer.close();
  }

  #send(frames) {
    this.#sending = this.#sending.then(() => (this.#closed ? undefined : this.#dealer.send(frames)));
    return this.#sending;
  }
}

// The common part of Writer and Reader: a lease, and after each loss another one, until the work is done.
export class Leased {
  #changes = new EventEmitter().setMaxListeners(0);
  #running;
  #error;
  #options;
  // The repeated `request-id` ends the former lease, which would hold the group's cursor back [3, 5.3].
  _wanted = { confirm: "full", "request-id": randomUUID(), holder: randomUUID() };

  constructor(options, wanted) {
    this.#options = options;
    Object.assign(this._wanted, wanted);
  }

  _start(command) {
    this.#running = this.#run(command).catch((error) => {
      this.#error = error;
      this._changed();
    });
  }

  async _over() {
    await this.#running;
    if (this.#error) throw this.#error;
  }

  _changed() {
    this.#changes.emit("change");
  }

  async _until(condition) {
    while (!condition()) {
      if (this.#error) throw this.#error;
      await once(this.#changes, "change");
    }
  }

  async #run(command) {
    for (let pause = PAUSE_MS.first; ; pause = Math.min(2 * pause, PAUSE_MS.longest)) {
      let session, flow;
      try {
        session = await Session.open(this.#options);
        const lease = await session.ask(command, this._wanted);
        flow = new Flow(this.#options.endpoint, lease);
        await flow.send(LEASE, 1, shortString(lease.lease));
        pause = PAUSE_MS.first;
        await this._work(flow, lease, session.extended);
        if (session.extended) await session.ask("Lease.Close", { lease: lease.lease });
        return;
      } catch (error) {
        if (!(error instanceof Lost)) throw error;
        this.#options.onLost?.(error);
      } finally {
        flow?.close();
        session?.close();
      }
      await sleep(pause);
    }
  }
}
