/* Makes the tables of the leaderboard sortable: a click on a heading sorts by it, a second click turns the order. */
"use strict";

function sortKey(cell) {
  const text = cell.textContent.trim();
  const number = parseFloat(text.replace("−", "-"));
  return Number.isNaN(number) ? text : number;
}

function compare(a, b) {
  if (typeof a === typeof b) return a < b ? -1 : a > b ? 1 : 0;
  return typeof a === "number" ? -1 : 1; // cells without a number come last
}

function makeSortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows];
      const keys = new Map(rows.map((row) => [row, sortKey(row.cells[column])]));
      rows.sort((one, two) => (down ? -1 : 1) * compare(keys.get(one), keys.get(two)));
      body.append(...rows);
    });
  });
}

document.querySelectorAll("section#the-leaderboard table").forEach((table) => {
  if (table.tHead && table.tHead.rows[0].cells.length > 5) makeSortable(table);
});
