// The multiverse: a claim's effect under every archived reading. Data: multiverse-data.js (workspace/pages/multiverse.py).
// The address keeps the choice.
(() => {
  const ROW = 15; // pixels of an option below the dots
  const SVG = "http://www.w3.org/2000/svg";
  const shape = (tag, attributes, parent) => {
    const made = document.createElementNS(SVG, tag);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    parent.append(made);
    return made;
  };
  const element = (tag, text, className) => Object.assign(document.createElement(tag), { textContent: text ?? "", className: className || "" });
  const number = (value) => value === null ? "–" : Math.abs(value) >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(3)));

  function start(data) {
    const box = document.getElementById("multiverse"), form = document.createElement("form");
    const said = element("p", "", "chooser-said"), more = element("ul", "", "note"), curve = element("div"), table = element("div"), figure = element("div");
    said.ariaLive = "polite";
    form.className = "choices";
    form.onsubmit = (event) => event.preventDefault();
    box.replaceChildren(form, said, more, curve, table, figure);
    let state = {};
    // What the address says; a value that the claim's choices lack counts as none.
    const read = () => {
      state = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
      const { choices } = claim();
      state = Object.fromEntries(Object.entries(state).filter(([name, value]) => name === "claim" || choices[name]?.includes(value)));
    };
    const claim = () => data.claims.find((one) => one.id === state.claim) || data.claims[0];
    const named = (one) => ({ "as written": "following the text", "as run": "the authors' program" })[one.name] ?? one.name;
    const unit = (one) => one.unit === "times" ? " ×" : one.unit ? ` ${one.unit}` : "";
    const end = (value, open, sign) => value === null && open ? `${sign}∞` : number(value);
    const effect = (one, of) => `${one.open && !one.under ? "≥ " : one.under && !one.open ? "≤ " : ""}${number(one.estimate)}${unit(of)}` +
      (one.low === null && one.high === null ? "" : ` [${end(one.low, one.under, "−")}, ${end(one.high, one.open, "")}]`);

    function keep() {
      history.pushState(null, "", "#" + new URLSearchParams(Object.entries(state).filter(([, value]) => value)));
    }

    function controls() {
      const of = claim();
      form.replaceChildren();
      const select = (key, label, options) => {
        const made = document.createElement("select"), about = document.createElement("label");
        for (const [value, text] of options) made.add(new Option(text, value));
        made.name = key;
        made.value = state[key] ?? "";
        made.onchange = () => {
          if (key === "claim") { state = { claim: made.value }; controls(); } else state[key] = made.value;
          keep();
          show();
        };
        about.append(label + " ", made);
        form.append(about);
      };
      select("claim", "Claim", data.claims.map((one) => [one.id, `${one.paper}: ${one.text.slice(0, 90)}${one.text.length > 90 ? " …" : ""}`]));
      form.elements.claim.value = of.id;
      for (const [name, options] of Object.entries(of.choices)) {
        select(name, name, [["", "any"], ...options.map((value) => [value, value || "–"])]);
      }
    }

    function show() {
      const of = claim(), fits = (one) => Object.keys(of.choices).every((name) => !state[name] || (one.choices[name] ?? "") === state[name]);
      const taken = of.readings.filter(fits);
      told(of, taken);
      specification(of, fits);
      cells(of, taken);
    }

    function told(of, taken) {
      const printed = of.printed === null ? "" : ` Printed: ${number(of.printed)}${unit(of)}.`;
      const sources = data.sources?.[of.paper] ?? {}; // choice -> option -> why it may be taken
      more.replaceChildren();
      if (!taken.length) said.textContent = "No run of this reading is archived.";
      else if (taken.length === 1) {
        const [one] = taken;
        const tested = one.primary ? ` This reading is the one that is tested: ${of.told}.` : "";
        said.textContent = `${named(one)}: ${effect(one, of)}, ${one.n} seed${one.n === 1 ? "" : "s"}.${printed}${tested}`;
        said.dataset.estimate = one.estimate;
        more.append(...Object.entries(one.choices).map(([name, option]) => {
          const source = sources[name]?.[option];
          return element("li", `${name}: ${option}${source ? ` (${source})` : ""}`);
        }));
      } else {
        const known = taken.map((one) => one.estimate).filter((value) => value !== null);
        said.textContent = `From ${number(Math.min(...known))} to ${number(Math.max(...known))}${unit(of)}.${printed}`;
        more.append(...of.levels.map((one) => element("li", `${one.option ? `${one.choice}, ${one.option}` : "Over these readings"}: ` +
          `${number(one.lowest)} to ${number(one.highest)}, on average ${effect({ ...one, open: false, under: false }, of)}`)),
        element("li", `Tested under one reading, ${named(of.readings.find((one) => one.primary) ?? { name: "which has no runs" })}: ${of.told}`));
        delete said.dataset.estimate;
      }
      said.dataset.readings = taken.length;
    }

    // Round values on an axis from low to high: some powers of two, or multiples of 1, 2 or 5 times a power of ten.
    function ticks(low, high, log) {
      if (log && high - low < Math.log(4)) return ticks(Math.exp(low), Math.exp(high), false);
      const size = (high - low || 1) / 4, power = 10 ** Math.floor(Math.log10(size));
      const step = log ? Math.log(2) * Math.max(1, Math.round(size / Math.log(2)))
        : power * [1, 2, 5, 10].find((digit) => digit * power >= size);
      const first = Math.ceil(low / step), last = Math.floor(high / step);
      return Array.from({ length: last - first + 1 }, (_, k) => (first + k) * step)
        .map((at) => (log ? Math.exp(at) : Number(at.toPrecision(12))));
    }

    function specification(of, fits) {
      const width = Math.min(box.clientWidth, 900), height = 260, log = of.unit === "times";
      const sorted = of.readings.filter((one) => one.estimate !== null).sort((a, b) => a.estimate - b.estimate);
      const bound = (value) => (log ? Math.log(Math.min(64, Math.max(1 / 64, value))) : value);
      const all = [of.null, of.printed, ...sorted.flatMap((one) => [one.estimate, one.low, one.high])]
        .filter((value) => value !== null).map(bound);
      const low = Math.min(...all), high = Math.max(...all), span = high - low || 1;
      const y = (value) => 12 + (high - bound(value)) / span * (height - 30);
      // Below the dots, a row per option has a mark under each reading that takes it.
      const rows = width < 620 ? [] : Object.entries(of.choices).flatMap(([name, options]) =>
        [{ name }, ...options.map((value) => ({ name, value }))]);
      const longest = Math.max(0, ...rows.map((row) => (row.value || "").length));
      const left = rows.length ? Math.min(330, Math.max(216, 6 * longest)) : 46, whole = height + rows.length * ROW;
      const x = (k) => left + 4 + (k + 0.5) * (width - left - 14) / sorted.length;
      const svg = document.createElementNS(SVG, "svg");
      Object.entries({ viewBox: `0 0 ${width} ${whole}`, width, height: whole, role: "group", class: "specification",
        "aria-label": `${of.text} under ${sorted.length} readings` }).forEach(([key, value]) => svg.setAttribute(key, value));
      // The effects rise from left to right: a low line has room for words on the right, a high one on the left.
      const line = (value, className, text) => {
        const right = bound(value) < (low + high) / 2;
        shape("line", { x1: left, x2: width - 8, y1: y(value), y2: y(value), class: className }, svg);
        shape("text", { x: right ? width - 10 : left + 4, y: y(value) + (right ? 13 : -4), class: `${className}-text`,
          "text-anchor": right ? "end" : "start" }, svg).textContent = text;
      };
      line(of.null, "null", `no effect: ${number(of.null)}`);
      if (of.printed !== null) line(of.printed, "printed", `printed: ${number(of.printed)}`);
      shape("text", { x: rows.length ? left - 7 : 2, y: 9, "text-anchor": rows.length ? "end" : "start" }, svg).textContent = `effect${unit(of) && ` (${unit(of).trim()})`}`;
      for (const value of ticks(low, high, log)) {
        shape("line", { x1: left - 4, x2: left, y1: y(value), y2: y(value), class: "null" }, svg);
        shape("text", { x: left - 7, y: y(value) + 4, "text-anchor": "end", class: "tick" }, svg).textContent = number(value);
      }
      sorted.forEach((one, k) => {
        const group = shape("g", { class: `dot${one.primary ? " primary" : ""}${one.name === "as written" ? " text" : ""}${fits(one) ? "" : " out"}`, tabindex: k ? -1 : 0, role: "button" }, svg);
        if (one.low !== null || one.high !== null) shape("line", { x1: x(k), x2: x(k),
          y1: y(one.low ?? one.estimate), y2: y(one.high ?? one.estimate) }, group);
        shape("circle", { cx: x(k), cy: y(one.estimate), r: fits(one) ? 4.5 : 3 }, group);
        const words = `${named(one)}: ${effect(one, of)}, ${one.n} seeds${one.primary ? ", the reading that is tested" : ""}. ` +
          Object.entries(one.choices).map(([name, value]) => `${name}: ${value}`).join("; ");
        shape("title", {}, group).textContent = words;
        group.setAttribute("aria-label", words);
        group.onclick = () => { state = { claim: of.id, ...Object.fromEntries(Object.keys(of.choices).map((name) => [name, one.choices[name] ?? ""])) }; keep(); controls(); show(); };
        // One stop for the Tab key: arrows go from dot to dot, and the dot that is taken keeps the focus.
        group.onkeydown = (event) => {
          const to = { ArrowRight: k + 1, ArrowLeft: k - 1, Home: 0, End: sorted.length - 1 }[event.key];
          if (event.key === "Enter" || event.key === " ") group.onclick();
          else if (to === undefined) return;
          event.preventDefault();
          curve.querySelectorAll(".dot")[to ?? k]?.focus();
        };
      });
      rows.forEach(({ name, value }, k) => {
        const middle = height + (k + 0.5) * ROW, title = value === undefined;
        const text = shape("text", { x: title ? 4 : left - 6, y: middle + 4, "text-anchor": title ? "start" : "end",
          class: title ? "choice" : "" }, svg);
        const words = title ? name : value || "–";
        text.textContent = words.length > 60 ? `${words.slice(0, 59)}…` : words;
        shape("title", {}, text).textContent = words;
        if (!title) sorted.forEach((one, n) => {
          if ((one.choices[name] ?? "") !== value) return;
          shape("line", { x1: x(n), x2: x(n), y1: middle - 5, y2: middle + 5, class: fits(one) ? "taken" : "taken out" }, svg);
        });
      });
      curve.replaceChildren(svg, element("p", `Each dot is an archived reading, sorted by the effect${unit(of) && ` (${unit(of).trim()})`}, with its 95 % interval over seeds; ` +
        "a click takes its choices, and the arrow keys go from dot to dot. Blue: the reading that is tested; ringed: the one that follows the text. The marks below show what each reading takes; what is faint is not among those chosen.", "note"));
    }

    function cells(of, taken) {
      table.replaceChildren();
      figure.replaceChildren();
      if (taken.length !== 1) { table.append(element("p", "Take one reading (a dot) to see where each choice comes from, its comparisons and their curves.", "note")); return; }
      const made = element("table", "", "dataframe"), head = made.createTHead().insertRow(), body = made.createTBody();
      const columns = ["comparison", "printed", "here", "seeds"];
      for (const name of columns) head.append(element("th", name));
      for (const one of taken[0].cells) {
        const row = body.insertRow();
        [one.cell, one.shown || number(one.printed), effect(one, of), one.n].forEach((text, k) => {
          const cell = row.insertCell();
          cell.textContent = text;
         
        });
      }
      table.append(made);
      const some = taken[0].cells.filter((one) => one.arms.length);
      if (!some.length) return;
      const pick = document.createElement("select"), label = element("label", "Curves of "), target = element("div");
      some.forEach((one, k) => pick.add(new Option(one.cell, k)));
      label.append(pick);
      const drawn = () => {
        const one = some[Number(pick.value)], colours = ["#D55E00", "#7f7f7f", "#0072B2", "#009E73", "#CC79A7"];
        const lines = one.arms.map(([name, key], k) => ({ name, listed: true, color: colours[k % 5], dash: "solid", width: 1.6,
          across: false, x: data.curves[key].x, y: data.curves[key].y, seeds: [] }));
        const ys = lines.flatMap((line) => line.y).filter((value) => value !== null);
        const column = data.curves[one.arms[0][1]].column;
        target.replaceChildren();
        window.drawCurves(target, { columns: 1, panels: [{ title: one.cell, bands: [], lines,
          x: { title: "round", range: [0, Math.max(...lines.map((line) => line.x.at(-1)))], type: "linear" },
          y: { title: column.includes("accuracy") ? `${column.replaceAll("_", " ")} (%)` : column.replaceAll("_", " "),
            range: [Math.min(...ys), Math.max(...ys)], type: "linear" } }] });
      };
      pick.onchange = drawn;
      figure.append(label, target);
      drawn();
    }

    const whole = () => { read(); controls(); show(); };
    whole();
    addEventListener("popstate", whole); // also where the address is changed by hand
  }
  window.multiverseData = (data) => document.addEventListener("DOMContentLoaded", () => start(data));
})();
