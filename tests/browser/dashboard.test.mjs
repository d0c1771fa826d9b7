// Tests of the dashboard in a real browser: it shows the server's counters, reconnects after a
// restart, requests no other origin, and fits every screen size. Screenshots go to target/browser.

import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdirSync } from "node:fs";
import http from "node:http";
import path from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { load, metric, proxy, serve } from "./servers.mjs";

const pictures = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../../target/browser");
mkdirSync(pictures, { recursive: true });
const OVERLOAD = ["--demand", "3x", "--duration", "4s", "--slo", "1ms", "--service", "exp:100us"];

let browser;
before(async () => {
  const args = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"];
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM || "/usr/bin/chromium", args });
});
after(() => browser?.close());

/** Opens a page; collects its errors, and its requests to origins other than `origins`. */
async function open(url, origins, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  const wrong = [];
  page.on("pageerror", (error) => wrong.push(`error: ${error.stack}`));
  page.on("console", (message) => {
    // The browser itself logs that a server does not answer.
    const is_network = message.text().startsWith("Failed to load resource: net::ERR_");
    if (["error", "warning"].includes(message.type()) && !is_network) wrong.push(message.text());
  });
  page.on("request", (request) => {
    const asked = new URL(request.url());
    if (asked.protocol !== "data:" && !origins.includes(asked.origin)) wrong.push(`outside: ${request.url()}`);
  });
  await page.goto(url);
  return { page, wrong, close: () => context.close() };
}

const is = (page, state) => page.waitForSelector(`#state[data-state="${state}"]`, { timeout: 20_000 });
const note = async (page, tile) => {
  const text = await page.locator(`[data-tile="${tile}"] small`).first().textContent();
  return Number(text.replaceAll(",", "").split(" ")[0]);
};

/** Waits until the total of a tile is `wanted`; states arrive once a second. */
async function until(page, tile, wanted) {
  for (let look = 0; look < 100; look += 1) {
    if (await note(page, tile) === wanted) return;
    await page.waitForTimeout(100);
  }
  assert.equal(await note(page, tile), wanted, tile);
}

test("it shows the server's counters, and why requests were rejected", async () => {
  const server = await serve({ flags: ["--slo", "1ms", "--service", "synthetic"] });
  const { page, wrong, close } = await open(server.origin, [server.origin]);
  await is(page, "live");
  await page.screenshot({ path: `${pictures}/quiet.png`, fullPage: true });
  const report = await load(server.listen, [...OVERLOAD, "--admission", "none"]);
  assert.ok(report, "a report");
  const arrived = await metric(server.origin, "leeward_requests_arrived_total");
  assert.ok(arrived > 1_000, `${arrived} requests`);
  await until(page, "demand", arrived);
  await until(page, "goodput", await metric(server.origin, "leeward_requests_in_time_total"));
  const refused = await metric(server.origin, "leeward_admission_decisions_total", 'decision="refused"');
  assert.ok(refused > 0, "clients without credits are rejected");
  await until(page, "refused", refused);
  const words = page.locator(".words li").first();
  assert.match(await words.textContent(), /^[\d,]+ × Rejected: .+\.(at|between) .+leeward why [0-9a-f]+ 127\.0\.0\.1:\d+$/);
  const drawn = await page.locator('.card svg path[data-series="demand"]').getAttribute("d");
  assert.ok(drawn.split("L").length > 3, `a line of the demand: ${drawn}`);
  await page.screenshot({ path: `${pictures}/overload.png`, fullPage: true });
  assert.deepEqual(wrong, []);
  await close();
  await server.stop();
});

