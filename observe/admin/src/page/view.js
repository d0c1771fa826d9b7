// View of one server: tiles, charts, locks, leaves and the latest rejections. Does not contain the
// subscription to its port (main.js).

const TONES = { delay: "c3", level: "c5", concurrency: "c4", lock: "c6", credit: "c7", late: "c1", deadline: "c8", share: "c7", stopping: "c0", cancelled: "c0", other: "c0" };

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text != null) made.textContent = text;
  return made;
}

class View {
  /** `host`: the admin port's address. */
  constructor(key, host) {
    // `leeward why` asks this address by default.
    this.host = host === "127.0.0.1:9464" ? "" : ` ${host}`;
    this.root = element("section", "server");
    this.root.dataset.server = key;
    this.root.setAttribute("aria-label", key);
    const head = element("header");
    this.title = element("h2", "", key);
    this.about = element("p");
    head.append(this.title, this.about);
    this.tiles = element("div", "tiles");
    this.known = {};
    this.load = new Chart("Demand and goodput, requests per second", short);
    this.latency = new Chart("Latency against the objective", span, { logarithmic: true });
    this.refusals = new Chart("Rejections by reason, per second", short, { stacked: true });
    this.delay = new Chart("Standing delay and its target", span);
    this.control = new Chart("Controller", short);
    this.locks = this.card("Locks, by total wait time");
    this.leaves = this.card("Calls to leaves");
    this.leaves.classList.add("leaves");
    this.leaves.hidden = true;
    this.words = this.card("Latest rejections, grouped by kind");
    this.root.append(head, this.tiles, this.load.card, this.latency.card, this.refusals.card, this.delay.card, this.control.card, this.locks, this.leaves, this.words);
  }

  card(title) {
    const card = element("div", "card wide");
    card.append(element("h3", "", title), element("div", "scroll"));
    return card;
  }

  /** Updates a tile; creates it once, so that focus and text selection survive updates. */
  tile(id, name, value, note, tone) {
    let tile = this.known[id];
    if (!tile) {
      tile = this.known[id] = element("div", "tile");
      tile.dataset.tile = id;
      tile.append(element("span", "", name), element("b"), element("small"));
      this.tiles.append(tile);
    }
    tile.className = tone ? `tile ${tone}` : "tile";
    tile.children[1].textContent = value;
    tile.children[2].textContent = note || "\u00a0";
    tile.hidden = false;
  }

  hide(id) {
    if (this.known[id]) this.known[id].hidden = true;
  }

  /** `gone`: time of the last state of a server that sends none now, else null. */
  show(state, series, begin, end, gone) {
    this.root.classList.toggle("gone", gone != null);
    const points = series.between(begin, end);
    const last = points[points.length - 1] || {};
    if (state) this.tell(state, last, gone);
    this.load.show(points, [
      { name: "demand", tone: "c0", of: (point) => point.demand },
      { name: "in time", tone: "c2", of: (point) => point.goodput },
      { name: "late", tone: "c3", of: (point) => point.late },
      { name: "failed", tone: "c7", of: (point) => point.failed },
    ].filter((of) => of.name !== "failed" || points.some((point) => point.failed > 0)), begin, end);
    this.latency.show(points, [
      { name: "p50", tone: "c1", of: (point) => point.p50 },
      { name: "p99", tone: "c5", of: (point) => point.p99 },
      { name: "p99.9", tone: "c3", of: (point) => point.p999 },
      { name: "objective", tone: "c2", of: (point) => point.slo },
    ], begin, end);
    const seen = Object.keys(last.refusals || {}).filter((reason) => points.some((point) => point.refusals[reason] > 0));
    const reasons = seen.map((reason) => ({ name: reason, tone: TONES[reason] || "c0", of: (point) => point.refusals[reason] }));
    this.refusals.show(points, reasons.length ? reasons : [{ name: "none", tone: "c0", of: () => 0 }], begin, end);
    this.delay.show(points, [
      { name: "standing delay", tone: "c1", of: (point) => point.standing },
      { name: "target", tone: "c4", of: (point) => point.target },
    ].filter((of) => points.some((point) => of.of(point) != null)), begin, end);
    const controls = [
      { name: "credits", tone: "c1", of: (point) => point.pool },
      { name: "held by clients", tone: "c6", of: (point) => point.issued },
      { name: "level", tone: "c5", of: (point) => point.level },
      { name: "in flight", tone: "c0", of: (point) => point.inFlight },
    ];
    this.control.show(points, controls.filter((of) => points.some((point) => of.of(point) != null)), begin, end);
  }

