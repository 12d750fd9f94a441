// Interactive curves: each .interactive element names a script with the points of a figure (workspace/pages/interactive.py).
// The picture before it stays for print and for browsers without scripts.
(() => {
  const NARROW = 620; // pixels; below this width panels are stacked
  const LEAST = 272; // pixels that a panel and its axis need beside the names
  const GLYPHS = { "line-ew-open": "–", "diamond-open": "◇", x: "×" };
  const MOST = 10; // lines with their names at their ends
  const root = document.documentElement.dataset.content_root || "./";
  const figures = {};
  window.figureData = (name, data) => { figures[name] = data; };

  const load = (src) => new Promise((done, failed) => {
    const script = document.createElement("script");
    Object.assign(script, { src: root + "_static/" + src, onload: done, onerror: failed });
    document.head.append(script);
  });

  const fade = (hex, opacity) => {
    const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
    return `rgba(${r},${g},${b},${opacity})`;
  };

  // On a dark page dark colours are mixed with white.
  const shade = (hex) => {
    const parts = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
    const light = 0.299 * parts[0] + 0.587 * parts[1] + 0.114 * parts[2];
    if (document.documentElement.dataset.theme !== "dark" || light >= 120) return hex;
    const mix = (part) => Math.round(part + (255 - part) * (150 - light) / (255 - light));
    return "#" + parts.map((part) => mix(part).toString(16).padStart(2, "0")).join("");
  };

  // A running mean over a thirtieth of the points on each side.
  const reach = (n) => Math.max(1, Math.round(n / 30));
  const smoothed = (values, half = reach(values.length)) => values.map((value, k) => {
    const near = values.slice(Math.max(0, k - half), k + half + 1).filter((one) => one !== null);
    return value === null || !near.length ? null : near.reduce((sum, one) => sum + one, 0) / near.length;
  });

  // The two sides of a band, each smoothed.
  const smoothedBand = (band) => {
    const turn = band.x.lastIndexOf(Math.max(...band.x)), half = reach(band.x.length / 2);
    return [...smoothed(band.y.slice(0, turn), half), ...smoothed(band.y.slice(turn), half)];
  };

  // Curves are noisy if a step from one point to the next is typically over a fiftieth of the panel's height.
  const noisy = (data) => data.panels.some((panel) => panel.lines.some((line) => {
    if (line.mode === "markers" || line.x.length <= 60) return false;
    const steps = line.y.slice(1).map((value, k) => Math.abs(value - line.y[k])).sort((a, b) => a - b);
    return steps[steps.length >> 1] > 0.02 * Math.abs(panel.y.range[1] - panel.y.range[0]);
  }));

  // A button hides its line; one of a kind of lines hides them all: "Random, printed" and "printed (table)".
  const kind = (name) => name.includes("authors' program") ? "authors" : /\bprinted\b/.test(name) ? "printed" : name;
  const gone = (name, state) => [...state.hidden].some((hidden) => kind(hidden) === kind(name));

  function traces(data, state) {
    const out = [];
    data.panels.forEach((panel, k) => {
      const axes = { xaxis: `x${k + 1}`, yaxis: `y${k + 1}` };
      for (const band of panel.bands) {
        if (gone(band.name, state) || state.seeds) continue;
        out.push({ ...axes, x: band.x, y: state.smooth && band.x.length > 60 ? smoothedBand(band) : band.y, mode: "none",
          fill: "toself", fillcolor: fade(shade(band.color), 0.15), hoverinfo: "skip" });
      }
      for (const line of panel.lines) {
        if (gone(line.name, state) || !line.x.length) continue;
        const [low, high] = panel.x.range;
        const x = line.across ? line.x.map((share) => low + share * (high - low)) : line.x;
        const color = shade(line.color), look = { color, dash: line.dash, width: line.width };
        const points = line.mode === "markers" || x.length < 2, wide = line.symbol?.startsWith("line");
        const marker = { color, symbol: line.symbol || "x", size: wide || line.symbol?.endsWith("open") ? 9 : 7,
          line: { color, width: line.symbol?.endsWith("open") ? 2 : 0 } };
        const common = { ...axes, x, mode: points ? "markers" : "lines", name: line.name };
        const drawn = (y) => (state.smooth && !points && y.length > 60 ? smoothed(y) : y);
        for (const y of state.seeds ? line.seeds : []) {
          out.push({ ...common, y: drawn(y), line: { ...look, width: 0.8 }, hoverinfo: "skip" });
        }
        out.push({ ...common, y: drawn(line.y), line: look, marker, hovertemplate: "%{y:.4~g}" });
      }
    });
    return out;
  }

  // The ends of a panel's vertical axis, and whether it is logarithmic.
  function vertical(panel, state) {
    if (!state.log || panel.y.type === "log") return { range: panel.y.range, log: panel.y.type === "log" };
    const values = panel.lines.filter((line) => !gone(line.name, state)).flatMap((line) => line.y).filter((y) => y > 0);
    return values.length ? { range: [Math.min(...values) / 1.05, Math.max(...values) * 1.05], log: true } :
      { range: panel.y.range, log: false };
  }

  const named = (panel) => panel.lines.filter((line) => line.listed && line.mode !== "markers" && line.x.length > 1);

  // The names of a panel's lines where they end, moved apart; few enough lines only.
  function labels(panel, k, height, state) {
    const lines = named(panel).filter((line) => !gone(line.name, state));
    if (lines.length > MOST) return [];
    const { range, log } = vertical(panel, state), place = log ? Math.log : (y) => y;
    const [low, high] = range.map(place);
    const ends = lines.map((line) => {
      const y = state.smooth && line.y.length > 60 ? smoothed(line.y) : line.y;
      const last = y.findLast((one) => one !== null && (!log || one > 0)) ?? range[0];
      return { line, at: Math.min(height, Math.max(0, (high - place(last)) / (high - low) * height)) };
    }).sort((a, b) => a.at - b.at);
    const gap = Math.min(14, height / Math.max(1, ends.length));
    let last = -Infinity;
    for (const end of ends) { end.at = Math.max(end.at, last + gap); last = end.at; }
    let bottom = height + gap / 2;
    for (const end of ends.toReversed()) { end.at = Math.min(end.at, bottom); bottom = end.at - gap; }
    return ends.map(({ line, at }) => ({
      text: line.name, font: { size: 11, color: shade(line.color) }, showarrow: false, xref: `x${k + 1} domain`,
      yref: `y${k + 1} domain`, x: 1, xanchor: "left", xshift: 4, y: 1 - at / height, yanchor: "middle",
    }));
  }

  function layout(data, width, ink, state) {
    // As many columns as leave room for the names at the ends of the lines.
    const few = data.panels.every((panel) => named(panel).length <= MOST);
    const longest = Math.max(0, ...data.panels.flatMap((panel) => named(panel).map((line) => line.name.length)));
    const names = Math.min(215, 10 + 6.4 * longest);
    const room = few && longest && width - names > LEAST ? names : 0; // else the buttons have the names
    const columns = width < NARROW ? 1 : Math.max(1, Math.min(data.columns, Math.floor(width / (LEAST + room))));
    const rows = Math.ceil(data.panels.length / columns);
    const each = Math.min(columns === 1 ? 380 : 300, Math.max(230, width / columns * 0.75)), height = rows * each;
    const out = { height: height + 8, margin: { l: 8, r: 8, t: 4, b: 4 }, hovermode: "x unified", annotations: [],
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { size: 12, color: ink }, showlegend: false,
      hoverlabel: { bgcolor: getComputedStyle(document.body).backgroundColor } };
    data.panels.forEach((panel, k) => {
      const column = k % columns, row = Math.floor(k / columns);
      const left = column / columns + 52 / width, right = (column + 1) / columns - (8 + room) / width;
      const top = 1 - row / rows, bottom = top - 1 / rows + 46 / height;
      const common = { showline: true, linecolor: ink, gridcolor: "rgba(128,128,128,0.2)", zeroline: false };
      const { range, log } = vertical(panel, state), across = panel.x.type === "log";
      out[`xaxis${k + 1}`] = { ...common, domain: [left, right], anchor: `y${k + 1}`, type: panel.x.type,
        range: across ? panel.x.range.map(Math.log10) : panel.x.range, title: { text: panel.x.title, standoff: 4 } };
      out[`yaxis${k + 1}`] = { ...common, domain: [bottom, top - 24 / height], anchor: `x${k + 1}`,
        type: log ? "log" : "linear", range: log ? range.map(Math.log10) : range,
        title: { text: panel.y.title, standoff: 4 } };
      out.annotations.push({ text: panel.title, showarrow: false, xref: "paper", yref: "paper", xanchor: "center",
        x: (left + right) / 2, y: top - 4 / height, yanchor: "top", font: { size: 13 } },
      ...(panel.notes ?? []).map(({ text, y }) => ({ text: `<i>${text}</i>`, showarrow: false, xref: `x${k + 1} domain`,
        yref: `y${k + 1} domain`, x: 0.98, xanchor: "right", y, yanchor: y < 0.5 ? "bottom" : "top", font: { size: 11 } })),
      ...(room ? labels(panel, k, each - 70, state) : []));
    });
    return out;
  }

  // Lines and bands of a file name their x by its number.
  function whole(data) {
    const own = (part) => ({ ...part, x: data.xs[part.x] });
    return data.xs ? { ...data, panels: data.panels.map((panel) =>
      ({ ...panel, lines: panel.lines.map(own), bands: panel.bands.map(own) })) } : data;
  }

  function draw(box, given) {
    const data = whole(given);
    const plot = document.createElement("div"), tools = document.createElement("div");
    const listed = new Map(data.panels.flatMap((panel) => panel.lines.filter((line) => line.listed)
      .map((line) => [line.name, line])));
    const state = { seeds: false, log: false, smooth: noisy(data), hidden: new Set() };
    tools.className = "interactive-tools";
    const show = () => {
      if (!box.clientWidth) return; // folded or replaced; without a width Plotly computes NaN
      const ink = getComputedStyle(document.body).color;
      tools.querySelectorAll("i").forEach((swatch) => { swatch.style.borderColor = swatch.style.color = shade(swatch.dataset.color); });
      window.Plotly.react(plot, traces(data, state), layout(data, box.clientWidth, ink, state),
        { displaylogo: false, displayModeBar: false, responsive: true });
    };
    // The legend stands above the panels and stays in view; a click hides a line.
    for (const [name, line] of listed.size > 1 ? listed : []) {
      const made = document.createElement("button"), swatch = document.createElement("i");
      made.type = "button";
      made.ariaPressed = "true";
      swatch.dataset.color = line.color;
      if (line.mode === "markers") {
        swatch.className = "glyph";
        swatch.textContent = GLYPHS[line.symbol] || "●";
      } else swatch.style.borderTopStyle = line.dash === "solid" ? "solid" : line.dash === "dot" ? "dotted" : "dashed";
      made.append(swatch, name);
      made.onclick = () => {
        state.hidden.has(name) ? state.hidden.delete(name) : state.hidden.add(name);
        made.ariaPressed = String(!state.hidden.has(name));
        show();
      };
      tools.append(made);
    }
    const switches = document.createElement("span");
    switches.className = "switches";
    const button = (text, other, key) => {
      const made = document.createElement("button");
      made.type = "button";
      made.className = "switch";
      made.textContent = state[key] ? other : text;
      made.onclick = () => { state[key] = !state[key]; made.textContent = state[key] ? other : text; show(); };
      switches.append(made);
    };
    const lines = data.panels.flatMap((panel) => panel.lines);
    if (lines.some((line) => line.seeds.length)) button("Show seeds", "Show bands", "seeds");
    const long = Math.max(...lines.map((line) => line.x.length));
    if (long > 60) button("Smooth", `Means of ${2 * reach(long) + 1} points: show raw`, "smooth");
    button("Logarithmic axis", "Linear axis", "log");
    const picture = box.closest("section")?.querySelector(`[data-picture="${box.dataset.figure}"]`);
    if (box.dataset.figure) (picture || box.previousElementSibling)?.classList.add("interactive-replaced");
    tools.append(switches);
    box.append(tools, plot);
    show();
    new MutationObserver(show).observe(document.documentElement, { attributeFilter: ["data-theme"] });
    let width = box.clientWidth;
    new ResizeObserver(() => { if (Math.abs(box.clientWidth - width) > 8) { width = box.clientWidth; show(); } }).observe(box);
  }

  // For other scripts: draws a figure's data in an element.
  let plotly;
  window.drawCurves = async (box, data) => {
    plotly ??= load("plotly.min.js");
    await plotly;
    draw(box, data);
  };

  async function start() {
    const boxes = [...document.querySelectorAll(".interactive")];
    if (!boxes.length) return;
    try {
      for (const box of boxes) {
        await load(`figures/${box.dataset.figure}.js`);
        await window.drawCurves(box, figures[box.dataset.figure]);
      }
    } catch { /* the pictures are still shown */ }
  }
  document.addEventListener("DOMContentLoaded", start);
})();
