// The client's half of SCRAM-SHA-256 (RFC 5802, RFC 7677), without channel binding.

import { createHash, createHmac, pbkdf2, randomBytes } from "node:crypto";
import { promisify } from "node:util";

const MAX_ITERATIONS = 10_000_000; // some seconds of work; more would only be an attack by the server

const hmac = (key, text) => createHmac("sha256", key).update(text).digest();

export class Scram {
  #password;
  #bare;
  #nonce = randomBytes(18).toString("base64");
  #expected;

  constructor(user, password) {
    this.#password = password.normalize("NFKC");
    this.#bare = `n=${user.normalize("NFKC").replaceAll("=", "=3D").replaceAll(",", "=2C")},r=${this.#nonce}`;
  }

  // client-first-message
  first() {
    return `n,,${this.#bare}`;
  }

  // client-final-message, the answer to server-first-message
  async final(serverFirst) {
    const { r: nonce, s: salt, i } = Object.fromEntries(serverFirst.split(",").map((x) => [x[0], x.slice(2)]));
    const iterations = Number(i);
    if (!nonce?.startsWith(this.#nonce) || !salt || !(iterations > 0 && iterations <= MAX_ITERATIONS)) {
      throw new Error(`the broker's first SCRAM message is invalid: ${serverFirst}`);
    }
    const salted = await promisify(pbkdf2)(this.#password, Buffer.from(salt, "base64"), iterations, 32, "sha256");
    const withoutProof = `c=biws,r=${nonce}`;
    const message = `${this.#bare},${serverFirst},${withoutProof}`;
    const clientKey = hmac(salted, "Client Key");
    const signature = hmac(createHash("sha256").update(clientKey).digest(), message);
    const proof = Buffer.from(clientKey.map((octet, at) => octet ^ signature[at]));
    this.#expected = `v=${hmac(hmac(salted, "Server Key"), message).toString("base64")}`;
    return `${withoutProof},p=${proof.toString("base64")}`;
  }

  // Check server-final-message. A client must not continue before.
  check(serverFinal) {
    if (this.#expected === undefined || serverFinal !== this.#expected) {
      throw new Error("the broker has not proved that it knows the password");
    }
  }
}
