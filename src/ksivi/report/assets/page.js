// Tables sort by the column whose head is clicked; a second click turns the order.
const key = (row, column) => {
  const cell = row.cells[column];
  if (cell.dataset.value === undefined) return cell.textContent;
  return cell.dataset.value === "" ? Infinity : Number(cell.dataset.value); // what is not finite comes last
};
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const sort = (column) => {
    const rising = heads[column].getAttribute("aria-sort") !== "ascending";
    const compare = (a, b) => {
      const [x, y] = [key(a, column), key(b, column)];
      const order = typeof x === "number" ? (x > y) - (x < y) : x.localeCompare(y, undefined, { numeric: true });
      return order * (rising ? 1 : -1);
    };
    table.tBodies[0].append(...[...table.tBodies[0].rows].sort(compare));
    heads.forEach((head, i) => head.setAttribute("aria-sort", i !== column ? "none" : rising ? "ascending" : "descending"));
  };
  heads.forEach((head, column) => {
    head.tabIndex = 0;
    head.addEventListener("click", () => sort(column));
    head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(column); });
  });
}
