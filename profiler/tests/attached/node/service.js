// A service with node:http: a fast answer, and a report that takes CPU.
const http = require("node:http");

function buildReport(rows) {
  const items = [];
  for (let i = 0; i < rows; i++) items.push({ name: `item ${(i * 7919) % rows}`, price: i });
  items.sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
  return JSON.stringify(items);
}

http
  .createServer((request, response) => {
    const body = request.url === "/report" ? `${buildReport(20000).length}\n` : "well\n";
    response.setHeader("Content-Length", Buffer.byteLength(body));
    response.end(body);
  })
  .listen(Number(process.argv[2]), "127.0.0.1");
