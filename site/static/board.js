// Long tables of verdicts: filters by verdict and by words, which leave whole rows; the head stays in view.
document.addEventListener("DOMContentLoaded", () => {
  const tables = [...document.querySelectorAll("table.verdicts.board")];
  const rows = tables.flatMap((table) => [...table.tBodies[0].rows]);
  if (!rows.length) return;
  const words = (row) => row.textContent.toLowerCase();
  const verdicts = [...new Set(rows.flatMap((row) => [...row.querySelectorAll(".verdict")].map((one) => one.textContent)))];
  const bar = document.createElement("div");
  bar.className = "board-filter";
  const chosen = new Set(verdicts);
  const search = document.createElement("input");
  Object.assign(search, { type: "search", placeholder: "Filter claims", ariaLabel: "Filter claims" });
  const count = document.createElement("span");
  const apply = () => {
    let shown = 0;
    for (const row of rows) {
      const own = [...row.querySelectorAll(".verdict")].map((one) => one.textContent);
      const fits = own.some((one) => chosen.has(one)) && words(row).includes(search.value.toLowerCase());
      row.hidden = !fits;
      shown += fits;
    }
    count.textContent = `${shown} of ${rows.length} claims`;
  };
  for (const verdict of verdicts) {
    const label = document.createElement("label"), box = document.createElement("input");
    Object.assign(box, { type: "checkbox", checked: true });
    box.onchange = () => { chosen[box.checked ? "add" : "delete"](verdict); apply(); };
    label.append(box, ` ${verdict}`);
    bar.append(label);
  }
  search.oninput = apply;
  bar.append(search, count);
  const first = document.querySelector(".bd-article h1");
  (first || tables[0]).after(bar);
  apply();
});
