// Subscriptions to admin ports, and the view settings. Does not contain drawing (view.js).

const RANGES = [[60, "1 min"], [300, "5 min"], [900, "15 min"], [3600, "1 h"]];
const STYLES = ["system", "dark", "light"];
const at = (id) => document.getElementById(id);

/** Servers by id, in order of appearance. */
const servers = new Map();
const ports = new Map();
const wish = { range: 300, paused: false, end: 0, chosen: null, style: "system" };

/** Stores a view setting in localStorage, if the browser allows it. */
function remember(key, value) {
  try { localStorage.setItem(`leeward.${key}`, value); } catch { /* private window: no storage */ }
}
function remembered(key) {
  try { return localStorage.getItem(`leeward.${key}`); } catch { return null; }
}

function server(origin, port) {
  const key = ports.size > 1 ? `${new URL(origin).host} ${port}` : port;
  const id = `${origin} ${port}`;
  let known = servers.get(id);
  if (!known) {
    known = { id, origin, key, series: new Series(), view: new View(key, new URL(origin).host), state: null, gone: null };
    servers.set(id, known);
    buttons();
  }
  return known;
}

function take(origin, told) {
  const there = new Set();
  for (const state of told.servers) {
    const known = server(origin, state.port);
    known.series.add(state);
    state.backends_down = told.backends_down || [];
    known.latest = state;
    known.gone = null;
    if (!wish.paused) known.state = state;
    there.add(known.id);
  }
  lose(origin, (known) => !there.has(known.id));
  ports.get(origin).stopping = told.stopping;
  draw();
}

/** Marks the servers of a port that `which` selects: no state comes of them now. */
function lose(origin, which) {
  for (const known of servers.values()) {
    if (known.origin !== origin || !which(known)) continue;
    known.series.gap();
    known.gone = known.series.last()?.t ?? null;
  }
}

function takePast(origin, seconds) {
  for (const second of seconds) {
    for (const state of second.servers) server(origin, state.port).series.add(state);
  }
}

/** Subscribes to the events of a port. EventSource reconnects by itself after a lost connection. */
function listen(origin) {
  if (ports.has(origin)) return;
  const port = { origin, is: "waiting", stopping: false };
  ports.set(origin, port);
  const open = () => {
    const source = new EventSource(`${origin}/events`);
    source.addEventListener("open", () => { port.is = "live"; draw(); });
    source.addEventListener("past", (event) => takePast(origin, JSON.parse(event.data)));
    source.addEventListener("message", (event) => { port.is = "live"; take(origin, JSON.parse(event.data)); });
    source.addEventListener("error", () => {
      port.is = "lost";
      lose(origin, () => true);
      draw();
      // After an HTTP error EventSource does not reconnect, so open a new one.
      if (source.readyState === EventSource.CLOSED) setTimeout(open, 2000);
    });
  };
  open();
}

function shown() {
  const all = [...servers.values()];
  const chosen = all.filter((known) => known.id === wish.chosen);
  return chosen.length ? chosen : all;
}

function newest() {
  return Math.max(0, ...[...servers.values()].map((known) => known.series.last()?.t || 0));
}

/** Shortest time range, in seconds: a single point has no width. */
const LEAST = 2;

/** Start of the time range: the selected range, or less while there is less data. */
function beginning(visible, end) {
  const first = Math.min(...visible.map((known) => known.series.first()?.t ?? end));
  return Math.max(end - wish.range, Math.min(first, end - LEAST));
}

function draw() {
  const end = wish.paused ? wish.end : newest();
  const visible = shown();
  const begin = beginning(visible, end);
  const roots = visible.map((known) => known.view.root);
  const main = at("main");
  if (roots.length !== main.children.length || roots.some((root, place) => main.children[place] !== root)) main.replaceChildren(...roots);
  for (const known of visible) known.view.show(known.state, known.series, begin, end, known.gone);
  tellState();
}

