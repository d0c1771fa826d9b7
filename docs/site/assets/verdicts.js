// Filters and sorts the table of verdicts. Does not contain its rows: they are in the page.
document.addEventListener("DOMContentLoaded", () => {
  const table = document.getElementById("verdict-table");
  if (!table) return;
  const form = document.getElementById("verdict-filter");
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));

  const filter = () => {
    const { words, paper, verdict } = Object.fromEntries(new FormData(form));
    const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const is_shown = (!paper || row.dataset.paper === paper) && (!verdict || row.dataset.verdict === verdict)
        && wanted.every((word) => texts.get(row).includes(word));
      row.hidden = !is_shown;
      shown += is_shown;
    }
    document.getElementById("verdict-count").textContent = `${shown} of ${rows.length} claims`;
  };

  // Empty values come last, whatever the order.
  const order = (column, is_descending) => (one, other) => {
    const [a, b] = [one, other].map((row) => row.cells[column].dataset.value);
    if (!a || !b) return !a - !b;
    const [x, y] = [Number(a), Number(b)];
    const ascending = Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y;
    return is_descending ? -ascending : ascending;
  };

  table.tHead.addEventListener("click", (event) => {
    const head = event.target.closest("th");
    if (!head) return;
    const is_descending = head.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", is_descending ? "descending" : "ascending");
    body.append(...rows.sort(order(head.cellIndex, is_descending)));
  });

  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  filter();
});
