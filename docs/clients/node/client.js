// See USAGE.

import { createInterface } from "node:readline";
import { Reader, Writer } from "./mtl.js";

const USAGE = `usage:
  node client.js ENDPOINT publish RESOURCE WRITER      publish each line of the standard input as a content
  node client.js ENDPOINT read RESOURCE GROUP [COUNT]  print contents, a line each; COUNT contents, or for ever

A publisher that is started again with the same WRITER and the same input continues after the last stored line.
A reader that is started again with the same GROUP continues after the last printed content.
The environment variables MTL_USER and MTL_PASSWORD log in.`;

async function publish(options, resource, name) {
  const writer = await Writer.open(options, resource, name);
  let line = 0;
  for await (const body of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
    line += 1;
    if (line > writer.last) await writer.send(body);
  }
  await writer.close();
}

async function read(options, resource, group, count = Infinity) {
  const reader = await Reader.open(options, resource, group);
  let left = Number(count);
  for await (const content of reader) {
    process.stdout.write(Buffer.concat([content.body, Buffer.from("\n")]));
    reader.confirm(content);
    left -= 1;
    if (!(left > 0)) break;
  }
  await reader.close();
}

const [endpoint, command, ...names] = process.argv.slice(2);
const work = { publish, read }[command];
if (!work || names.length < 2 || names.length > (command === "read" ? 3 : 2)) {
  console.error(USAGE);
  process.exit(2);
}
const options = {
  endpoint,
  user: process.env.MTL_USER,
  password: process.env.MTL_PASSWORD ?? "",
  onLost: (error) => console.error(`again: ${error.message}`),
};
work(options, ...names).catch((error) => {
  console.error(error.message);
  process.exit(1);
});
