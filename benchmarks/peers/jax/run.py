"""Pure JAX, as small as it can be written: vmap over clients (and runs), scan over steps, one jit a round."""

from __future__ import annotations

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.protocol import Options, arguments, load, measured_rounds

options = Options.of(arguments("W1", "W2", "W4").parse_args())
work = options.workload
arrays = load(options.arrays)
X = jnp.asarray(arrays.x_train.reshape(work.N, work.n, -1))
Y = jnp.asarray(arrays.y_train)
X_TEST, Y_TEST = jnp.asarray(arrays.x_test.reshape(len(arrays.x_test), -1)), jnp.asarray(arrays.y_test)


def initial(key):
    """Logistic regression starts at zero, the MLP uniformly in +-1/sqrt(fan in)."""
    layers = []
    for fan_in, out in pairwise(work.layers):
        key, w, b = jax.random.split(key, 3)
        bound = fan_in**-0.5 if len(work.layers) > 2 else 0.0
        weight = jax.random.uniform(w, (fan_in, out), minval=-bound, maxval=bound)
        layers.append((weight, jax.random.uniform(b, (out,), minval=-bound, maxval=bound)))
    return layers


def cross_entropy(layers, x, y):
    *hidden, (w, b) = layers
    for v, c in hidden:
        x = jax.nn.relu(x @ v + c)
    log_p = jax.nn.log_softmax(x @ w + b)
    return -jnp.take_along_axis(log_p, y[:, None], 1).mean(), (log_p.argmax(1) == y).mean()


def train_client(model, client, key):
    batches = jax.random.randint(key, (work.steps, work.batch), 0, work.n)

    def step(model, batch):
        gradient, _ = jax.grad(cross_entropy, has_aux=True)(model, X[client, batch], Y[client, batch])
        return jax.tree.map(lambda w, g: w - work.lr * g, model, gradient), None

    return jax.lax.scan(step, model, batches)[0]


def one_round(model, clients, key):
    trained = jax.vmap(train_client, (None, 0, 0))(model, clients, jax.random.split(key, work.m))
    return jax.tree.map(lambda w: w.mean(0), trained)


def evaluate() -> tuple[float, float]:
    loss, accuracy = cross_entropy(jax.tree.map(lambda w: w[0], models), X_TEST, Y_TEST)
    return float(loss), float(accuracy)


@jax.jit
def rounds_of_all_runs(models, clients, keys):
    if work.R > 1:
        return jax.vmap(one_round)(models, clients, keys)
    alone = one_round(jax.tree.map(lambda w: w[0], models), clients[0], keys[0])
    return jax.tree.map(lambda w: w[None], alone)


rng = np.random.default_rng(options.seed)
key, start = jax.random.split(jax.random.key(options.seed))
models = jax.vmap(initial)(jax.random.split(start, work.R))
for _ in measured_rounds(options, evaluate, ("jax",)):
    chosen = jnp.asarray([rng.choice(work.N, work.m, replace=False) for _ in range(work.R)])
    key, now = jax.random.split(key)
    models = jax.block_until_ready(rounds_of_all_runs(models, chosen, jax.random.split(now, work.R)))
