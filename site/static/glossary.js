// Explains the words of docs/glossary.md: their first place in a page's text, and every outcome, say what they mean.
function explain(meanings) {
  const vague = ["order", "size", "holds", "round", "scale", "Random", "comparison"]; // everyday words, too
  const words = Object.keys(meanings).filter((word) => word.length > 3 && !/,/.test(word));
  const plain = (word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const sought = words.filter((word) => !vague.includes(word)).sort((a, b) => b.length - a.length);
  const pattern = new RegExp(`\\b(${sought.map(plain).join("|")})\\b`, "i");
  const known = Object.fromEntries(words.map((word) => [word.toLowerCase(), meanings[word]]));
  const apart = "a, abbr, button, code, pre, script, select, style, svg, math, h1, h2, h3, h4, summary, .verdict, .bar, .choices";

  document.addEventListener("DOMContentLoaded", () => {
    for (const mark of document.querySelectorAll(".verdict, .bar-words span")) {
      const meaning = known[mark.textContent.trim().toLowerCase().replace(/^\d+ /, "")];
      if (meaning) mark.title = meaning;
    }
    const article = document.querySelector(".bd-article");
    if (!article || location.pathname.endsWith("/docs/glossary.html")) return;
    const texts = document.createTreeWalker(article, NodeFilter.SHOW_TEXT), nodes = [], done = new Set();
    while (texts.nextNode()) {
      if (texts.currentNode.parentElement.closest("p, li, td") && !texts.currentNode.parentElement.closest(apart)) {
        nodes.push(texts.currentNode);
      }
    }
    for (const node of nodes) {
      const found = pattern.exec(node.data), word = found && found[0].toLowerCase();
      if (!found || done.has(word)) continue;
      done.add(word);
      const place = node.splitText(found.index), about = document.createElement("abbr");
      place.splitText(found[0].length);
      Object.assign(about, { title: known[word], textContent: found[0], tabIndex: 0 });
      place.replaceWith(about);
    }
  });
}