test("percentiles of latency are compared with the objective", async () => {
  const server = await serve({ flags: ["--slo", "1ms", "--service", "wait", "--wait-time", "const:3ms", "--admission", "none"] });
  const { page, wrong, close } = await open(server.origin, [server.origin]);
  await is(page, "live");
  const tile = (id) => page.locator(`[data-tile="${id}"]`).first();
  await page.waitForSelector('[data-tile="p999"]');
  assert.match(await tile("p99").textContent(), /–.*no result in 10 s/, "nothing was answered");
  const loading = load(server.listen, ["--service", "wait", "--demand", "300", "--duration", "6s", "--admission", "none"]);
  await page.waitForFunction(() => / ms$/.test(document.querySelector('[data-tile="p99"] b').textContent));
  for (const id of ["p50", "p99", "p999"]) {
    const text = await tile(id).locator("b").textContent();
    const [value, unit] = text.split(" ");
    assert.ok(unit === "s" || Number(value) >= 2.9, `each request waits for 3 ms: ${id} ${text}`);
    assert.match(await tile(id).getAttribute("class"), /bad/, `${id} is over the objective`);
  }
  assert.match(await tile("p50").textContent(), /objective 1 ms/);
  assert.match(await tile("p999").textContent(), /the longest of \d+|objective 1 ms/);
  await page.waitForFunction(() => (document.querySelector('path[data-series="p99.9"]').getAttribute("d").match(/[ML]/g) || []).length > 3);
  // The y axis of SVG points down: a latency above the objective has the smaller y.
  const heights = await page.evaluate(() => ["p50", "objective"].map((name) => {
    const path = document.querySelector(`path[data-series="${name}"]`);
    return path.getPointAtLength(path.getTotalLength()).y;
  }));
  assert.ok(heights[0] < heights[1], `p50 ${heights[0]}, objective ${heights[1]}`);
  await page.screenshot({ path: `${pictures}/latency.png`, fullPage: true });
  await loading;
  // The histogram in the metrics counts all results.
  const results = await metric(server.origin, "leeward_requests_late_total") + await metric(server.origin, "leeward_requests_in_time_total");
  assert.equal(await metric(server.origin, "leeward_request_latency_seconds_count"), results);
  assert.deepEqual(wrong, []);
  await close();
  await server.stop();
});

test("the time range grows with the data", async () => {
  const server = await serve();
  const { page, wrong, close } = await open(server.origin, [server.origin]);
  await is(page, "live");
  // Share of the chart's width that the line of the objective covers.
  const width = () => page.evaluate(() => {
    const path = document.querySelector('path[data-series="objective"]');
    return path ? path.getBBox().width / path.ownerSVGElement.viewBox.baseVal.width : 0;
  });
  for (let look = 0; look < 200 && await width() < 0.5; look += 1) await page.waitForTimeout(100);
  assert.ok(await width() >= 0.5, `${await width()} of the width after some seconds`);
  await page.screenshot({ path: `${pictures}/begun.png`, fullPage: true });
  await page.waitForTimeout(6_000);
  assert.ok(await width() > 0.75, `${await width()} of the width later`);
  await page.keyboard.press("Space");
  await is(page, "paused");
  const before = await page.locator(".card svg").first().textContent();
  await page.keyboard.press("ArrowLeft");
  assert.equal(await page.locator(".card svg").first().textContent(), before, "there are no data before the first point");
  assert.deepEqual(wrong, []);
  await close();
  await server.stop();
});

test("rejections of the same kind are one line", async () => {
  const server = await serve({ flags: ["--slo", "1ms", "--service", "synthetic"] });
  const { page, wrong, close } = await open(server.origin, [server.origin]);
  await is(page, "live");
  await load(server.listen, [...OVERLOAD, "--admission", "none"]);
  const refused = await metric(server.origin, "leeward_admission_decisions_total", 'decision="refused"');
  assert.ok(refused > 8, `${refused} refusals`);
  await until(page, "refused", refused);
  const lines = await page.locator(".words li").allTextContents();
  const counts = lines.map((line) => Number(line.split(" ×")[0].replaceAll(",", "")));
  assert.ok(counts.reduce((sum, count) => sum + count, 0) > 8 && counts.some((count) => count > 1), lines.join("\n"));
  const kinds = lines.map((line) => line.split(" × ")[1].split(". ")[0].replace(/\d[^ ]* (s|ms|µs|ns)\b/g, "SPAN").replace(/\.(between|at) .*/, ""));
  assert.equal(new Set(kinds).size, kinds.length, `each kind once: ${kinds.join("\n")}`);
  const several = lines.find((line) => /^\d[\d,]* ×/.test(line) && !line.startsWith("1 ×"));
  assert.match(several, /(between \d\d:\d\d:\d\d and|at) \d\d:\d\d:\d\d; newest: leeward why/);
  assert.deepEqual(wrong, []);
  await close();
  await server.stop();
});

test("a page that is opened later shows the past", async () => {
  const server = await serve();
  await load(server.listen, ["--demand", "2k", "--duration", "3s"]);
  const { page, wrong, close } = await open(server.origin, [server.origin]);
  await is(page, "live");
  await page.waitForFunction(() => (document.querySelector('path[data-series="demand"]')?.getAttribute("d") || "").split("L").length > 3);
  assert.deepEqual(wrong, []);
  await close();
  await server.stop();
});

