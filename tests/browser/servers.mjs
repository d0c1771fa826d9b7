// Starts servers and load as processes of the built program. Does not contain the browser.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import path from "node:path";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../..");
const program = path.resolve(root, process.env.LEEWARD || "target/debug/leeward");

/** Reads a process's output until each pattern in `wanted` matches; returns what they captured. */
async function lines(child, wanted) {
  let text = "";
  const found = new Map();
  for await (const piece of child.stdout) {
    text += piece;
    for (const [name, pattern] of Object.entries(wanted)) {
      const match = text.match(pattern);
      if (match) found.set(name, match[1]);
    }
    if (found.size === Object.keys(wanted).length) break;
  }
  if (found.size < Object.keys(wanted).length) throw new Error(`expected lines are missing in the output: ${text}`);
  return Object.fromEntries(found);
}

/** Starts a server with an admin port. `admin` and `listen` may be the addresses of an ended server.
 * The patterns in `wanted` are searched in its output. */
export async function serve({ admin = "127.0.0.1:0", listen = "127.0.0.1:0", flags = [], wanted = {} } = {}) {
  const all = ["serve", "--admin", admin, "--listen", listen, "--idle", "50us", ...flags];
  return start(all, { listen: / on (\S+) with/, admin: /admin: http:\/\/([^/]+)\//, ...wanted });
}

/** Starts a proxy in front of `to`, with an admin port. */
export async function proxy(to) {
  const all = ["proxy", "--slo", "50ms", "--listen", "127.0.0.1:0", "--to", to, "--admin", "127.0.0.1:0"];
  return start(all, { listen: /Listens on ([^,]+),/, admin: /Dashboard: http:\/\/([^/]+)\// });
}

async function start(flags, wanted) {
  const child = spawn(program, flags, { stdio: ["ignore", "pipe", "inherit"] });
  const told = await lines(child, wanted);
  child.stdout.on("data", () => {});
  return {
    ...told,
    origin: `http://${told.admin}`,
    async stop(signal = "SIGTERM") {
      if (child.exitCode == null && child.signalCode == null) {
        child.kill(signal);
        await once(child, "exit");
      }
    },
  };
}

/** Sends load to a server, and returns the report. */
export async function load(address, flags) {
  const child = spawn(program, ["load", address, "--clients", "20", "--json", ...flags], { stdio: ["ignore", "pipe", "pipe"] });
  let [out, words] = ["", ""];
  child.stdout.on("data", (piece) => { out += piece; });
  child.stderr.on("data", (piece) => { words += piece; });
  await once(child, "close");
  // Exit code 3: the load generator was late on this machine, which does not matter here.
  if (![0, 3].includes(child.exitCode)) throw new Error(`load: ${child.exitCode}: ${words}`);
  return JSON.parse(out);
}

/** Sum of a counter's samples whose labels contain `label`. */
export async function metric(origin, name, label = "") {
  const text = await (await fetch(`${origin}/metrics`)).text();
  const samples = text.split("\n").filter((line) => line.startsWith(`${name}{`) && line.includes(label));
  if (!samples.length) throw new Error(`no ${name} with ${label}`);
  return samples.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(" "))), 0);
}
