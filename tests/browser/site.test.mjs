// Tests of the site that `make docs` builds, in a real browser: links, other origins, errors,
// width, search, and the table of verdicts. Screenshots go to target/site-pictures.

import assert from "node:assert/strict";
import { createReadStream, existsSync, mkdirSync, readdirSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { once } from "node:events";
import path from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../..");
const site = path.join(root, "target/site");
const pictures = path.join(root, "target/site-pictures");
const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".png": "image/png", ".json": "application/json" };
const WIDTHS = [[360, 740], [1280, 900], [3840, 2160]];

let browser, server, origin;
before(async () => {
  assert.ok(existsSync(path.join(site, "index.html")), "make docs builds the site");
  mkdirSync(pictures, { recursive: true });
  const args = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"];
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM || "/usr/bin/chromium", args });
  server = createServer((request, response) => {
    const file = path.join(site, decodeURIComponent(new URL(request.url, "http://localhost").pathname));
    if (!file.startsWith(site) || !existsSync(file) || !statSync(file).isFile()) return response.writeHead(404).end();
    response.writeHead(200, { "content-type": TYPES[path.extname(file)] || "application/octet-stream" });
    return createReadStream(file).pipe(response);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  origin = `http://127.0.0.1:${server.address().port}`;
});
after(async () => {
  await browser?.close();
  server?.close();
});

/** Paths of all pages, relative to the site. */
function pages(folder = site) {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const at = path.join(folder, entry.name);
    if (entry.isDirectory()) return pages(at);
    return entry.name.endsWith(".html") && entry.name !== "404.html" ? [path.relative(site, at)] : [];
  });
}

/** A context whose pages tell what is wrong with them: errors, and requests to other origins. */
async function context(options = {}) {
  const made = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  // On a machine that other programs keep busy, pages and pictures take their time.
  made.setDefaultTimeout(180_000);
  const wrong = [];
  made.on("weberror", (error) => wrong.push(`error: ${error.error().stack}`));
  made.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) wrong.push(`${message.page()?.url()}: ${message.text()}`);
  });
  made.on("request", (request) => {
    const { protocol, origin: asked } = new URL(request.url());
    if (protocol !== "data:" && protocol !== "file:" && asked !== origin) wrong.push(`outside: ${request.url()}`);
  });
  made.on("response", (response) => {
    if (response.status() >= 400) wrong.push(`${response.status()}: ${response.url()}`);
  });
  return { made, wrong };
}

/** What a page has to say about itself, seen by a script in it. */
const look = (page) => page.evaluate(() => ({
  title: document.querySelector("h1")?.textContent.trim() ?? "",
  ids: [...document.querySelectorAll("[id], a[name]")].map((element) => element.id || element.getAttribute("name")),
  links: [...document.querySelectorAll("a[href]")].map((link) => link.href),
}));

/** Pixels by which a page is wider than the window. After a change of width, scripts of the page may take some frames. */
const beyond = (page) => page.evaluate(async () => {
  let more = 0;
  for (let frame = 0; frame < 30; frame += 1) {
    more = document.scrollingElement.scrollWidth - document.scrollingElement.clientWidth;
    if (!more) break;
    await new Promise((resolve) => { requestAnimationFrame(resolve); });
  }
  return more;
});

test("every page opens and fits each width, and every link leads to a page and a heading", async () => {
  const { made, wrong } = await context();
  const all = pages();
  const found = new Map();
  const examine = async (names) => {
    const page = await made.newPage();
    for (const name of names) {
      await page.goto(`${origin}/${name}`);
      found.set(name, await look(page));
      for (const [width, height] of [...WIDTHS, [768, 900], [1920, 1080]]) {
        await page.setViewportSize({ width, height });
        const more = await beyond(page);
        if (more > 0) wrong.push(`${name} is ${more} px wider than ${width} px`);
      }
    }
  };
  // Two at a time: a page waits for the disk, the server and its own frames.
  await Promise.all([0, 1].map((half) => examine(all.filter((_, at) => at % 2 === half))));
  assert.ok(all.length > 60, `${all.length} pages`);
  let links = 0;
  for (const [name, { title, links: targets }] of found) {
    if (!title) wrong.push(`${name} has no title`);
    for (const target of targets) {
      const url = URL.canParse(target) ? new URL(target) : null;
      if (!url) wrong.push(`${name}: no address: ${target}`);
      if (url?.origin !== origin) continue;
      links += 1;
      const to = decodeURIComponent(url.pathname).slice(1) || "index.html";
      const heading = decodeURIComponent(url.hash.slice(1));
      if (!found.has(to) && !existsSync(path.join(site, to))) wrong.push(`${name}: no page ${to}`);
      else if (heading && found.has(to) && !found.get(to).ids.includes(heading)) wrong.push(`${name}: no heading ${to}#${heading}`);
    }
  }
  assert.ok(links > 1_000, `${links} links`);
  assert.deepEqual([...new Set(wrong)], []);
  await made.close();
});

