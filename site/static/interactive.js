// Interactive curves: each .interactive element names a script with the points of a figure (fedlib/pages/interactive.py).
// The picture before it stays for print and for browsers without scripts.
(() => {
  const narrow = 620; // pixels; below this width panels are stacked
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
  const smoothed = (values) => {
    const half = Math.max(1, Math.round(values.length / 30));
    return values.map((value, k) => {
      const near = values.slice(Math.max(0, k - half), k + half + 1).filter((one) => one !== null);
      return value === null || !near.length ? null : near.reduce((sum, one) => sum + one, 0) / near.length;
    });
  };

  function traces(data, state) {
    const out = [];
    data.panels.forEach((panel, k) => {
      const axes = { xaxis: `x${k + 1}`, yaxis: `y${k + 1}` };
      for (const band of panel.bands) {
        if (state.hidden.has(band.name) || state.seeds || state.smooth) continue;
        out.push({ ...axes, x: band.x, y: band.y, mode: "none", fill: "toself", fillcolor: fade(shade(band.color), 0.15),
          hoverinfo: "skip" });
      }
      for (const line of panel.lines) {
        if (state.hidden.has(line.name) || !line.x.length) continue;
        const [low, high] = panel.x.range;
        const x = line.across ? line.x.map((share) => low + share * (high - low)) : line.x;
        const color = shade(line.color), look = { color, dash: line.dash, width: line.width };
        const common = { ...axes, x, mode: x.length > 1 ? "lines" : "markers", name: line.name };
        const drawn = (y) => (state.smooth && y.length > 8 ? smoothed(y) : y);
        for (const y of state.seeds ? line.seeds : []) {
          out.push({ ...common, y: drawn(y), line: { ...look, width: 0.8 }, hoverinfo: "skip" });
        }
        out.push({ ...common, y: drawn(line.y), line: look, marker: { color, symbol: "x" }, hovertemplate: "%{y:.4~g}" });
      }
    });
    return out;
  }

  // The names of a panel's lines where they end, moved apart; few enough lines only.
  function labels(panel, k, box, state) {
    const lines = panel.lines.filter((line) => line.listed && line.x.length > 1 && !state.hidden.has(line.name));
    if (!box.direct || state.log || panel.y.type === "log" || lines.length > 8) return [];
    const [low, high] = panel.y.range;
    const ends = lines.map((line) => {
      let at = line.y.length - 1;
      while (at > 0 && line.y[at] === null) at--;
      return { line, at: (high - line.y[at]) / (high - low) * box.height };
    }).sort((a, b) => a.at - b.at);
    let last = -Infinity;
    for (const end of ends) { end.at = Math.max(end.at, last + 14); last = end.at; }
    const over = Math.max(0, last - box.height);
    return ends.map(({ line, at }) => ({
      text: line.name, font: { size: 11, color: shade(line.color) }, showarrow: false, xref: `x${k + 1} domain`,
      yref: `y${k + 1} domain`, x: 1, xanchor: "left", xshift: 4, y: 1 - (at - over) / box.height, yanchor: "middle",
    }));
  }

  function layout(data, width, ink, state) {
    const columns = width < narrow ? 1 : data.columns, rows = Math.ceil(data.panels.length / columns);
    const each = Math.min(columns === 1 ? 380 : 300, Math.max(230, width / columns * 0.75)), height = rows * each;
    const names = data.panels.flatMap((panel) => panel.lines.filter((line) => line.listed).map((line) => line.name.length));
    const room = width / columns >= 430 ? Math.min(160, 8 + 6.2 * Math.max(0, ...names)) : 0;
    const out = { height: height + 8, margin: { l: 8, r: 8, t: 4, b: 4 }, hovermode: "x unified", annotations: [],
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { size: 12, color: ink }, showlegend: false,
      hoverlabel: { bgcolor: getComputedStyle(document.body).backgroundColor } };
    data.panels.forEach((panel, k) => {
      const column = k % columns, row = Math.floor(k / columns);
      const left = column / columns + 52 / width, right = (column + 1) / columns - (8 + room) / width;
      const top = 1 - row / rows, bottom = top - 1 / rows + 46 / height;
      const range = (axis) => (axis.type === "log" ? axis.range.map(Math.log10) : axis.range);
      const common = { showline: true, linecolor: ink, gridcolor: "rgba(128,128,128,0.2)", zeroline: false };
      out[`xaxis${k + 1}`] = { ...common, domain: [left, right], anchor: `y${k + 1}`, type: panel.x.type,
        range: range(panel.x), title: { text: panel.x.title, standoff: 4 } };
      out[`yaxis${k + 1}`] = { ...common, domain: [bottom, top - 24 / height], anchor: `x${k + 1}`, type: panel.y.type,
        range: range(panel.y), title: { text: panel.y.title, standoff: 4 } };
      if (state.log) Object.assign(out[`yaxis${k + 1}`], { type: "log", range: undefined, autorange: true });
      out.annotations.push({ text: panel.title, showarrow: false, xref: "paper", yref: "paper", xanchor: "center",
        x: (left + right) / 2, y: top - 4 / height, yanchor: "top", font: { size: 13 } },
      ...labels(panel, k, { height: each - 70, direct: room > 0 }, state));
    });
    return out;
  }

  function draw(box, data) {
    const plot = document.createElement("div"), tools = document.createElement("div");
    const listed = new Map(data.panels.flatMap((panel) => panel.lines.filter((line) => line.listed)
      .map((line) => [line.name, line])));
    const state = { seeds: false, log: false, smooth: false, hidden: new Set() };
    tools.className = "interactive-tools";
    const show = () => {
      if (!box.clientWidth) return; // folded or replaced; without a width Plotly computes NaN
      const ink = getComputedStyle(document.body).color;
      tools.querySelectorAll("i").forEach((swatch) => { swatch.style.borderColor = shade(swatch.dataset.color); });
      window.Plotly.react(plot, traces(data, state), layout(data, box.clientWidth, ink, state),
        { displaylogo: false, displayModeBar: false, responsive: true });
    };
    // The legend stands above the panels and stays in view; a click hides a line.
    for (const [name, line] of listed.size > 1 ? listed : []) {
      const made = document.createElement("button"), swatch = document.createElement("i");
      made.type = "button";
      made.ariaPressed = "true";
      swatch.dataset.color = line.color;
      swatch.style.borderTopStyle = line.dash === "solid" ? "solid" : line.dash === "dot" ? "dotted" : "dashed";
      made.append(swatch, name);
      made.onclick = () => {
        state.hidden.has(name) ? state.hidden.delete(name) : state.hidden.add(name);
        made.ariaPressed = String(!state.hidden.has(name));
        show();
      };
      tools.append(made);
    }
    const button = (text, other, key) => {
      const made = document.createElement("button");
      made.type = "button";
      made.className = "switch";
      made.textContent = text;
      made.onclick = () => { state[key] = !state[key]; made.textContent = state[key] ? other : text; show(); };
      tools.append(made);
    };
    const lines = data.panels.flatMap((panel) => panel.lines);
    if (lines.some((line) => line.seeds.length)) button("Show seeds", "Show bands", "seeds");
    if (lines.some((line) => line.x.length > 60)) button("Smooth", "As measured", "smooth");
    button("Logarithmic axis", "Linear axis", "log");
    const picture = box.closest("section")?.querySelector(`[data-picture="${box.dataset.figure}"]`);
    if (box.dataset.figure) (picture || box.previousElementSibling)?.classList.add("interactive-replaced");
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
