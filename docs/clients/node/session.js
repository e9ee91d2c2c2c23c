// The control flow: a session, its requests, and the log-in. Sections of PROTOCOL.md are in brackets.

import { Request } from "zeromq";
import { Scram } from "./scram.js";

const REQUEST_MS = 5000; // a reply that takes longer is lost
const ATTEMPTS = 3; // log-ins for one request

export class Refused extends Error {} // final: another attempt would have the same answer
export class Lost extends Error {} // the connection is lost; a new one may succeed

// The control flow [2]: requests, and the log-in that any of them may need [2.1].
export class Session {
  #request;
  #options;
  #token;

  static async open(options) {
    const session = new Session(options);
    try {
      await session.#open();
      return session;
    } catch (error) {
      session.close();
      throw error;
    }
  }

  constructor(options) {
    this.#options = options;
    this.#request = new Request({ linger: 0, receiveTimeout: REQUEST_MS, sendTimeout: REQUEST_MS });
    this.#request.connect(options.endpoint);
  }

  // Whether the server implements PROTOCOL.md, and not RFC 11 alone [2].
  get extended() {
    return this.#token !== undefined;
  }

  // A request and the body of its reply. A 401 is answered by a log-in, and the request is repeated.
  async ask(command, body) {
    for (let attempt = 1; ; attempt += 1) {
      const { code, reply } = await this.#exchange(command, body);
      if (code < 300) return reply;
      if (code === 401 && attempt <= ATTEMPTS) await this.#logIn(reply.mechanisms);
      else throw problem(command, code, reply);
    }
  }

  close() {
    this.#request.close();
  }

  async #open() {
    const body = { protocol: { name: "MTL", version: 1 } };
    const { code, reply } = await this.#exchange("Connection.Open", body);
    if (code === 401) await this.#logIn(reply.mechanisms);
    else if (code === 201) this.#token = reply.session;
    else throw problem("Connection.Open", code, reply);
    await this.ask("Connection.Profile", { profile: "log" });
  }

  async #logIn(mechanisms) {
    const { user, password } = this.#options;
    const offered = mechanisms.map((name) => name.toUpperCase());
    if (user === undefined && offered.includes("ANONYMOUS")) {
      await this.#authorize("ANONYMOUS", "", 201);
      return;
    }
    if (user === undefined || !offered.includes("SCRAM-SHA-256")) {
      const has = user === undefined ? "has no user" : "has a user and knows SCRAM-SHA-256";
      throw new Refused(`the broker offers the log-ins ${offered.join(", ")}; this client ${has}`);
    }
    const scram = new Scram(user, password);
    const serverFirst = await this.#authorize("SCRAM-SHA-256", scram.first(), 402);
    scram.check(await this.#authorize("SCRAM-SHA-256", await scram.final(serverFirst), 402));
    await this.#authorize("SCRAM-SHA-256", "", 201);
  }

  // One step of a log-in, and the challenge of its answer.
  async #authorize(mechanism, text, expected) {
    const body = { mechanism, response: Buffer.from(text).toString("base64") };
    const { code, reply } = await this.#exchange("Connection.Authorize", body);
    if (code === 401) throw new Refused(`the log-in as ${this.#options.user ?? "anonymous"} was refused`);
    if (code !== expected) throw problem("Connection.Authorize", code, reply);
    if (code === 201) this.#token = reply.session; // it makes the former token unknown
    return Buffer.from(reply.challenge ?? "", "base64").toString();
  }

  async #exchange(command, body) {
    try {
      await this.#request.send([command, JSON.stringify({ ...body, session: this.#token })]);
      const [code, text] = await this.#request.receive();
      return { code: Number(code.toString()), reply: JSON.parse(text.toString()) };
    } catch (error) {
      throw error.code === "EAGAIN" ? new Lost(`no reply to ${command}`) : error;
    }
  }
}

function problem(command, code, reply) {
  const text = `${command}: ${code} ${reply.reason ?? reply.status}: ${reply.message ?? ""}`;
  // unknown-lease: the broker has ended the lease, for example after a new password.
  const passing = code === 503 || ["not-open", "unknown-lease"].includes(reply.reason);
  return passing ? new Lost(text) : new Refused(text);
}
