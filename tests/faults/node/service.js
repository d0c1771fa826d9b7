// A shop's price service on node:http. Usage: node service.js MODE PORT.
'use strict';
const http = require('node:http');
const fs = require('node:fs');
const dns = require('node:dns');
const { Worker } = require('node:worker_threads');

const [mode, port] = [process.argv[2], Number(process.argv[3])];
const setting = (name, otherwise) => Number(process.env[name] ?? otherwise);

let sink = 7;
function hashALittle() {
  let h = sink;
  for (let i = 0; i < 30000; i++) h = Math.imul(h ^ i, 16777619);
  sink = h;
}

// By the process's CPU clock: the cost is the same on a busy machine.
function used() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

function burn(ms) {
  const end = used() + ms;
  while (used() < end) hashALittle();
}

const cost = setting('COST_MS', 1);

// Workers that share one mutex in shared memory (locker.js); each job holds it for COST_MS.
function lockingPool() {
  const memory = new SharedArrayBuffer(8);
  const waiting = new Map();
  let next = 0;
  const workers = Array.from({ length: 8 }, () => {
    const worker = new Worker(require.resolve('./locker.js'), { workerData: { memory, cost } });
    worker.on('message', (id) => { waiting.get(id)(); waiting.delete(id); });
    return worker;
  });
  return (done) => {
    waiting.set(++next, done);
    workers[next % workers.length].postMessage(next);
  };
}

// A write that is only answered when it is on the disk.
function journal() {
  const files = Array.from({ length: 64 }, (_, i) =>
    fs.openSync(`${process.env.DATA}/journal-${i}`, fs.constants.O_RDWR | fs.constants.O_CREAT));
  let next = 0;
  return (done) => {
    const file = files[next++ % 64];
    fs.write(file, Buffer.alloc(4096, 'a'), 0, 4096, 0, () => fs.fdatasync(file, done));
  };
}

function askBackend(done) {
  http.get(`http://${process.env.BACKEND}/price`, (answer) => {
    answer.resume();
    answer.on('end', () => { burn(setting('BURN_MS', 0.1)); done(); });
  }).on('error', done);
}

function work() {
  switch (mode) {
    case 'lock': return lockingPool();
    case 'disk': return journal();
    case 'downstream': return askBackend;
    case 'dns': return (done) => dns.lookup(process.env.NAME, { family: 4 }, done);
    default: return (done) => { burn(cost); done(); };
  }
}

// A heap of some million objects, collected in full from time to time.
let heap;
function collect() {
  if (heap) return;
  heap = Array.from({ length: setting('OBJECTS', 1.2e6) }, (_, i) => ({ id: i, tags: [i] }));
  const again = () => { global.gc(); setTimeout(again, setting('BETWEEN_MS', 300)); };
  again();
}

const handle = work();
const large = Buffer.alloc(4 << 20, 'x');
http.createServer({ keepAliveTimeout: 60000 }, (request, response) => {
  const answer = () => response.end(JSON.stringify({ path: request.url, price: 7 }));
  if (request.url === '/large') response.end(large);
  else if (request.url === '/poll') setTimeout(answer, 30000);
  else if (request.url === '/collect') { setImmediate(collect); answer(); }
  else handle(answer);
}).listen({ host: '127.0.0.1', port, backlog: 1024 });
