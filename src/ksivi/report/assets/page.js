// Tables sort by the column whose head is clicked; a second click turns the order.
const key = (row, column) => {
  const cell = row.cells[column];
  return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
};
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const sort = (column) => {
    const rising = heads[column].getAttribute("aria-sort") !== "ascending";
    const compare = (a, b) => {
      const [x, y] = [key(a, column), key(b, column)];
      return (typeof x === "number" ? x - y : x.localeCompare(y, undefined, { numeric: true })) * (rising ? 1 : -1);
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
