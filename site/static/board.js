// Long tables of verdicts: filter rows by paper, outcome, kind and words.
document.addEventListener("DOMContentLoaded", () => {
  const tables = [...document.querySelectorAll("table.verdicts.board")];
  const rows = tables.flatMap((table) => [...table.tBodies[0].rows]);
  if (!rows.length) return;
  const facets = {
    paper: (row) => row.dataset.paper,
    outcome: (row) => row.querySelector(".verdict").textContent,
    kind: (row) => row.dataset.kind,
  };
  const bar = document.createElement("div");
  bar.className = "board-filter";
  const chosen = {};
  for (const [name, of] of Object.entries(facets)) {
    const values = [...new Set(rows.map(of))];
    if (values.length < 2) continue;
    const select = document.createElement("select");
    select.ariaLabel = name;
    select.add(new Option(`every ${name}`, ""));
    for (const value of values) select.add(new Option(value, value));
    select.onchange = () => { chosen[name] = select.value; apply(); };
    bar.append(select);
  }
  const search = document.createElement("input");
  Object.assign(search, { type: "search", placeholder: "Filter claims", ariaLabel: "Filter claims" });
  search.oninput = () => apply();
  const count = document.createElement("span");
  count.ariaLive = "polite";
  const folds = tables.map((table) => table.closest("details")).filter(Boolean);
  // A screen a paper: what is not its main claim is folded, unless a filter asks for it.
  const apply = () => {
    let shown = 0;
    for (const row of rows) {
      const fits = Object.entries(facets).every(([name, of]) => !chosen[name] || of(row) === chosen[name]);
      row.hidden = !(fits && row.textContent.toLowerCase().includes(search.value.toLowerCase()));
      shown += !row.hidden;
    }
    for (const table of tables) (table.closest("details") || table).hidden = [...table.tBodies[0].rows].every((row) => row.hidden);
    const filtered = search.value || Object.values(chosen).some(Boolean);
    for (const fold of folds) fold.open = Boolean(filtered);
    count.textContent = filtered ? `${shown} of ${rows.length} claims` : `${rows.length} claims`;
  };
  bar.append(search, count);
  (tables[0].closest(".cell") || tables[0]).before(bar);
  apply();
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = folds.filter((fold) => !fold.open);
    for (const fold of closed) fold.open = true;
  });
  addEventListener("afterprint", () => { for (const fold of closed) fold.open = false; });
});

// A box whose content is wider than the screen says so.
window.addEventListener("load", () => {
  const boxes = document.querySelectorAll(
    ".cell_output, .other-scale, .output_html, .pst-scrollable-table-container, math[display='block']");
  const mark = () => boxes.forEach((box) => {
    const more = box.clientWidth > 0 && box.scrollWidth > box.clientWidth + 1;
    box.classList.toggle("more-aside", more && box.tagName !== "math");
    if (more || box.tagName === "math") box.setAttribute("tabindex", "0"); // so that keys can scroll it
  });
  mark();
  window.addEventListener("resize", mark);
});

// An address may name something inside a fold.
const reveal = () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let fold = target?.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  target?.scrollIntoView();
};
window.addEventListener("load", reveal);
window.addEventListener("hashchange", reveal);

// The theme's folds of the menu have no name of their own.
document.addEventListener("DOMContentLoaded", () => {
  for (const fold of document.querySelectorAll("nav summary")) {
    if (!fold.textContent.trim()) fold.ariaLabel = `Pages under ${fold.closest("li")?.querySelector("a")?.textContent.trim()}`;
  }
});