test("it reconnects when the server restarts", async () => {
  const server = await serve();
  const { page, wrong, close } = await open(server.origin, [server.origin]);
  await is(page, "live");
  await page.waitForSelector(".tile");
  await server.stop("SIGKILL");
  await is(page, "lost");
  assert.match(await page.locator("#state").textContent(), /no answer from 127\.0\.0\.1/);
  assert.match(await page.locator(".server.gone > header").textContent(), /no numbers since \d\d:\d\d:\d\d$/);
  assert.equal(await page.evaluate(() => getComputedStyle(document.querySelector(".tile b")).fontWeight), "400");
  await page.screenshot({ path: `${pictures}/lost.png`, fullPage: true });
  const again = await serve({ admin: server.admin });
  await is(page, "live");
  await load(again.listen, ["--demand", "1k", "--duration", "2s"]);
  await until(page, "demand", await metric(again.origin, "leeward_requests_arrived_total"));
  assert.equal(await page.locator(".server.gone").count(), 0);
  assert.deepEqual(wrong, []);
  await close();
  await again.stop();
});

test("a backend that is down has a tile while it is", async (t) => {
  const backend = http.createServer((request, response) => response.end("hi"));
  const listening = async (port) => { backend.listen(port, "127.0.0.1"); await once(backend, "listening"); };
  await listening(0);
  const { port } = backend.address();
  const front = await proxy(`127.0.0.1:${port}`);
  // Stop both even if the test fails.
  t.after(async () => { backend.close(); backend.closeAllConnections(); await front.stop("SIGKILL"); });
  const { page, wrong, close } = await open(front.origin, [front.origin]);
  await page.waitForSelector(".tile");
  const tile = page.locator(`[data-tile="backend 127.0.0.1:${port}"]`);
  assert.equal(await tile.count(), 0);
  backend.close();
  backend.closeAllConnections();
  // The proxy learns it from a request.
  await fetch(`http://${front.listen}/`).then((answer) => answer.text());
  await tile.waitFor();
  assert.match(await tile.textContent(), new RegExp(`^Backend.*set aside.*127\\.0\\.0\\.1:${port}$`));
  await page.screenshot({ path: `${pictures}/backend-down.png`, fullPage: true });
  await listening(port);
  await tile.waitFor({ state: "hidden" });
  assert.deepEqual(wrong, []);
  await close();
});

test("keys pause, choose the time range, the style and the help", async () => {
  const server = await serve();
  const { page, wrong, close } = await open(server.origin, [server.origin]);
  await is(page, "live");
  await page.waitForSelector(".tile");
  await page.keyboard.press("Space");
  await is(page, "paused");
  await page.screenshot({ path: `${pictures}/paused.png`, fullPage: true });
  await load(server.listen, ["--demand", "1k", "--duration", "2s"]);
  assert.equal(await note(page, "demand"), 0, "a paused view does not change");
  await page.keyboard.press("ArrowLeft");
  await page.keyboard.press("Space");
  await is(page, "live");
  await until(page, "demand", await metric(server.origin, "leeward_requests_arrived_total"));
  for (const [key, name] of [["1", "1 min"], ["4", "1 h"], ["2", "5 min"]]) {
    await page.keyboard.press(key);
    assert.equal(await page.locator('#ranges [aria-pressed="true"]').textContent(), name);
  }
  const page_color = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await page.keyboard.press("t");
  const dark = await page_color();
  await page.keyboard.press("t");
  assert.notEqual(await page_color(), dark);
  await page.keyboard.press("?");
  assert.ok(await page.locator("dialog").isVisible());
  await page.screenshot({ path: `${pictures}/keys.png` });
  await page.keyboard.press("Escape");
  assert.ok(!(await page.locator("dialog").isVisible()));
  // Each button can be reached by the keyboard.
  for (const id of ["pause", "style", "help"]) {
    await page.locator(`#${id}`).focus();
    assert.equal(await page.evaluate(() => document.activeElement.id), id);
  }
  await page.locator("#pause").focus();
  await page.keyboard.press("Space");
  await is(page, "paused");
  assert.deepEqual(wrong, []);
  await close();
  await server.stop();
});

