// The chooser: filters the arena's settings, compares every sampler with Random on paired seeds, and ranks them.
// Data: chooser-data.js (workspace/pages/chooser.py). The address keeps the choice.
(() => {
  const MOST = 8; // lines of the figure
  const COSTS = { round: "rounds", megabytes: "bytes", client_steps: "client steps", server_seconds: "server time" };
  const AXES = { round: "round", megabytes: "sent and received so far (MB)", client_steps: "client steps so far",
    server_seconds: "sampler's own time so far (s)" };
  const SHARES = [0.1, 0.25, 0.5, 1], SECONDS = [0.1, 1, 10, 100];
  const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255"];
  // Student's t, 97.5 %, by degrees of freedom.
  const T = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131,
    2.12, 2.11, 2.101, 2.093, 2.086, 2.08, 2.074, 2.069, 2.064, 2.06, 2.056, 2.052, 2.048, 2.045, 2.042];

  const mean = (values) => values.reduce((sum, one) => sum + one, 0) / values.length;
  const unique = (values) => [...new Set(values)];

  // What a run reaches for a budget: the mean accuracy over the last tenth of it; null if it affords no checkpoint.
  function reached(run, cost, budget) {
    let sum = 0, n = 0;
    run.at[cost].forEach((spent, k) => {
      if (spent <= budget * (1 + 1e-9) && spent > 0.9 * budget) { sum += run.accuracy[k]; n++; }
    });
    if (n) return sum / n;
    const last = run.at[cost].findLastIndex((spent) => spent <= budget * (1 + 1e-9));
    return last < 0 ? null : run.accuracy[last];
  }

  // Points of accuracy above Random: the mean over settings of the mean over paired seeds, with a 95 % interval.
  function compare(data, method, settings, cost, amount) {
    const parts = [];
    for (const s of settings) {
      const of = (m) => new Map(data.runs.filter((run) => run.s === s && run.m === m).map((run) => [run.seed, run]));
      const mine = of(method), base = of(data.random), gains = [];
      for (const [seed, run] of mine) {
        const other = base.get(seed);
        if (!other) continue;
        const budget = cost === "server_seconds" ? amount : amount * other.at[cost].at(-1);
        const [ours, theirs] = [reached(run, cost, budget), reached(other, cost, budget)];
        if (ours !== null && theirs !== null) gains.push(ours - theirs);
      }
      if (gains.length) parts.push(gains);
    }
    if (!parts.length) return null;
    const n = Math.min(...parts.map((gains) => gains.length)), most = Math.max(...parts.map((gains) => gains.length));
    const gain = mean(parts.map(mean)), about = { method, gain, settings: parts.length, n, most };
    const several = parts.filter((gains) => gains.length > 1);
    if (!several.length) return { ...about, low: null, high: null };
    const squares = (gains) => { const middle = mean(gains); return gains.reduce((sum, one) => sum + (one - middle) ** 2, 0); };
    const degrees = several.reduce((sum, gains) => sum + gains.length - 1, 0);
    const common = several.reduce((sum, gains) => sum + squares(gains), 0) / degrees;
    // A setting with one seed takes the spread of the others.
    const terms = parts.map((gains) => (gains.length > 1 ? [squares(gains) / (gains.length - 1) / gains.length, gains.length - 1] :
      [common, degrees]));
    const variance = terms.reduce((sum, [v]) => sum + v, 0);
    const freedom = variance ? variance ** 2 / terms.reduce((sum, [v, df]) => sum + v * v / df, 0) : 30;
    const half = T[Math.min(30, Math.max(1, Math.floor(freedom))) - 1] * Math.sqrt(variance) / parts.length;
    return { ...about, low: gain - half, high: gain + half };
  }

  const points = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(1)}`;

  function start(data) {
    const box = document.getElementById("chooser");
    data.random = data.methods.findIndex((method) => method.name === "Random");
    const facets = {
      labels: ["Clients hold", unique(data.settings.map((one) => one.labels))],
      sizes: ["Clients are", unique(data.settings.map((one) => one.sizes))],
      share: ["A round trains", unique(data.settings.map((one) => one.share))],
      data: ["Data", unique(data.settings.map((one) => one.data))],
    };
    const state = { asks: "2", cost: "round", amount: "1", more: "" };
    for (const [key, value] of new URLSearchParams(location.hash.slice(1))) state[key] = value;

    const form = document.createElement("form"), out = document.createElement("div"), figure = document.createElement("div");
    form.className = "choices";
    const select = (key, label, options) => {
      const made = document.createElement("select"), about = document.createElement("label");
      for (const [value, text] of options) made.add(new Option(text, value));
      made.name = key;
      made.value = state[key] ?? "";
      made.onchange = () => { state[key] = made.value; if (key === "cost") amounts(); show(); };
      about.append(label + " ", made);
      form.append(about);
      return made;
    };
    for (const [key, [label, values]] of Object.entries(facets)) {
      select(key, label, [["", "any"], ...values.map((value) => [value, value])]);
    }
    select("asks", "The server may ask clients for", data.asks.map((text, k) => [String(k), text]));
    select("cost", "The budget counts", Object.entries(COSTS));
    const amount = select("amount", "Budget", []);
    const amounts = () => {
      const seconds = state.cost === "server_seconds", values = seconds ? SECONDS : SHARES;
      amount.replaceChildren(...values.map((value) =>
        new Option(seconds ? `${value} s a run` : `${100 * value} % of what Random spends`, value)));
      if (!values.map(String).includes(state.amount)) state.amount = String(values.at(-1));
      amount.value = state.amount;
    };
    amounts();
    form.onsubmit = (event) => event.preventDefault();
    box.replaceChildren(form, out, figure);

    const element = (tag, text, className) => Object.assign(document.createElement(tag), { textContent: text, className: className || "" });

    function show() {
      history.replaceState(null, "", "#" + new URLSearchParams(Object.entries(state).filter(([, value]) => value !== "")));
      const settings = data.settings.map((one, k) => [one, k])
        .filter(([one]) => Object.keys(facets).every((key) => !state[key] || one[key] === state[key])).map(([, k]) => k);
      out.replaceChildren();
      figure.replaceChildren();
      if (!settings.length) { out.append(element("p", "No setting of the arena is like this. Allow more.")); return; }
      const compared = data.methods.map((method, m) => ({ ...method, ...(m === data.random ? {} :
        compare(data, m, settings, state.cost, Number(state.amount))), m })).filter((one) => one.gain !== undefined);
      const whole = Math.max(...compared.map((one) => one.settings));
      const allowed = compared.filter((one) => !one.control && one.asks <= Number(state.asks));
      const ranked = allowed.filter((one) => one.settings === whole).sort((a, b) => b.gain - a.gain);
      const fewer = allowed.filter((one) => one.settings < whole).sort((a, b) => b.settings - a.settings || b.gain - a.gain);
      const controls = compared.filter((one) => one.control);
      said(ranked, controls, settings, whole);
      table([...ranked.map((one, k) => [k + 1, one]), ...fewer.map((one) => ["", one]), ...controls.map((one) => ["control", one])]);
      curves(ranked.length ? ranked : fewer, controls, settings);
    }

    const apart = (one) => one.low !== null && (one.low > 0 || one.high < 0);
    const verdict = (one) => one.low === null ? "one seed" : apart(one) ? (one.gain > 0 ? "above Random" : "below Random") :
      "not distinguishable from Random";

    function said(ranked, controls, settings, whole) {
      const better = ranked.filter((one) => apart(one) && one.gain > 0);
      const where = `${whole} setting${whole > 1 ? "s" : ""} of the arena`;
      let text = better.length ? `${better.length} of ${ranked.length} samplers end above Random in ${where}; the first is ` +
        `${better[0].name}: ${points(better[0].gain)} points of accuracy (${points(better[0].low)} to ${points(better[0].high)}).` :
        `In ${where}, no sampler that may be used here is distinguishable from Random and above it. Random is the simplest choice.`;
      if (better.length > 1 && better[1].high > better[0].low) text += ` Its interval overlaps that of ${better[1].name}.`;
      out.append(element("p", text, "chooser-said"));
      const oracle = controls.find((one) => one.name === "Oracle");
      if (oracle) {
        const beaten = oracle.gain < 0 ? "ends below Random" : ranked.some((one) => one.gain > oracle.gain) ?
          "is not the best here" : "";
        if (beaten) out.append(element("p", `The oracle, which draws as HiCS-FL does but knows every client's labels, ${beaten}: ` +
          `${points(oracle.gain)} points. Knowing the labels is not the same as drawing well.`));
      }
    }

    function table(rows) {
      const made = element("table", "", "dataframe ranking"), head = made.createTHead().insertRow(), body = made.createTBody();
      const columns = ["", "sampler", "points above Random", "95 % interval", "against Random", "settings, seeds", "asks clients for"];
      for (const name of columns) head.append(element("th", name));
      for (const [rank, one] of rows) {
        const row = body.insertRow();
        const seeds = one.n === one.most ? one.n : `${one.n} to ${one.most}`;
        const cells = [rank, one.name, points(one.gain), one.low === null ? "one seed" : `${points(one.low)} to ${points(one.high)}`,
          verdict(one), `${one.settings}, ${seeds}`, data.asks[one.asks]];
        row.dataset.method = one.name;
        row.dataset.gain = one.gain;
        cells.forEach((text, k) => { const cell = row.insertCell(); cell.textContent = text; cell.dataset.label = columns[k]; });
        if (rank === "control") row.className = "control";
      }
      out.append(made);
      out.append(element("p", "Difference of accuracy when the budget is spent (mean over its last tenth), to Random with the same " +
        "seed, partition, initial model and batches; mean over settings. The interval is Student's over paired seeds, with each " +
        "setting's own spread (with one seed: that of the others). At 95 %, one sampler in forty seems better than Random by chance.", "note"));
    }

    function curves(ranked, controls, settings) {
      const pick = document.createElement("select"), box = document.createElement("div"), label = document.createElement("label");
      pick.ariaLabel = "setting of the figure";
      for (const s of settings) pick.add(new Option(data.settings[s].name, s));
      label.append("Curves in ", pick);
      const more = element("button", "");
      more.type = "button";
      let all = false;
      const drawn = () => {
        const s = Number(pick.value), there = new Set(data.runs.filter((run) => run.s === s).map((run) => run.m));
        const some = [...ranked, ...controls].filter((one) => there.has(one.m));
        const random = there.has(data.random) ? [{ m: data.random, name: "Random", control: true }] : [];
        const chosen = [...random, ...(all ? some : some.slice(0, MOST - 1))];
        more.hidden = some.length < MOST;
        more.textContent = all ? `Show ${MOST} lines` : `Show all ${some.length + 1}`;
        const limit = state.cost === "server_seconds" ? Number(state.amount) : null;
        const lines = chosen.map((one, k) => {
          const runs = data.runs.filter((run) => run.s === s && run.m === one.m);
          const n = Math.min(...runs.map((run) => run.accuracy.length));
          const at = (of) => Array.from({ length: n }, (_, k) => mean(runs.map((run) => of(run)[k])));
          return { name: one.name, listed: true, color: one.m === data.random ? "#7f7f7f" : COLOURS[(k - 1) % COLOURS.length],
            dash: one.control ? "dash" : "solid", width: 1.6, across: false, x: at((run) => run.at[state.cost]),
            y: at((run) => run.accuracy), seeds: [] };
        });
        const base = lines[0].x.at(-1);
        const end = limit ?? base * Number(state.amount), ys = lines.flatMap((line) => line.y);
        const panel = { title: data.settings[s].name, lines, bands: [],
          x: { title: AXES[state.cost], range: [0, end], type: "linear" },
          y: { title: "test accuracy (%)", range: [Math.min(...ys) - 1, Math.max(...ys) + 1], type: "linear" } };
        // Lines end where the budget does.
        for (const line of lines) {
          const n = line.x.findLastIndex((x) => x <= end * (1 + 1e-9)) + 1;
          line.x = line.x.slice(0, n);
          line.y = line.y.slice(0, n);
        }
        box.replaceChildren();
        window.drawCurves(box, { columns: 1, panels: [panel] });
      };
      pick.onchange = drawn;
      more.onclick = () => { all = !all; drawn(); };
      figure.append(label, more, box);
      drawn();
    }
    show();
    addEventListener("hashchange", () => {
      const wanted = new URLSearchParams(location.hash.slice(1));
      for (const control of form.elements) if (control.name) {
        state[control.name] = wanted.get(control.name) ?? state[control.name];
        control.value = state[control.name] ?? "";
      }
      show();
    });
  }
  window.chooserData = (data) => document.addEventListener("DOMContentLoaded", () => start(data));
})();
