// A client of the `log` profile in Node.js, written from PROTOCOL.md alone: a starting point.
//
//   node client.js ENDPOINT publish RESOURCE NAME COUNT    contents 0 .. COUNT-1, each confirmed, as the writer NAME
//   node client.js ENDPOINT read RESOURCE GROUP COUNT      COUNT contents, a line for each, as the holder of GROUP
//
// Both survive a restart of the broker: silence ends the connection, and a new lease goes on where the former one ended.
"use strict";
const { randomUUID } = require("crypto");
const { Dealer, Request } = require("zeromq");

const [LEASE, RESPONSE, SUMMON, CONTENT, CONFIRM, REJECT, PING, PONG] = [1, 2, 3, 5, 6, 7, 8, 9];
const PING_MS = 1000; // a Ping after so much silence, and five times as much is a broker that is gone
const WINDOW = 1000; // contents that are sent and not confirmed
const NO_PROPERTIES = Buffer.alloc(4); // an empty field table

class Lost extends Error {}
class Refused extends Error {}

// --- data commands (RFC 11; PROTOCOL.md 1) --------------------------------------------------------------------

function header(kind, number, ...rest) {
  const head = Buffer.alloc(9);
  head[0] = kind;
  head.writeBigUInt64BE(BigInt(number), 1);
  return Buffer.concat([head, ...rest]);
}

function short(text) {
  const raw = Buffer.from(text);
  return Buffer.concat([Buffer.from([raw.length]), raw]);
}

// --- control flow (PROTOCOL.md 2) -------------------------------------------------------------------------------

class Session {
  constructor(endpoint) {
    this.endpoint = endpoint;
    this.request = new Request({ linger: 0, receiveTimeout: 5000, sendTimeout: 5000 });
    this.request.connect(endpoint);
  }

  async ask(command, body) {
    if (this.token) body = { ...body, session: this.token };
    await this.request.send([command, JSON.stringify(body)]);
    const [code, text] = await this.request.receive();
    const reply = JSON.parse(text.toString());
    if (Number(code.toString()) < 300) return reply;
    if (["not-open", "overloaded", "storage"].includes(reply.reason)) throw new Lost(reply.reason);
    throw new Refused(`${command}: ${code} ${reply.reason}: ${reply.message}`);
  }

  async open() {
    this.token = (await this.ask("Connection.Open", { protocol: { name: "MTL", version: 1 } })).session;
    await this.ask("Connection.Profile", { profile: "log" });
  }
}

// --- data flow (PROTOCOL.md 3) ----------------------------------------------------------------------------------

class Flow {
  constructor(endpoint, lease) {
    // No bound for what waits to be sent: WINDOW bounds it, and a send must not wait for a broker that is gone.
    this.dealer = new Dealer({ linger: 1000, receiveTimeout: PING_MS, sendHighWaterMark: 0 });
    this.dealer.connect(`${endpoint.slice(0, endpoint.lastIndexOf(":"))}:${lease.port}`);
    this.heard = Date.now();
    this.pings = 0; // without a Pong yet
    this.pong = ""; // the body of the last one
  }

  ping() {
    this.pings += 1;
    return this.send(Buffer.from([PING]));
  }

  send(head, body = Buffer.alloc(0)) {
    return this.dealer.send([head, body]);
  }

  // The next command that is no heartbeat; null after a while without one.
  async next() {
    try {
      const [head, body] = await this.dealer.receive();
      this.heard = Date.now();
      if (head[0] === PING) await this.send(Buffer.from([PONG]));
      else if (head[0] === PONG) [this.pings, this.pong] = [this.pings - 1, body.toString()];
      else return { kind: head[0], number: Number(head.readBigUInt64BE(1)), rest: head.subarray(9), body };
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
      if (Date.now() - this.heard > 5 * PING_MS) throw new Lost("nothing heard");
      await this.ping();
    }
    return null;
  }

  // Send a Lease or a Summon, and wait for its Response.
  async ask(kind, name) {
    await this.send(header(kind, kind, short(name)));
    for (;;) {
      const command = await this.next();
      if (command === null || command.kind !== RESPONSE) continue;
      if (!command.body.toString().startsWith("20")) throw new Lost(`a Response ${command.body}`);
      return;
    }
  }
}

// Run `once` with a session until it returns; again after a loss. `what` is what the lease is asked for with. Its
// `request-id` ends the lease before, which would hold the cursor of the group back (PROTOCOL.md 3, 5.3).
async function lasting(endpoint, kind, what, once) {
  const holder = randomUUID();
  for (;;) {
    const session = new Session(endpoint);
    let flow;
    try {
      await session.open();
      const lease = await session.ask(`Connection.${kind}`, { ...what(), holder, "request-id": holder });
      flow = new Flow(endpoint, lease);
      await flow.ask(LEASE, lease.lease);
      await once(flow, lease);
      await session.ask("Lease.Close", { lease: lease.lease });
      return;
    } catch (error) {
      if (!(error instanceof Lost) && error.code !== "EAGAIN") throw error;
      console.error(`again: ${error.message}`);
    } finally {
      session.request.close();
      if (flow) flow.dealer.close();
    }
    await new Promise((again) => setTimeout(again, 200));
  }
}

// --- what it is for ---------------------------------------------------------------------------------------------

async function publish(endpoint, resource, name, count) {
  let epoch;
  let confirmed = 0; // the numbers of a named writer count its contents, over all its leases (PROTOCOL.md 5.4)
  const what = () => ({ resources: [resource], confirm: "full", writer: name, epoch });
  await lasting(endpoint, "Writer", what, async (flow, lease) => {
    epoch = lease.epoch;
    confirmed = Math.max(confirmed, lease.last[resource] || 0);
    let next = confirmed + 1;
    while (confirmed < count) {
      while (next <= count && next - confirmed <= WINDOW) {
        await flow.send(header(CONTENT, next, short(resource), NO_PROPERTIES), Buffer.from(String(next - 1)));
        next += 1;
      }
      const command = await flow.next();
      if (command === null) continue;
      if (command.kind === CONFIRM) confirmed = Math.max(confirmed, command.number);
      else if (command.kind === REJECT && command.rest[1]) next = confirmed + 1; // recycle: everything again
      else if (command.kind === REJECT) throw new Refused(`content ${command.number} was rejected`);
    }
  });
}

async function read(endpoint, resource, group, count) {
  let position = "group"; // the group's cursor; then the sequence after the last content
  let left = count;
  const window = { contents: WINDOW, bytes: 8 << 20 };
  const what = () => ({ resources: [resource], confirm: "full", from: position, group, window });
  await lasting(endpoint, "Reader", what, async (flow, lease) => {
    position = lease.from;
    await flow.ask(SUMMON, resource);
    while (left > 0) {
      const command = await flow.next();
      if (command === null || command.kind !== CONTENT || command.number < position) continue;
      console.log(command.body.toString());
      position = command.number + 1;
      left -= 1;
      if (command.number % (WINDOW / 4) === 0) await flow.send(header(CONFIRM, command.number, Buffer.from([1])));
    }
    // All of it, also what an earlier flow has lost. The Pong says where the group is then (PROTOCOL.md 5.3).
    await flow.send(header(CONFIRM, position - 1, Buffer.from([1])));
    await flow.ping();
    while (flow.pings > 0) await flow.next();
    if (flow.pong !== String(position)) throw new Lost(`the group is at ${flow.pong}`);
  });
}

const [endpoint, what, resource, name, count] = process.argv.slice(2);
({ publish, read })[what](endpoint, resource, name, Number(count)).catch((error) => {
  console.error(error.message);
  process.exit(1);
});
