// A service on node:http whose requests do what MODE says. Usage: node service.js PORT MODE.
'use strict';
const http = require('node:http');

const [port, mode] = [Number(process.argv[2]), process.argv[3]];
const slow = (process.env.SLOW ?? '').split(',').filter(Boolean).map(Number);
const routes = { '/a': 0.1, '/b': 0.5, '/c': 2, '/d': 10 };
const answer = Buffer.alloc(100, 'x');

let began = 0;
let sink = 7;

function used() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

// Takes so many ms of a CPU, by the process's own clock.
function burn(ms) {
  const end = used() + ms;
  do {
    for (let i = 0; i < 3000; i++) sink = Math.imul(sink ^ i, 16777619);
  } while (used() < end);
}

// Runs at most `places` tasks at once; the others wait in turn.
class Places {
  constructor(places) { this.free = places; this.waiting = []; }

  async hold(ms) {
    if (this.free === 0) await new Promise((go) => this.waiting.push(go));
    else this.free--;
    await pause(ms);
    const next = this.waiting.shift();
    if (next) next(); else this.free++;
  }
}

const pause = (ms) => new Promise((go) => setTimeout(go, ms));
const [lock, slots] = [new Places(1), new Places(8)];
const chance = (among) => Math.floor(Math.random() * among) === 0;

// 3 between the seconds SLOW=FROM,UNTIL after the beginning, else 1.
function slowness() {
  const since = (Date.now() - began) / 1000;
  return slow.length === 2 && since >= slow[0] && since < slow[1] ? 3 : 1;
}

async function request(path) {
  switch (mode) {
    case 'cpu': case 'pauses': return burn(1);
    case 'exp': return burn(-Math.log(1 - Math.random()));
    case 'bimodal': return burn(chance(10) ? 8 : 0.2);
    case 'wait': await pause(20); return burn(1);
    case 'lock': return chance(2) ? lock.hold(2) : burn(0.1);
    case 'slow': return burn(slowness());
    case 'routes': return burn(routes[path] ?? 0);
    case 'pool': await slots.hold(8); return burn(0.2);
    case 'rare': return chance(100) ? pause(1000) : burn(1);
    default: throw new Error(mode);
  }
}

const server = http.createServer(async (ask, tell) => {
  if (ask.url === '/-/begin') began = Date.now();
  else await request(ask.url);
  tell.setHeader('content-length', answer.length);
  tell.end(answer);
});
// Above a proxy's own, as Node's documentation advises: no request meets a closing connection.
server.keepAliveTimeout = 75_000;
server.listen(port, '127.0.0.1', 2048);
