// The one rule that ranks samplers, for any choice of settings and budget; as in pages/ranking.py, which says what it is.
// No document is needed, so that a test runs it: every combination of the chooser's filters must equal the Python of it.
(() => {
  const TAIL = 0.9, MATTERS = 1;
  // Student's t, 97.5 %, by degrees of freedom.
  const T = [12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.306, 2.2622, 2.2281, 2.201, 2.1788, 2.1604, 2.1448,
    2.1314, 2.1199, 2.1098, 2.1009, 2.093, 2.086, 2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423];
  const mean = (values) => values.reduce((sum, one) => sum + one, 0) / values.length;
  const squares = (gains) => { const middle = mean(gains); return gains.reduce((sum, one) => sum + (one - middle) ** 2, 0); };

  function reached(run, cost, budget) {
    const affordable = run.at[cost].map((spent, k) => [spent, run.accuracy[k]]).filter(([spent]) => spent <= budget * (1 + 1e-9));
    const late = affordable.filter(([spent]) => spent > TAIL * budget);
    return late.length ? mean(late.map(([, accuracy]) => accuracy)) : affordable.length ? affordable.at(-1)[1] : null;
  }

  // What every run reaches: setting -> method -> seed -> accuracy.
  function atBudget(data, cost, amount) {
    const base = data.methods.findIndex((one) => one.name === "Random"), found = data.settings.map(() => data.methods.map(() => new Map()));
    const bases = new Map(data.runs.filter((run) => run.m === base).map((run) => [`${run.s} ${run.seed}`, run]));
    for (const run of data.runs) {
      const other = bases.get(`${run.s} ${run.seed}`);
      if (!other) continue;
      const value = reached(run, cost, cost === "server_seconds" ? amount : amount * other.at[cost].at(-1));
      if (value !== null) found[run.s][run.m].set(run.seed, value);
    }
    return found;
  }

  function gain(at, method, base, settings) {
    const parts = [], ran = [];
    for (const s of settings) {
      const part = [...at[s][method]].filter(([seed]) => at[s][base].has(seed)).map(([seed, value]) => value - at[s][base].get(seed));
      if (part.length) { parts.push(part); ran.push(s); }
    }
    if (!parts.length) return null;
    const counts = parts.map((part) => part.length), value = mean(parts.map(mean));
    const about = { value, low: null, high: null, settings: ran, least: Math.min(...counts), most: Math.max(...counts) };
    const several = parts.filter((part) => part.length > 1);
    if (!several.length) return about;
    const degrees = several.reduce((sum, part) => sum + part.length - 1, 0);
    const common = several.reduce((sum, part) => sum + squares(part), 0) / degrees; // the spread of a setting with one seed
    const terms = parts.map((part) => part.length > 1 ? [squares(part) / (part.length - 1) / part.length, part.length - 1] : [common, degrees]);
    const variance = terms.reduce((sum, [v]) => sum + v, 0);
    const freedom = variance ? variance ** 2 / terms.reduce((sum, [v, df]) => sum + v * v / df, 0) : 30;
    const half = T[Math.min(30, Math.max(1, Math.floor(freedom + 1e-9))) - 1] * Math.sqrt(variance) / parts.length;
    return { ...about, low: value - half, high: value + half };
  }

  const apart = (one) => one.low !== null && (one.low > 0 || one.high < 0);
  function verdict(one) {
    if (one.low === null) return "one seed";
    if (apart(one) && Math.abs(one.value) >= MATTERS) return one.value > 0 ? "above Random" : "below Random";
    return apart(one) || (one.low > -MATTERS && one.high < MATTERS) ? "within 1 point of Random" : "not distinguishable from Random";
  }

  // The settings of the largest complete comparison: most samplers times settings; of equals most settings, then the first.
  function block(ran) {
    const key = (settings) => settings.join(" ");
    let found = new Map(ran.map((settings) => [key(settings), settings]));
    for (let before = -1; before < found.size;) {
      before = found.size;
      const sets = [...found.values()];
      for (const a of sets) for (const b of sets) { const both = a.filter((s) => b.includes(s)); found.set(key(both), both); }
    }
    const size = (settings) => [ran.filter((mine) => settings.every((s) => mine.includes(s))).length * settings.length,
      settings.length, ...settings.map((s) => -s)];
    const after = (a, b) => { for (let k = 0; k < Math.max(a.length, b.length); k++) if ((a[k] ?? -Infinity) !== (b[k] ?? -Infinity)) return (a[k] ?? -Infinity) - (b[k] ?? -Infinity); return 0; };
    return [...found.values()].reduce((best, one) => after(size(one), size(best)) > 0 ? one : best, []);
  }

  // allowed: whether a sampler may be used. settings: indices, ascending.
  function ranking(data, at, settings, allowed) {
    const base = data.methods.findIndex((one) => one.name === "Random");
    const shown = data.methods.map((method, m) => ({ ...method, m }))
      .filter((one) => one.m !== base && (one.kind !== "sampler" || allowed(one)))
      .map((one) => ({ ...one, ran: gain(at, one.m, base, settings)?.settings })).filter((one) => one.ran);
    const samplers = shown.filter((one) => one.kind === "sampler"), common = block(samplers.map((one) => one.ran));
    for (const one of shown) {
      const mine = common.filter((s) => one.ran.includes(s));
      one.gain = gain(at, one.m, base, mine.length ? mine : settings);
      one.verdict = verdict(one.gain);
      one.rank = null;
    }
    const whole = samplers.filter((one) => common.every((s) => one.ran.includes(s))).sort((a, b) => b.gain.value - a.gain.value);
    const fewer = samplers.filter((one) => !whole.includes(one)).sort((a, b) => b.ran.length - a.ran.length || b.gain.value - a.gain.value);
    const first = whole.find((one) => one.verdict === "above Random") ?? whole[0] ?? null;
    whole.forEach((one, k) => { one.rank = k + 1; });
    const rows = [...whole, ...fewer, ...shown.filter((one) => one.kind !== "sampler")];
    for (const one of rows) one.behind = first && one !== first ? gain(at, one.m, first.m, settings) : null;
    const exceptions = fewer.filter((one) => one.verdict === "above Random" && (!one.behind || one.behind.value > 0));
    return { settings: common, rows, first, exceptions };
  }

  const points = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(1)}`;
  const interval = (one) => one.low === null ? "one seed" : `${points(one.low)} to ${points(one.high)}`;
  const listed = (names) => names.length > 1 ? `${names.slice(0, -1).join(", ")} and ${names.at(-1)}` : names[0];
  const counted = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;

  // The answer in words.
  function answer({ settings, rows, first, exceptions }) {
    if (!first) return "No sampler that may be used here has run in these settings.";
    const ranked = rows.filter((one) => one.rank), n = settings.length;
    const where = `In ${n === 1 ? "the one setting" : `the ${n} settings`} that ${ranked.length === 1 ? "it" : `all ${ranked.length} of these samplers`} ran in`;
    let text;
    if (first.verdict === "above Random") {
      text = `${where}, ${first.name} ends ${points(first.gain.value)} points of accuracy above Random (${interval(first.gain)}): `;
      const higher = ranked.filter((one) => one.rank < first.rank).map((one) => one.name);
      text += higher.length ? `the first that is surely above it; ${listed(higher)} ${higher.length > 1 ? "are" : "is"} higher, but not surely.` :
        ranked.length === 1 ? "no other one ran." : "the first of them.";
      const tied = ranked.filter((one) => one.rank > first.rank && one.behind && !(one.behind.low !== null && one.behind.high < 0));
      if (tied.length) text += ` Not distinguishable from it: ${listed(tied.map((one) => one.name))}.`;
    } else {
      text = `${where}, none ${ranked.length === 1 ? "" : "of them "}is surely above Random by a point of accuracy or more.`;
      if (!exceptions.length) text += " Random is the simplest choice.";
    }
    for (const one of exceptions) {
      const over = one.behind ? `; against ${first.name} it has ${points(one.behind.value)} there (${interval(one.behind)})` : "";
      text += ` ${one.name} ran in only ${counted(one.ran.length, "setting")}, with ${points(one.gain.value)} points (${interval(one.gain)})${over}.`;
    }
    return text;
  }

  const rule = { atBudget, ranking, answer, gain, verdict, points, interval, counted };
  if (typeof module === "object") module.exports = rule; else window.ranking = rule;
})();
