// Ranks by the chooser's rule for every combination of its filters; reads its data and writes the results as JSON.
const fs = require("fs");
const [rule, input, output] = process.argv.slice(2);
const { atBudget, ranking, answer } = require(rule);
const data = JSON.parse(fs.readFileSync(input));
const FACETS = ["labels", "sizes", "share", "data"];
const options = FACETS.map((key) => ["", ...new Set(data.settings.map((one) => one[key]))]);
const filters = options.reduce((all, values) => all.flatMap((chosen) => values.map((value) => [...chosen, value])), [[]]);
const found = [];
for (const [cost, amount] of data.budgets) {
  const at = atBudget(data, cost, amount);
  for (const filter of filters) {
    const settings = data.settings.map((one, k) => k).filter((k) => FACETS.every((key, n) => !filter[n] || data.settings[k][key] === filter[n]));
    if (!settings.length) continue;
    for (const asks of data.asks.keys()) {
      const made = ranking(data, at, settings, (one) => one.asks <= asks);
      found.push({ cost, amount, filter, asks, settings: made.settings, first: made.first?.name ?? null, answer: answer(made),
        exceptions: made.exceptions.map((one) => one.name),
        rows: made.rows.map((one) => [one.name, one.rank, one.gain.value, one.gain.low, one.gain.high, one.verdict,
          one.behind ? one.behind.value : null]) });
    }
  }
}
fs.writeFileSync(output, JSON.stringify(found));