function tellState() {
  const all = [...ports.values()];
  const lost = all.filter((port) => port.is === "lost").map((port) => new URL(port.origin).host);
  const is = lost.length ? "lost" : wish.paused ? "paused" : all.every((port) => port.is === "live") ? "live" : "waiting";
  const words = {
    lost: `no answer from ${lost.join(", ")}; retrying`,
    paused: `paused at ${clock(wish.end)}`,
    live: all.some((port) => port.stopping) ? "stopping" : "live",
    waiting: "connecting …",
  }[is];
  const place = at("state");
  place.dataset.state = is;
  if (place.textContent !== words) place.textContent = words;
}

function button(text, pressed, act) {
  const made = element("button", "", text);
  made.type = "button";
  made.setAttribute("aria-pressed", String(pressed));
  made.addEventListener("click", act);
  return made;
}

function buttons() {
  const all = [...servers.values()];
  const choose = (id) => () => { wish.chosen = id; buttons(); draw(); };
  at("servers").replaceChildren(...(all.length < 2 ? [] : [
    button("all", !wish.chosen, choose(null)),
    ...all.map((known) => button(known.key, known.id === wish.chosen, choose(known.id))),
  ]));
  at("ranges").replaceChildren(...RANGES.map(([seconds, text]) => button(text, seconds === wish.range, () => setRange(seconds))));
}

function setRange(seconds) {
  wish.range = seconds;
  remember("range", seconds);
  buttons();
  draw();
}

function pause() {
  wish.paused = !wish.paused;
  wish.end = newest();
  for (const known of servers.values()) if (!wish.paused && known.latest) known.state = known.latest;
  at("pause").setAttribute("aria-pressed", String(wish.paused));
  at("pause").textContent = wish.paused ? "Resume" : "Pause";
  draw();
}

function pan(direction) {
  if (!wish.paused) return;
  const firsts = shown().map((known) => known.series.first()?.t ?? Infinity);
  // There are no data before the first point.
  const least = Math.min(newest(), Math.min(...firsts) + wish.range);
  wish.end = Math.min(newest(), Math.max(least, wish.end + direction * wish.range / 4));
  draw();
}

function setStyle(style) {
  wish.style = style;
  document.documentElement.dataset.style = style;
  at("style").textContent = `Style: ${style}`;
  remember("style", style);
}

function nextServer() {
  const ids = [null, ...servers.keys()];
  wish.chosen = ids[(ids.indexOf(wish.chosen) + 1) % ids.length];
  buttons();
  draw();
}

function originOf(text) {
  try {
    const url = new URL(text.includes("://") ? text : `${location.protocol}//${text}`);
    return url.protocol === "http:" || url.protocol === "https:" ? url.origin : null;
  } catch { return null; }
}

const KEYS = {
  " ": pause,
  "?": () => at("keys").showModal(),
  t: () => setStyle(STYLES[(STYLES.indexOf(wish.style) + 1) % STYLES.length]),
  s: nextServer,
  ArrowLeft: () => pan(-1),
  ArrowRight: () => pan(1),
};
RANGES.forEach(([seconds], place) => { KEYS[String(place + 1)] = () => setRange(seconds); });

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, dialog[open]");
  const pressing = event.key === " " && event.target.closest("button");
  if (typing || pressing || event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key]) return;
  event.preventDefault();
  KEYS[event.key]();
});
at("pause").addEventListener("click", pause);
at("style").addEventListener("click", KEYS.t);
at("help").addEventListener("click", KEYS["?"]);
at("close").addEventListener("click", () => at("keys").close());
at("add").addEventListener("submit", (event) => {
  event.preventDefault();
  const origin = originOf(at("address").value.trim());
  if (origin) { listen(origin); at("keys").close(); }
});

const asked = new URLSearchParams(location.search);
const range = Number(asked.get("range") || remembered("range"));
if (RANGES.some(([seconds]) => seconds === range)) wish.range = range;
const style = asked.get("style") || remembered("style");
setStyle(STYLES.includes(style) ? style : "system");
buttons();
listen(location.origin);
asked.getAll("server").map(originOf).filter(Boolean).forEach(listen);
