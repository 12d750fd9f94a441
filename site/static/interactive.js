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

  function traces(data) {
    const out = [], named = new Set();
    data.panels.forEach((panel, k) => {
      const axes = { xaxis: `x${k + 1}`, yaxis: `y${k + 1}` };
      for (const band of panel.bands) {
        out.push({ ...axes, x: band.x, y: band.y, mode: "none", fill: "toself", fillcolor: fade(shade(band.color), 0.15),
          legendgroup: band.name, showlegend: false, hoverinfo: "skip", kind: "band" });
      }
      for (const line of panel.lines) {
        const [low, high] = panel.x.range;
        const x = line.across ? line.x.map((share) => low + share * (high - low)) : line.x;
        const color = shade(line.color), look = { color, dash: line.dash, width: line.width };
        const common = { ...axes, x, mode: x.length > 1 ? "lines" : "markers", name: line.name, legendgroup: line.name };
        for (const y of line.seeds) {
          out.push({ ...common, y, line: { ...look, width: 0.8 }, showlegend: false, hoverinfo: "skip",
            visible: false, kind: "seed" });
        }
        out.push({ ...common, ...(x.length ? {} : { x: [null], mode: "lines" }), y: x.length ? line.y : [null], line: look, marker: { color, symbol: "x" }, kind: "line",
          showlegend: line.listed && !named.has(line.name), hovertemplate: "%{y:.4~g}" });
        if (line.listed) named.add(line.name);
      }
    });
    return out;
  }

  function layout(data, width, ink) {
    const columns = width < narrow ? 1 : data.columns, rows = Math.ceil(data.panels.length / columns);
    const height = rows * Math.min(300, Math.max(230, width / columns * 0.75));
    const out = { height: height + 44, margin: { l: 8, r: 8, t: 4, b: 40 }, hovermode: "x unified", annotations: [],
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { size: 12, color: ink },
      legend: { orientation: "h", y: -2 / height, yanchor: "top" } };
    data.panels.forEach((panel, k) => {
      const column = k % columns, row = Math.floor(k / columns);
      const left = column / columns + 52 / width, right = (column + 1) / columns - 8 / width;
      const top = 1 - row / rows, bottom = top - 1 / rows + 46 / height;
      const range = (axis) => (axis.type === "log" ? axis.range.map(Math.log10) : axis.range);
      const common = { showline: true, linecolor: ink, gridcolor: "rgba(128,128,128,0.2)", zeroline: false };
      out[`xaxis${k + 1}`] = { ...common, domain: [left, right], anchor: `y${k + 1}`, type: panel.x.type,
        range: range(panel.x), title: { text: panel.x.title, standoff: 4 } };
      out[`yaxis${k + 1}`] = { ...common, domain: [bottom, top - 24 / height], anchor: `x${k + 1}`, type: panel.y.type,
        range: range(panel.y), title: { text: panel.y.title, standoff: 4 } };
      out.annotations.push({ text: panel.title, showarrow: false, xref: "paper", yref: "paper", xanchor: "center",
        x: (left + right) / 2, y: top - 4 / height, yanchor: "top", font: { size: 13 } });
    });
    return out;
  }

  function draw(box, data) {
    const plot = document.createElement("div"), tools = document.createElement("div");
    const seeds = traces(data).some((one) => one.kind === "seed");
    const state = { seeds: false, log: false };
    tools.className = "interactive-tools";
    const show = () => {
      const ink = getComputedStyle(document.body).color, points = traces(data);
      for (const one of points) {
        if (one.kind === "seed") one.visible = state.seeds;
        if (one.kind === "band") one.visible = !state.seeds;
      }
      const made = layout(data, box.clientWidth, ink);
      if (state.log) {
        for (const key of Object.keys(made).filter((name) => name.startsWith("yaxis"))) {
          made[key] = { ...made[key], type: "log", range: undefined, autorange: true };
        }
      }
      window.Plotly.react(plot, points, made, { displaylogo: false, displayModeBar: false, responsive: true });
    };
    const button = (text, other, key) => {
      const made = document.createElement("button");
      made.type = "button";
      made.textContent = text;
      made.onclick = () => { state[key] = !state[key]; made.textContent = state[key] ? other : text; show(); };
      tools.append(made);
    };
    if (seeds) button("Show seeds", "Show bands", "seeds");
    button("Logarithmic axis", "Linear axis", "log");
    const picture = box.closest("section")?.querySelector(`[data-picture="${box.dataset.figure}"]`);
    (picture || box.previousElementSibling)?.classList.add("interactive-replaced");
    box.append(tools, plot);
    show();
    new MutationObserver(show).observe(document.documentElement, { attributeFilter: ["data-theme"] });
    let width = box.clientWidth;
    new ResizeObserver(() => { if (Math.abs(box.clientWidth - width) > 8) { width = box.clientWidth; show(); } }).observe(box);
  }

  async function start() {
    const boxes = [...document.querySelectorAll(".interactive")];
    if (!boxes.length) return;
    try {
      await load("plotly.min.js");
      for (const box of boxes) {
        await load(`figures/${box.dataset.figure}.js`);
        draw(box, figures[box.dataset.figure]);
      }
    } catch { /* the pictures are still shown */ }
  }
  document.addEventListener("DOMContentLoaded", start);
})();
