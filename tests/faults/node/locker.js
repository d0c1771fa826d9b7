// A worker that does its job under a mutex in shared memory: index 0 is 0 (free) or 1 (held).
'use strict';
const { parentPort, workerData } = require('node:worker_threads');
const state = new Int32Array(workerData.memory);

parentPort.on('message', (id) => {
  while (Atomics.compareExchange(state, 0, 0, 1) !== 0) Atomics.wait(state, 0, 1);
  Atomics.wait(state, 1, 0, workerData.cost); // sleeps: nobody wakes index 1
  Atomics.store(state, 0, 0);
  Atomics.notify(state, 0, 1);
  parentPort.postMessage(id);
});
