"""FedJAX (Google): its federated averaging with its default backend, which jits each client's training."""

from __future__ import annotations

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np

jax.tree_map = jax.tree.map  # FedJAX 0.0.17 still calls this alias, which JAX has removed
import fedjax  # noqa: E402

from benchmarks.protocol import Options, arguments, load, measured_rounds  # noqa: E402

options = Options.of(arguments("W1", "W2").parse_args())
work = options.workload
arrays = load(options.arrays)
X, X_TEST = arrays.x_train.reshape(work.N, work.n, -1), arrays.x_test.reshape(len(arrays.x_test), -1)


def initial(rng: np.random.Generator):
    """Logistic regression starts at zero, the MLP uniformly in +-1/sqrt(fan in)."""
    layers = []
    for fan_in, out in pairwise(work.layers):
        bound = fan_in**-0.5 if len(work.layers) > 2 else 0.0
        draws = (rng.uniform(-bound, bound, shape) for shape in ((fan_in, out), (out,)))
        layers.append(tuple(jnp.asarray(draw, jnp.float32) for draw in draws))
    return layers


def log_p(layers, x):
    *hidden, (w, b) = layers
    for v, c in hidden:
        x = jax.nn.relu(x @ v + c)
    return jax.nn.log_softmax(x @ w + b)


def loss(layers, batch, rng=None):
    return -jnp.take_along_axis(log_p(layers, batch["x"]), batch["y"][:, None], 1).mean()


def evaluate() -> tuple[float, float]:
    hits = log_p(state.params, X_TEST).argmax(1) == arrays.y_test
    return float(loss(state.params, {"x": X_TEST, "y": arrays.y_test})), float(hits.mean())


algorithm = fedjax.algorithms.fed_avg.federated_averaging(
    jax.grad(loss),
    client_optimizer=fedjax.optimizers.sgd(work.lr),
    server_optimizer=fedjax.optimizers.sgd(1.0),
    client_batch_hparams=fedjax.ShuffleRepeatBatchHParams(
        batch_size=work.batch, num_epochs=None, num_steps=work.steps, seed=options.seed
    ),
)
clients = [
    fedjax.ClientDataset({"x": x, "y": y.astype(np.int32)}) for x, y in zip(X, arrays.y_train, strict=True)
]
rng = np.random.default_rng(options.seed)
keys = jax.random.split(jax.random.PRNGKey(options.seed), work.m)
state = algorithm.init(initial(rng))
for _ in measured_rounds(options, evaluate, ("fedjax", "jax")):
    chosen = rng.choice(work.N, work.m, replace=False)
    state, _ = algorithm.apply(
        state, [(int(k), clients[k], key) for k, key in zip(chosen, keys, strict=True)]
    )
    jax.block_until_ready(state.params)