test("pictures in both styles and three widths", async () => {
  for (const [width, height] of WIDTHS) {
    for (const colorScheme of ["light", "dark"]) {
      const { made, wrong } = await context({ viewport: { width, height }, colorScheme });
      const page = await made.newPage();
      for (const name of ["index", "gallery", "report", "verdicts-table", "docs/getting-started", "docs/proxy", "docs/glossary"]) {
        await page.goto(`${origin}/${name}.html`);
        assert.equal(await page.evaluate(() => document.body.dataset.mdColorScheme), colorScheme === "dark" ? "slate" : "default");
        // All of a long or wide page would be too large a picture.
        const tall = Math.min(await page.evaluate(() => document.scrollingElement.scrollHeight), 5_000, Math.round(1e7 / width));
        await page.screenshot({ path: `${pictures}/${name.replace("/", "-")}-${width}-${colorScheme}.png`, fullPage: true, clip: { x: 0, y: 0, width, height: tall } });
      }
      assert.deepEqual(wrong, []);
      await made.close();
    }
  }
});

test("the style can be changed, and stays", async () => {
  const { made, wrong } = await context({ colorScheme: "light" });
  const page = await made.newPage();
  await page.goto(`${origin}/index.html`);
  const color = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await color();
  await page.locator('label[title="Dark style"]').click();
  const dark = await color();
  assert.notEqual(dark, light);
  await page.goto(`${origin}/docs/glossary.html`);
  assert.equal(await color(), dark);
  assert.deepEqual(wrong, []);
  await made.close();
});

for (const [where, url] of [["a server", () => origin], ["the disk", () => pathToFileURL(site).href]]) {
  test(`search finds a word, on pages of ${where}`, async () => {
    const { made, wrong } = await context();
    const page = await made.newPage();
    await page.goto(`${url()}/index.html`);
    await page.keyboard.press("/");
    await page.keyboard.type("overcommitment");
    const first = page.locator(".md-search-result__item a").first();
    await first.waitFor({ state: "visible" });
    assert.match(await page.locator(".md-search-result__list").textContent(), /glossary/i);
    await first.click();
    await page.waitForLoadState();
    assert.match(await page.locator("article").textContent(), /overcommitment/i);
    assert.deepEqual(wrong, []);
    await made.close();
  });
}

test("the table of verdicts filters and sorts", async () => {
  const { made, wrong } = await context();
  const page = await made.newPage();
  await page.goto(`${origin}/verdicts-table.html`);
  const shown = () => page.locator("#verdict-table tbody tr:visible");
  const count = async () => (await page.locator("#verdict-count").textContent()).match(/^(\d+) of (\d+)/).slice(1).map(Number);
  const [all, total] = await count();
  assert.equal(all, total);
  assert.equal(await shown().count(), total);

  await page.selectOption('[name="verdict"]', "not reproduced");
  const [missed] = await count();
  assert.ok(missed > 0 && missed < total, `${missed} of ${total}`);
  assert.deepEqual([...new Set(await page.locator("#verdict-table tbody tr:visible .verdict").allTextContents())], ["not reproduced"]);
  await page.selectOption('[name="paper"]', "Breakwater");
  await page.fill('[name="words"]', "dagor");
  const rows = await shown().allTextContents();
  assert.ok(rows.length > 0 && rows.length < missed, `${rows.length} of ${missed}`);
  assert.ok(rows.every((row) => /dagor/i.test(row)), rows.join("\n"));
  await page.fill('[name="words"]', "no claim says this");
  assert.deepEqual(await count(), [0, total]);
  assert.equal(await shown().count(), 0);
  await page.fill('[name="words"]', "");
  await page.selectOption('[name="verdict"]', "");
  await page.selectOption('[name="paper"]', "");

  const head = page.locator("#verdict-table th", { hasText: "measured" });
  const values = () => page.locator("#verdict-table tbody tr td:nth-child(5)").evaluateAll((found) => found.map((cell) => cell.dataset.value).filter(Boolean).map(Number));
  await head.locator("button").click();
  assert.equal(await head.getAttribute("aria-sort"), "ascending");
  const ascending = await values();
  assert.deepEqual(ascending, ascending.toSorted((a, b) => a - b));
  await head.locator("button").focus();
  await page.keyboard.press("Enter");
  assert.equal(await head.getAttribute("aria-sort"), "descending");
  assert.deepEqual(await values(), ascending.toReversed());
  assert.deepEqual(wrong, []);
  await made.close();
});
