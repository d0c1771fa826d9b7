// Browsers let any web page post a form to the memcached port. The port must execute nothing of it.

import assert from "node:assert/strict";
import { createConnection } from "node:net";
import { once } from "node:events";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";
import { serve } from "./servers.mjs";

let browser;
before(async () => {
  const args = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"];
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM || "/usr/bin/chromium", args });
});
after(() => browser?.close());

/** Sends commands and `quit` to the port; returns its whole answer. */
async function asked(address, commands) {
  const at = address.lastIndexOf(":");
  const socket = createConnection({ host: address.slice(0, at), port: Number(address.slice(at + 1)) });
  let text = "";
  socket.on("data", (piece) => { text += piece; });
  socket.write(`${commands}quit\r\n`);
  await once(socket, "close");
  return text;
}

test("a form that a browser posts to the memcached port stores nothing", async (t) => {
  const flags = ["--service", "kv", "--memcached", "127.0.0.1:0", "--slo", "1s"];
  const server = await serve({ flags, wanted: { memcached: /memcached's clients: (\S+)/ } });
  t.after(() => server.stop());
  assert.equal(await asked(server.memcached, "set kept 0 0 1\r\nx\r\n"), "STORED\r\n");
  const context = await browser.newContext();
  for (const form of ["multipart/form-data", "text/plain", "application/x-www-form-urlencoded"]) {
    // A new page for each form: a failed request replaces the page by an error page.
    const page = await context.newPage();
    await page.setContent(`<form method="post" enctype="${form}" action="http://${server.memcached}/">
      <textarea name="a">&#13;&#10;flush_all&#13;&#10;set smuggled 0 0 1&#13;&#10;x&#13;&#10;</textarea></form>`);
    const failed = page.waitForEvent("requestfailed", { timeout: 20_000 });
    await page.evaluate(() => document.forms[0].submit());
    await failed;
    assert.equal(await asked(server.memcached, "get kept smuggled\r\n"), "VALUE kept 0 1\r\nx\r\nEND\r\n", form);
  }
});