test("one page shows several servers", async () => {
  const kv = await serve({ flags: ["--service", "kv", "--memcached", "127.0.0.1:0"] });
  const other = await serve();
  const { page, wrong, close } = await open(`${kv.origin}/?server=${other.admin}`, [kv.origin, other.origin]);
  await page.waitForFunction(() => document.querySelectorAll("section.server .tile").length > 0 && document.querySelectorAll("section.server").length === 3);
  await page.screenshot({ path: `${pictures}/several.png`, fullPage: true });
  await page.keyboard.press("s");
  await page.waitForFunction(() => document.querySelectorAll("section.server").length === 1);
  await page.locator("#servers button").first().click();
  await page.waitForFunction(() => document.querySelectorAll("section.server").length === 3);
  await other.stop("SIGKILL");
  await is(page, "lost");
  assert.match(await page.locator("#state").textContent(), new RegExp(`no answer from ${other.admin};`));
  assert.deepEqual(wrong, []);
  await close();
  await kv.stop();
});

test("a tier shows its leaves, and a leaf that has ended", async (t) => {
  const leaves = [];
  // Stop the servers even if the test fails: a running child keeps this process alive.
  t.after(async () => { for (const leaf of leaves) await leaf.stop("SIGKILL"); });
  for (let place = 0; place < 2; place += 1) leaves.push(await serve({ flags: ["--service", "wait", "--wait-time", "const:50us", "--admission", "none"] }));
  const asked = leaves.map((leaf) => leaf.listen).join(",");
  const tier = await serve({ flags: ["--service", "tier", "--leaves", asked, "--threading", "SDB1-4", "--admission", "none"] });
  t.after(() => tier.stop("SIGKILL"));
  const { page, wrong, close } = await open(tier.origin, [tier.origin]);
  await is(page, "live");
  const rows = page.locator(".leaves tr");
  await page.waitForFunction(() => document.querySelectorAll(".leaves tr").length === 3);
  await load(tier.listen, ["--service", "tier", "--demand", "300", "--duration", "2s", "--admission", "none"]);
  const arrived = await metric(tier.origin, "leeward_requests_arrived_total");
  assert.ok(arrived > 100, `${arrived} requests`);
  await until(page, "demand", arrived);
  const calls = async (place) => Number((await rows.nth(place).locator("td").nth(2).textContent()).replaceAll(",", ""));
  for (let place = 1; place <= 2; place += 1) {
    assert.match(await rows.nth(place).textContent(), new RegExp(leaves[place - 1].listen));
    assert.ok(await calls(place) >= arrived * 0.9, `${await calls(place)} calls of ${arrived}`);
  }
  assert.equal(await page.locator(".leaves tr.bad").count(), 0);
  await page.screenshot({ path: `${pictures}/tier.png`, fullPage: true });
  await leaves[1].stop("SIGKILL");
  // A worker that calls its leaves itself notices a lost connection at its next call.
  const failing = load(tier.listen, ["--service", "tier", "--demand", "300", "--duration", "1s", "--admission", "none"]);
  await assert.rejects(failing, /every answer was a failure/);
  await page.waitForSelector(".leaves tr.bad");
  assert.match(await page.locator(".leaves tr.bad").textContent(), new RegExp(leaves[1].listen));
  await page.screenshot({ path: `${pictures}/tier-without-leaf.png`, fullPage: true });
  assert.deepEqual(wrong, []);
  await close();
});

test("it fits every screen, in both styles", async () => {
  const server = await serve({ flags: ["--slo", "1ms"] });
  await load(server.listen, [...OVERLOAD, "--admission", "none"]);
  for (const [width, height] of [[360, 740], [1280, 900], [3840, 2160]]) {
    for (const colorScheme of ["light", "dark"]) {
      const options = { viewport: { width, height }, colorScheme };
      const { page, wrong, close } = await open(server.origin, [server.origin], options);
      await page.waitForSelector(".words li");
      const beyond = await page.evaluate(() => document.scrollingElement.scrollWidth - document.scrollingElement.clientWidth);
      assert.equal(beyond, 0, `${width} px: the page does not scroll sideways`);
      await page.screenshot({ path: `${pictures}/${width}-${colorScheme}.png`, fullPage: true });
      assert.deepEqual(wrong, []);
      await close();
    }
  }
  await server.stop();
});

test("a page of another origin cannot read it", async () => {
  const server = await serve();
  const { page, close } = await open("data:text/html,<p>elsewhere", []);
  const read = await page.evaluate((url) => fetch(url).then((answer) => answer.text(), () => "refused"), `${server.origin}/metrics`);
  assert.equal(read, "refused");
  await close();
  await server.stop();
});