  tell(state, last, gone) {
    this.about.textContent = `${state.service} · ${state.controller} · ${state.setup} · objective ${span(state.slo_ns / 1e9)}` +
      (state.mode === "shadow" ? " · shadow mode: nothing is rejected" : state.mode === "share" ? " · enforced for a share of the clients" : "") + (state.tier ? ` · ${state.tier.threading}, calls ${state.tier.leaves.length} ${state.tier.leaves.length === 1 ? "leaf" : "leaves"}` : "") + (gone != null ? ` · no numbers since ${clock(gone)}` : "");
    const refusals = state.refused.reduce((sum, refused) => sum + refused.count, 0);
    const rate = Object.values(last.refusals || {}).reduce((sum, each) => sum + each, 0);
    const share = last.demand > 0 ? last.goodput / last.demand : null;
    this.tile("demand", "Demand /s", short(last.demand), `${state.arrived.toLocaleString("en")} in total`);
    this.tile("goodput", "In time /s", short(last.goodput), `${state.in_time.toLocaleString("en")} in total`, share != null && share < 0.5 ? "bad" : "good");
    this.tile("late", "Late /s", short(last.late), `${late(state).toLocaleString("en")} in total`, last.late > 0.05 * last.demand ? "bad" : "");
    if (state.failed > 0) this.tile("failed", "Failed /s", short(last.failed), `${state.failed.toLocaleString("en")} in total`, last.failed > 0 ? "bad" : "");
    else this.hide("failed");
    this.tile("refused", state.mode === "enforce" ? "Rejected /s" : "Rejected or foreseen /s", short(last.demand == null ? null : rate), `${refusals.toLocaleString("en")} in total`);
    this.tellLatency(state);
    const over = state.target_ns != null && state.standing_ns > state.target_ns;
    this.tile("standing", "Standing delay", span(state.standing_ns / 1e9), state.target_ns == null ? "no target" : `target ${span(state.target_ns / 1e9)}`, over ? "bad" : "good");
    this.tile("flight", "In flight", short(state.in_flight), state.connections == null ? "" : `${short(state.connections)} connections`);
    if (state.credit_pool != null) {
      this.tile("credits", "Credits", short(state.credit_pool), `${short(state.credits_issued)} held, ${short(state.sessions)} sessions`);
    } else this.hide("credits");
    if (state.level != null) this.tile("level", "Level", short(state.level), "of 128; lower is stricter");
    else this.hide("level");
    if (state.concurrency_limit != null) this.tile("limit", "Limit", short(state.concurrency_limit), "concurrent requests");
    else this.hide("limit");
    this.tile("setup", "Threads", state.setup, last.busy == null ? "" : `${Math.round(last.busy * 100)} % busy`);
    for (const id of Object.keys(this.known)) if (id.startsWith("backend ")) this.hide(id);
    for (const backend of state.backends_down) this.tile(`backend ${backend}`, "Backend", "set aside", backend, "bad");
    this.tellLocks(state.locks);
    this.tellLeaves(state);
    this.tellWords(state.refusal_kinds || []);
  }

