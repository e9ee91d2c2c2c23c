// A client of the `log` profile in Node.js, written from PROTOCOL.md alone (its sections are in brackets).
//
//   node client.js ENDPOINT publish RESOURCE WRITER COUNT    publish the contents 0 .. COUNT-1, all confirmed
//   node client.js ENDPOINT read RESOURCE GROUP COUNT        print COUNT contents, a line each
//
// Both survive a restart of the broker: after a loss they get a new lease and continue.
"use strict";
const { randomUUID } = require("crypto");
const { setTimeout: sleep } = require("timers/promises");
const { Dealer, Request } = require("zeromq");

const [, LEASE, RESPONSE, SUMMON, , CONTENT, CONFIRM, REJECT, PING, PONG] = Array(10).keys();
const PING_MS = 1000; // a Ping is sent after this silence; after five times this silence the broker is lost
const WINDOW = 1000; // contents that are sent and not confirmed
const NO_PROPERTIES = Buffer.alloc(4); // an empty field table [1]

class Lost extends Error {} // the connection is lost, a new one may succeed

// A request of the control flow and its reply [2].
async function ask(request, command, body) {
  await request.send([command, JSON.stringify(body)]);
  const [code, text] = await request.receive();
  const reply = JSON.parse(text.toString());
  if (Number(code.toString()) < 300) return reply;
  const problem = `${command}: ${code} ${reply.reason}: ${reply.message}`;
  throw ["not-open", "overloaded", "storage"].includes(reply.reason) ? new Lost(problem) : new Error(problem);
}

const byte = (value) => Buffer.from([value]);

function header(kind, number, ...rest) {
  const head = Buffer.alloc(9);
  head[0] = kind;
  head.writeBigUInt64BE(BigInt(number), 1);
  return Buffer.concat([head, ...rest]);
}

function short(text) {
  return Buffer.concat([byte(Buffer.byteLength(text)), Buffer.from(text)]);
}

// The data flow of one lease [3].
class Flow {
  constructor(dealer) {
    this.dealer = dealer;
    this.heard = Date.now();
  }

  send(head, body = "") {
    return this.dealer.send([head, body]);
  }

  // The next command of one of these kinds. Pings are answered; a long silence throws `Lost`.
  async next(...kinds) {
    for (;;) {
      try {
        const [head, body] = await this.dealer.receive();
        this.heard = Date.now();
        if (head[0] === PING) await this.send(byte(PONG));
        if (!kinds.includes(head[0])) continue;
        const number = head.length < 9 ? 0 : Number(head.readBigUInt64BE(1));
        return { kind: head[0], number, rest: head.subarray(9), body };
      } catch (error) {
        if (error.code !== "EAGAIN") throw error;
        if (Date.now() - this.heard > 5 * PING_MS) throw new Lost("the broker is silent");
        await this.send(byte(PING));
      }
    }
  }

  // Send a Lease or a Summon, and wait for its Response.
  async ask(kind, name) {
    await this.send(header(kind, kind, short(name)));
    const response = await this.next(RESPONSE);
    if (response.body.toString() !== "200") throw new Lost(`a Response ${response.body}`);
  }
}

// Do `work` with a lease, and again with a new lease after a loss. `work` updates `wanted`, the next request.
// The repeated `request-id` ends the former lease, which would hold the group's cursor back [3, 5.3].
async function withLease(endpoint, kind, wanted, work) {
  const holder = randomUUID();
  for (;;) {
    const request = new Request({ linger: 0, receiveTimeout: 5000, sendTimeout: 5000 });
    const dealer = new Dealer({ linger: 1000, receiveTimeout: PING_MS, sendHighWaterMark: 0 });
    try {
      request.connect(endpoint);
      const { session } = await ask(request, "Connection.Open", { protocol: { name: "MTL", version: 1 } });
      await ask(request, "Connection.Profile", { session, profile: "log" });
      const body = { ...wanted, session, holder, "request-id": holder, confirm: "full" };
      const lease = await ask(request, `Connection.${kind}`, body);
      dealer.connect(`${endpoint.slice(0, endpoint.lastIndexOf(":"))}:${lease.port}`);
      const flow = new Flow(dealer);
      await flow.ask(LEASE, lease.lease);
      await work(flow, lease);
      await ask(request, "Lease.Close", { session, lease: lease.lease });
      return;
    } catch (error) {
      if (!(error instanceof Lost) && error.code !== "EAGAIN") throw error;
      console.error(`again: ${error.message}`);
    } finally {
      request.close();
      dealer.close();
    }
    await sleep(200);
  }
}

async function publish(endpoint, resource, writer, count) {
  const wanted = { resources: [resource], writer };
  await withLease(endpoint, "Writer", wanted, async (flow, lease) => {
    wanted.epoch = lease.epoch;
    let confirmed = lease.last[resource] || 0; // a named writer counts its contents over all its leases [5.4]
    let next = confirmed + 1;
    while (confirmed < count) {
      for (; next <= count && next - confirmed <= WINDOW; next += 1) {
        await flow.send(header(CONTENT, next, short(resource), NO_PROPERTIES), String(next - 1));
      }
      const { kind, number, rest } = await flow.next(CONFIRM, REJECT);
      if (kind === CONFIRM) confirmed = Math.max(confirmed, number);
      if (kind === REJECT && !rest[1]) throw new Error(`content ${number} was rejected`);
      if (kind === REJECT) next = confirmed + 1; // "recycle": send again all that is not confirmed
    }
  });
}

async function read(endpoint, resource, group, count) {
  const window = { contents: WINDOW, bytes: 8 << 20 };
  const wanted = { resources: [resource], group, from: "group", window };
  await withLease(endpoint, "Reader", wanted, async (flow, lease) => {
    wanted.from = lease.from; // the group's cursor as a number
    await flow.ask(SUMMON, resource);
    for (; count > 0; count -= 1) {
      const { number, body } = await flow.next(CONTENT);
      console.log(body.toString());
      wanted.from = number + 1;
      if (number % (WINDOW / 4) === 0) await flow.send(header(CONFIRM, number, byte(1)));
    }
    await flow.send(header(CONFIRM, wanted.from - 1, byte(1)));
    await flow.send(byte(PING)); // its Pong has the group's position after this Confirm [5.3]
    const { body } = await flow.next(PONG);
    if (body.toString() !== String(wanted.from)) throw new Lost(`the group is at ${body}`);
  });
}

const [endpoint, command, resource, name, count] = process.argv.slice(2);
({ publish, read })[command](endpoint, resource, name, Number(count)).catch((error) => {
  console.error(error.message);
  process.exit(1);
});
