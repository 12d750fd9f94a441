// Full-text search: ranks the pages of search-index.js (workspace/pages/published.py) by the words of the query.
function searchIndex(pages) {
  // Words of the field for the same thing: a query with one of them finds pages with any of them.
  const SAME = [
    ["pow-d", "power-of-choice", "power of choice", "powd", "poc"],
    ["non-iid", "noniid", "non iid", "label skew", "heterogeneity", "heterogeneous", "dirichlet"],
    ["straggler", "too late", "deadline", "slow clients", "speed"],
    ["client selection", "participant selection", "client sampling", "sampler"],
    ["availability", "dropout", "come and go", "offline"],
    ["communication", "megabytes", "bytes"],
    ["md sampling", "multinomial"],
    ["random selection", "uniform sampling"],
    ["fairness", "worst clients", "accuracy on their own"],
    ["reading", "interpretation"],
    ["learning rate", "lr"],
    ["privacy", "what a sampler sees"],
  ];
  const KINDS = { logs: "logs", docs: "docs", world: "worlds", theory: "theory" };
  const kindOf = (page) => KINDS[page.url.split("/")[0]] ?? (page.url.includes("/") ? "papers" : "results");

  const query = (new URLSearchParams(location.search).get("q") || "").trim().toLowerCase();
  const list = document.getElementById("search-results"), count = document.getElementById("search-count");
  document.querySelectorAll("input[name=q]").forEach((input) => { input.value = query; });
  if (!query) return;

  // The query as terms, all of which a page must have; each is a list of words for the same, the query's own first.
  const terms = [];
  let rest = ` ${query} `;
  for (const words of SAME) {
    const found = words.filter((word) => rest.includes(` ${word} `)).sort((a, b) => b.length - a.length)[0];
    if (!found) continue;
    rest = rest.replace(` ${found} `, " ");
    terms.push([found, ...words.filter((word) => word !== found)]);
  }
  for (const word of rest.split(/\s+/).filter(Boolean)) terms.push([word]);
  const wanted = terms.flat();

  // A word counts where one begins with it: "heterog" finds heterogeneity, "lr" does not find "already".
  const escaped = (word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const begins = Object.fromEntries(wanted.map((word) => [word, new RegExp(`(?<![\\p{L}\\p{N}])${escaped(word)}`, "giu")]));
  const times = (text, word) => (text.match(begins[word]) || []).length;

  // A title counts most, then a heading, then the text; another word for the same counts half.
  const score = (page) => {
    const headings = page.headings.map(([text]) => text).join("\n");
    let sum = 0;
    for (const words of terms) {
      const found = Math.max(...words.map((word, k) => (k ? 0.5 : 1) * (
        30 * (times(page.title, word) > 0) + 8 * Math.min(times(headings, word), 3) +
        10 * Math.min(times(page.text, word), 20) / (10 + Math.sqrt(page.text.length)))));
      if (!found) return 0;
      sum += found;
    }
    return sum + 25 * (terms.length > 1 && `${page.title}\n${headings}\n${page.text}`.toLowerCase().includes(query));
  };

  const marked = (text) => {
    const out = document.createDocumentFragment();
    const pattern = new RegExp(`(${wanted.map(escaped).join("|")})`, "gi");
    text.split(pattern).forEach((part, k) => {
      const piece = document.createElement(k % 2 ? "mark" : "span");
      piece.textContent = part;
      out.append(piece);
    });
    return out;
  };

  const excerpt = (page) => {
    const at = Math.max(0, ...wanted.slice(0, 1).map((word) => page.text.search(begins[word])),
      ...(times(page.text, wanted[0]) ? [] : wanted.map((word) => page.text.search(begins[word]))));
    const from = Math.max(0, at - 80);
    return (from ? "… " : "") + page.text.slice(from, at + 160) + (at + 160 < page.text.length ? " …" : "");
  };

  const link = (address, text) => Object.assign(document.createElement("a"), { href: address, textContent: text });
  const last = (page) => Number(kindOf(page) === "logs");
  const ranked = pages.map((page) => [score(page), page]).filter(([points]) => points)
    .sort((a, b) => last(a[1]) - last(b[1]) || b[0] - a[0]).map(([, page]) => page);

  const show = (kind) => {
    const some = ranked.filter((page) => !kind || kindOf(page) === kind);
    count.textContent = ranked.length ? `${some.length} of ${pages.length} pages` : "No page has all of these words.";
    list.replaceChildren(...some.slice(0, 40).map((page) => {
      const item = document.createElement("li"), about = document.createElement("p");
      item.append(link(page.url, page.title));
      const inside = page.headings.filter(([text]) => wanted.some((word) => times(text, word))).slice(0, 4);
      for (const [text, id] of inside) item.append(" · ", link(`${page.url}#${id}`, text));
      about.append(marked(excerpt(page)));
      item.append(about);
      return item;
    }));
    for (const button of bar.children) button.setAttribute("aria-pressed", String(button.value === kind));
  };

  const bar = document.createElement("p");
  bar.id = "search-kinds";
  const kinds = [...new Set(ranked.map(kindOf))];
  for (const kind of kinds.length > 1 ? ["", ...kinds] : []) {
    const n = ranked.filter((page) => !kind || kindOf(page) === kind).length;
    const button = Object.assign(document.createElement("button"), { value: kind, textContent: `${kind || "all"} (${n})` });
    button.onclick = () => show(kind);
    bar.append(button, " ");
  }
  count.after(bar);
  show("");
}