  /** Percentiles of the results of the last ten seconds, against the objective. */
  tellLatency({ latency_recent: recent, slo_ns: slo }) {
    const few = recent && recent.count < 1000 ? `the longest of ${recent.count}` : null;
    const objective = `objective ${span(slo / 1e9)}`;
    for (const [id, name, key, note] of [["p50", "p50", "p50_ns"], ["p99", "p99", "p99_ns"], ["p999", "p99.9", "p999_ns", few]]) {
      const ns = recent?.[key];
      const tone = ns == null ? "" : ns > slo ? "bad" : "good";
      this.tile(id, `Latency ${name}`, span(seconds(ns)), recent ? note || objective : "no result in 10 s", tone);
    }
  }

  tellLocks(locks) {
    const place = this.locks.lastChild;
    const waited = locks.filter((lock) => lock.contended > 0 || lock.refused > 0).slice(0, 12);
    if (!waited.length) return place.replaceChildren(element("p", "none", "No request has waited for a lock."));
    const table = element("table");
    const head = element("tr");
    for (const name of ["lock", "kind", "taken", "waited", "rejected", "p99 of waits", "longest"]) head.append(element("th", "", name));
    table.append(head);
    for (const lock of waited) {
      const row = element("tr");
      const cells = [lock.name, lock.kind, short(lock.acquired), short(lock.contended), short(lock.refused), span(lock.p99_ns / 1e9), span(lock.longest_ns / 1e9)];
      for (const text of cells) row.append(element("td", "", text));
      table.append(row);
    }
    place.replaceChildren(table);
  }

  /** Table of a tier's leaves, with the rate of calls since the previous state. */
  tellLeaves({ tier, unix_ns: now }) {
    this.leaves.hidden = !tier;
    if (!tier) return;
    const before = this.asked;
    this.asked = { now, calls: tier.leaves.map((leaf) => leaf.calls) };
    const seconds = before ? (now - before.now) / 1e9 : 0;
    const table = element("table");
    const head = element("tr");
    for (const name of ["leaf", "calls /s", "calls", "connections", "credits"]) head.append(element("th", "", name));
    table.append(head);
    tier.leaves.forEach((leaf, place) => {
      const row = element("tr", leaf.connections ? "" : "bad");
      const more = seconds > 0 ? leaf.calls - (before.calls[place] || 0) : -1;
      // Fewer calls than before: the server has restarted.
      const rate = more >= 0 ? short(more / seconds) : "–";
      const credits = leaf.credits == null ? "–" : short(leaf.credits);
      const there = leaf.connections ? short(leaf.connections) : "none";
      for (const text of [leaf.address, rate, leaf.calls.toLocaleString("en"), there, credits]) row.append(element("td", "", text));
      table.append(row);
    });
    const sums = `${short(tier.gathers)} requests with calls to leaves, ${short(tier.waiting)} waiting; ${short(tier.hedged)} calls hedged, ` +
      `${short(tier.retried)} retried after a rejection, ${short(tier.cancelled)} cancelled; ${short(tier.late)} late replies; ${short(tier.switches)} changes of setup`;
    this.leaves.lastChild.replaceChildren(table, element("p", "none", sums));
  }

  tellWords(refusals) {
    const place = this.words.lastChild;
    if (!refusals.length) return place.replaceChildren(element("p", "none", "No recent rejections."));
    const list = element("ul", "words");
    for (const refusal of refusals) {
      const item = element("li", TONES[refusal.reason] || "c0");
      const [first, last] = [clock(refusal.first_unix_ms / 1e3), clock(refusal.unix_ms / 1e3)];
      const times = first === last ? `at ${last}` : `between ${first} and ${last}`;
      const count = element("b", "", `${refusal.count.toLocaleString("en")} × `);
      const note = element("small", "", `${times}; ${refusal.count > 1 ? "newest: " : ""}leeward why `);
      note.append(element("code", "", refusal.id + this.host));
      item.append(count, refusal.sentence, note);
      list.append(item);
    }
    place.replaceChildren(list);
  }
}
