"""Methods on a federation of one's own, with what the wheel brings: no repository, no data sets."""

import numpy as np

import fedlib

rng = np.random.default_rng(0)
centres, y = rng.normal(size=(4, 6)), np.repeat(np.arange(4), 100)
x = (centres[y] + rng.normal(size=(400, 6))).astype(np.float32)
result = fedlib.simulate(
    x,
    y,
    np.arange(400) // 20,
    test=(x, y),
    model="logistic",
    methods={"Random": "uniform", "HCSFed": "hcsfed", "FedCor": "fedcor"},
    m=4,
    T=20,
    local=fedlib.Local(lr=0.1, batch=8, epochs=1),
    seeds=1,
)
for method, rows in result.table.groupby("method"):
    accuracy = rows.sort_values("round")["test_accuracy"]
    print(method, f"{accuracy.iloc[-1]:.3f}")
    assert accuracy.iloc[-1] > accuracy.iloc[0] + 0.2
