// The chooser: filters the arena's settings and ranks the samplers by the house's rule (ranking.js).
// Data: chooser-data.js (pages/chooser.py). The address keeps the choice, and the back button returns to the one before.
(() => {
  const MOST = 8; // lines of the figure
  const COSTS = { round: "rounds", megabytes: "bytes", client_steps: "client steps", server_seconds: "server time" };
  const AXES = { round: "round", megabytes: "sent and received so far (MB)", client_steps: "client steps so far",
    server_seconds: "sampler's own time so far (s)" };
  const SHARES = [0.1, 0.25, 0.5, 1], SECONDS = [0.1, 1, 10, 100];
  const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255"];
  const { atBudget, ranking, answer, gain, points, interval, counted } = window.ranking;

  const mean = (values) => values.reduce((sum, one) => sum + one, 0) / values.length;
  const unique = (values) => [...new Set(values)];
  const element = (tag, text, className) => Object.assign(document.createElement(tag), { textContent: text, className: className || "" });

  function start(data) {
    const box = document.getElementById("chooser"), base = data.methods.findIndex((one) => one.name === "Random");
    const facets = {
      labels: ["Clients hold", unique(data.settings.map((one) => one.labels))],
      sizes: ["Clients are", unique(data.settings.map((one) => one.sizes))],
      share: ["A round trains", unique(data.settings.map((one) => one.share))],
      data: ["Data", unique(data.settings.map((one) => one.data))],
    };
    const usual = { asks: "2", cost: "round", amount: "1" };
    const form = document.createElement("form"), out = document.createElement("div"), figure = document.createElement("div");
    let state = {}, at = [];
    form.className = "choices";
    form.onsubmit = (event) => event.preventDefault();
    const select = (key, label, options) => {
      const made = document.createElement("select"), about = document.createElement("label");
      for (const [value, text] of options) made.add(new Option(text, value));
      made.name = key;
      made.onchange = () => {
        state[key] = made.value;
        if (key === "cost") amounts();
        history.pushState(null, "", "#" + new URLSearchParams(Object.entries(state).filter(([, value]) => value !== "")));
        show();
      };
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
    // What the address says; a value that no choice has counts as none.
    const read = () => {
      const wanted = new URLSearchParams(location.hash.slice(1));
      for (const control of form.elements) if (control.name && control !== amount) {
        const value = wanted.get(control.name) ?? "";
        state[control.name] = [...control.options].some((one) => one.value === value) ? value : usual[control.name] ?? "";
        if (!state[control.name] && usual[control.name]) state[control.name] = usual[control.name];
        control.value = state[control.name];
      }
      state.amount = wanted.get("amount") ?? usual.amount;
      amounts();
    };
    box.replaceChildren(form, out, figure);

    function show() {
      const settings = data.settings.map((one, k) => [one, k])
        .filter(([one]) => Object.keys(facets).every((key) => !state[key] || one[key] === state[key])).map(([, k]) => k);
      out.replaceChildren();
      figure.replaceChildren();
      if (!settings.length) { out.append(element("p", "No setting of the arena is like this. Allow more.", "chooser-said")); return; }
      at = atBudget(data, state.cost, Number(state.amount));
      const made = ranking(data, at, settings, (one) => one.asks <= Number(state.asks));
      const said = element("p", answer(made), "chooser-said");
      said.ariaLive = "polite";
      out.append(said);
      table(made, settings);
      curves(made.rows, settings);
    }

    const letter = (k) => String.fromCharCode(97 + k);

    // A row's gain in each setting: a coloured cell with its letter and number, or a hatched one where it has not run.
    function strip(one, settings) {
      const cell = element("span", "", "strip");
      settings.forEach((s) => {
        const here = gain(at, one.m, base, [s]), name = data.settings[s].name;
        const mark = element("i", here ? points(here.value) : "", here ? "" : "missing");
        mark.prepend(element("b", letter(settings.indexOf(s))));
        if (here) {
          mark.className = here.value >= 1 ? "up" : here.value <= -1 ? "down" : "";
          mark.style.setProperty("--much", `${Math.min(85, 20 + 4 * Math.abs(here.value))}%`);
        }
        mark.title = here ? `${name}: ${points(here.value)} points (${interval(here)}), ${counted(here.least, "seed")}` : `${name}: not run`;
        cell.append(mark);
      });
      return cell;
    }

    function table(made, settings) {
      const columns = ["", "sampler", "points above Random", "against Random", "in each setting", "what it asks of clients", "bytes", "steps"];
      const groups = [["", made.rows.filter((one) => one.rank)],
        ["Not ranked: not run in all of these settings", made.rows.filter((one) => one.kind === "sampler" && !one.rank)],
        ["References: they see more than a server may", made.rows.filter((one) => one.kind === "reference")],
        ["Other algorithms of the server, with random selection", made.rows.filter((one) => one.kind === "server")]];
      const shown = element("table", "", "dataframe ranking"), head = shown.createTHead().insertRow();
      for (const name of columns) head.append(element("th", name));
      for (const [title, rows] of groups) {
        if (!rows.length) continue;
        const body = shown.createTBody();
        if (title) {
          const cell = Object.assign(document.createElement("th"), { colSpan: columns.length, textContent: title, className: "group" });
          body.insertRow().append(cell);
        }
        for (const one of rows) {
          const row = body.insertRow(), name = document.createElement("span");
          row.dataset.method = one.name;
          row.dataset.gain = one.gain.value;
          const link = element(one.page ? "a" : "span", one.name);
          if (one.page) link.href = one.page;
          link.title = one.file;
          name.append(link, element("small", ` ${one.paper}`));
          const few = one.rank ? "" : `, ${one.gain.settings.length} of ${made.settings.length}`;
          const cells = [one.rank ?? "", name, `${points(one.gain.value)} (${interval(one.gain)}${few})`, one.verdict, strip(one, settings),
            data.asks[one.asks], `× ${one.bytes}`, `× ${one.steps}`];
          cells.forEach((content, k) => { const cell = row.insertCell(); cell.append(content); });
          if (one.kind !== "sampler") row.className = "control";
        }
      }
      out.append(shown);
      const outside = settings.filter((s) => !made.settings.includes(s));
      const key = element("p", "In each setting, points above Random (hatched: not run): ", "note");
      settings.forEach((s, k) => key.append(element("b", letter(k)), ` ${data.settings[s].name}${k + 1 < settings.length ? "; " : "."}`));
      shown.before(key);
      if (outside.length) {
        const few = outside.map((s) => letter(settings.indexOf(s))).join(", ");
        out.append(element("p", `Too few samplers ran in ${few}: what is there does not count for the ranks.`, "note"));
      }
      out.append(element("p", "Points of accuracy when the budget is spent (mean over its last tenth), to Random with the same seed, partition, " +
        "initial model and batches; mean over settings, with Student's 95 % interval over paired seeds (a setting with one seed takes the " +
        "others' spread). Less than a point is taken for no difference. At 95 %, one sampler in forty seems better than Random by chance. " +
        "Bytes and steps: how many times Random's a run needs.", "note"));
    }

    function curves(rows, settings) {
      const pick = document.createElement("select"), box = document.createElement("div"), label = document.createElement("label");
      pick.ariaLabel = "setting of the figure";
      for (const s of settings) pick.add(new Option(data.settings[s].name, s));
      label.append("Curves in ", pick);
      const more = element("button", "");
      more.type = "button";
      let all = false;
      const drawn = () => {
        const s = Number(pick.value), there = new Set(data.runs.filter((run) => run.s === s).map((run) => run.m));
        const some = rows.filter((one) => there.has(one.m));
        const random = there.has(base) ? [{ m: base, name: "Random", kind: "reference" }] : [];
        const chosen = [...random, ...(all ? some : some.slice(0, MOST - 1))];
        more.hidden = some.length < MOST;
        more.textContent = all ? `Show ${MOST} lines` : `Show all ${some.length + 1}`;
        const limit = state.cost === "server_seconds" ? Number(state.amount) : null;
        const lines = chosen.map((one, k) => {
          const runs = data.runs.filter((run) => run.s === s && run.m === one.m);
          const n = Math.min(...runs.map((run) => run.accuracy.length));
          const at = (of) => Array.from({ length: n }, (_, k) => mean(runs.map((run) => of(run)[k])));
          return { name: one.name, listed: true, color: one.m === base ? "#7f7f7f" : COLOURS[(k - 1) % COLOURS.length],
            dash: one.kind === "sampler" ? "solid" : "dash", width: 1.6, across: false, x: at((run) => run.at[state.cost]),
            y: at((run) => run.accuracy), seeds: [] };
        });
        const end = limit ?? lines[0].x.at(-1) * Number(state.amount), ys = lines.flatMap((line) => line.y);
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
    const whole = () => { read(); show(); };
    whole();
    addEventListener("popstate", whole); // also where the address is changed by hand
  }
  window.chooserData = (data) => document.addEventListener("DOMContentLoaded", () => start(data));
})();
