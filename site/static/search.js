// Full-text search: ranks the pages of search-index.js (workspace/pages/search.py) by the words of the query.
function searchIndex(pages) {
  const query = (new URLSearchParams(location.search).get("q") || "").trim().toLowerCase();
  const list = document.getElementById("search-results"), count = document.getElementById("search-count");
  document.querySelectorAll("input[name=q]").forEach((input) => { input.value = query; });
  if (!query) return;
  const wanted = query.split(/\s+/);
  const times = (text, word) => text.split(word).length - 1;

  // A page must have every word; a title counts most, then a heading, then the text.
  const score = (page) => {
    const title = page.title.toLowerCase(), headings = page.headings.map(([text]) => text.toLowerCase()).join("\n");
    const text = page.text.toLowerCase();
    let sum = 0;
    for (const word of wanted) {
      const found = 30 * (times(title, word) > 0) + 8 * Math.min(times(headings, word), 3) +
        10 * Math.min(times(text, word), 20) / (10 + Math.sqrt(text.length));
      if (!found) return 0;
      sum += found;
    }
    return sum + 25 * (wanted.length > 1 && (title + headings + text).includes(query));
  };

  const marked = (text) => {
    const out = document.createDocumentFragment();
    const pattern = new RegExp(`(${wanted.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|")})`, "gi");
    text.split(pattern).forEach((part, k) => {
      const piece = document.createElement(k % 2 ? "mark" : "span");
      piece.textContent = part;
      out.append(piece);
    });
    return out;
  };

  const excerpt = (page) => {
    const at = page.text.toLowerCase().indexOf(wanted.find((word) => page.text.toLowerCase().includes(word)) ?? "");
    const from = Math.max(0, at - 80);
    return (from ? "… " : "") + page.text.slice(from, at + 160) + (at + 160 < page.text.length ? " …" : "");
  };

  const ranked = pages.map((page) => [score(page), page]).filter(([points]) => points).sort((a, b) => b[0] - a[0]);
  count.textContent = ranked.length ? `${ranked.length} of ${pages.length} pages` : "No page has all of these words.";
  const link = (address, text) => Object.assign(document.createElement("a"), { href: address, textContent: text });
  for (const [, page] of ranked.slice(0, 40)) {
    const item = document.createElement("li"), about = document.createElement("p");
    item.append(link(page.url, page.title));
    const inside = page.headings.filter(([text]) => wanted.some((word) => text.toLowerCase().includes(word))).slice(0, 4);
    for (const [text, id] of inside) item.append(" · ", link(`${page.url}#${id}`, text));
    about.append(marked(excerpt(page)));
    item.append(about);
    list.append(item);
  }
}
