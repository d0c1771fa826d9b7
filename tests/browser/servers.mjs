// Servers and load as processes of the built program. Never here: the browser.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import path from "node:path";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../..");
const program = path.resolve(root, process.env.LEEWARD || "target/debug/leeward");

/** Lines of a process, until each of `wanted` has been found in one; what its pattern caught. */
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
  if (found.size < Object.keys(wanted).length) throw new Error(`the server said only: ${text}`);
  return Object.fromEntries(found);
}

/** Starts a server with an admin port; `admin` and `listen` may be taken over from one that has ended. What it says is looked
 * through for `wanted`, too. */
export async function serve({ admin = "127.0.0.1:0", listen = "127.0.0.1:0", flags = [], wanted = {} } = {}) {
  const child = spawn(program, ["serve", "--admin", admin, "--listen", listen, "--idle", "50us", ...flags], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const told = await lines(child, { listen: / on (\S+) with/, admin: /admin: http:\/\/([^/]+)\//, ...wanted });
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

/** Loads a server, and waits for the end: the report. */
export async function load(address, flags) {
  const child = spawn(program, ["load", address, "--clients", "20", "--json", ...flags], { stdio: ["ignore", "pipe", "pipe"] });
  let [out, words] = ["", ""];
  child.stdout.on("data", (piece) => { out += piece; });
  child.stderr.on("data", (piece) => { words += piece; });
  await once(child, "close");
  // 3: this machine was too busy to be on time, which is no matter here.
  if (![0, 3].includes(child.exitCode)) throw new Error(`load: ${child.exitCode}: ${words}`);
  return JSON.parse(out);
}

/** Sum of a counter's samples that have this in their labels. */
export async function metric(origin, name, label = "") {
  const text = await (await fetch(`${origin}/metrics`)).text();
  const samples = text.split("\n").filter((line) => line.startsWith(`${name}{`) && line.includes(label));
  if (!samples.length) throw new Error(`no ${name} with ${label}`);
  return samples.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(" "))), 0);
}
