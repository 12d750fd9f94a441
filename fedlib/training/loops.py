"""Compiled loops for local training on a CPU: batches from stored pixels, the softmax, and SGD of dense models.

The two products that a layer needs are blocked for the core's vector registers. Numba's cache knows only the file of a
loop, not what that loop calls: loops that call each other stand in one file.
"""

from __future__ import annotations

import math

import numpy as np

from fedlib.data.datasets import Tensors
from fedlib.kernels.jit import compiled

LINE = 16  # floats per cache line: products are a third faster where rows start at one, as in torch
QUAD = 4  # samples whose gradients are added together; a batch is filled up to a multiple of it


def samples(data: Tensors, channels_last: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The training set as it is stored, (n, D), with scale (D,) and shift (D,): x = stored * scale + shift."""
    n, C, *size = data.x_train.shape
    area = math.prod(size)
    unit, zero = np.ones(C, np.float32), np.zeros(C, np.float32)
    stored, scale, shift = data.pixels or (data.x_train.numpy(), unit, zero)
    if channels_last:
        stored = np.ascontiguousarray(stored.transpose(0, 2, 3, 1))
        return stored.reshape(n, -1), np.tile(scale, area), np.tile(shift, area)
    return stored.reshape(n, -1), np.repeat(scale, area), np.repeat(shift, area)


@compiled
def take(x, rows, n, scale, shift, batch):
    """batch = x[rows[:n]] * scale + shift; rows from n to the next multiple of QUAD become 0."""
    for b in range(n):
        row, target = x[rows[b]], batch[b]
        for j in range(len(row)):
            target[j] = np.float32(row[j]) * scale[j] + shift[j]
    for b in range(n, -(-n // QUAD) * QUAD):
        batch[b] = 0


@compiled
def affine(a, W, bias, n, out):
    """out = a W' + bias for the first n rows of a: (., D); W: (m, D). It may write one row more."""
    m, D = W.shape
    for k in range(0, m - 4, 5):  # 2 x 5 sums at a time: more would not fit into 16 registers
        v0, v1, v2, v3, v4 = W[k], W[k + 1], W[k + 2], W[k + 3], W[k + 4]
        for s in range(0, n, 2):
            x, y = a[s], a[s + 1]
            p0 = p1 = p2 = p3 = p4 = q0 = q1 = q2 = q3 = q4 = np.float32(0)
            for j in range(D):
                p0 += v0[j] * x[j]
                p1 += v1[j] * x[j]
                p2 += v2[j] * x[j]
                p3 += v3[j] * x[j]
                p4 += v4[j] * x[j]
                q0 += v0[j] * y[j]
                q1 += v1[j] * y[j]
                q2 += v2[j] * y[j]
                q3 += v3[j] * y[j]
                q4 += v4[j] * y[j]
            target, second = out[s], out[s + 1]
            target[k], target[k + 1], target[k + 2], target[k + 3], target[k + 4] = p0, p1, p2, p3, p4
            second[k], second[k + 1], second[k + 2], second[k + 3], second[k + 4] = q0, q1, q2, q3, q4
    for k in range(m - m % 5, m):
        v = W[k]
        for s in range(n):
            x, p = a[s], np.float32(0)
            for j in range(D):
                p += v[j] * x[j]
            out[s, k] = p
    for s in range(n):
        target = out[s]
        for k in range(m):
            target[k] += bias[k]


@compiled
def accumulate(g, a, n, alpha, W, bias):
    """W += alpha g' a and bias += alpha g' 1 over n rows; g: (., m) is 0 from n to the next multiple of QUAD."""
    m, D = W.shape
    for s in range(0, n, QUAD):
        for k in range(m):
            bias[k] += alpha * (g[s, k] + g[s + 1, k] + g[s + 2, k] + g[s + 3, k])
    for k in range(0, m - 3, 4):
        v0, v1, v2, v3 = W[k], W[k + 1], W[k + 2], W[k + 3]
        for s in range(0, n, QUAD):
            x0, x1, x2, x3 = a[s], a[s + 1], a[s + 2], a[s + 3]
            g0, g1, g2, g3 = g[s, k : k + 4], g[s + 1, k : k + 4], g[s + 2, k : k + 4], g[s + 3, k : k + 4]
            p0, p1, p2, p3 = alpha * g0[0], alpha * g1[0], alpha * g2[0], alpha * g3[0]
            q0, q1, q2, q3 = alpha * g0[1], alpha * g1[1], alpha * g2[1], alpha * g3[1]
            r0, r1, r2, r3 = alpha * g0[2], alpha * g1[2], alpha * g2[2], alpha * g3[2]
            t0, t1, t2, t3 = alpha * g0[3], alpha * g1[3], alpha * g2[3], alpha * g3[3]
            for j in range(D):
                v0[j] += p0 * x0[j] + p1 * x1[j] + p2 * x2[j] + p3 * x3[j]
                v1[j] += q0 * x0[j] + q1 * x1[j] + q2 * x2[j] + q3 * x3[j]
                v2[j] += r0 * x0[j] + r1 * x1[j] + r2 * x2[j] + r3 * x3[j]
                v3[j] += t0 * x0[j] + t1 * x1[j] + t2 * x2[j] + t3 * x3[j]
    for k in range(m - m % 4, m):
        v = W[k]
        for s in range(0, n, QUAD):
            x0, x1, x2, x3 = a[s], a[s + 1], a[s + 2], a[s + 3]
            p0, p1, p2, p3 = alpha * g[s, k], alpha * g[s + 1, k], alpha * g[s + 2, k], alpha * g[s + 3, k]
            for j in range(D):
                v[j] += p0 * x0[j] + p1 * x1[j] + p2 * x2[j] + p3 * x3[j]


@compiled
def back(g, W, n, h, scale, lower):
    """lower = g W times scale where the activations h are above 0, else 0; rows after the first n are 0."""
    m, D = W.shape
    lower[:] = 0
    for s in range(n):
        target, source = lower[s], h[s]
        for k in range(m):
            w, p = W[k], g[s, k] * scale
            for j in range(D):
                target[j] += p * w[j]
        for j in range(D):
            if source[j] <= 0:
                target[j] = 0


@compiled
def drop(z, n, bits, threshold, scale):
    """Dropout of the first n rows of z: (., m), with bits in row-major order."""
    m = z.shape[1]
    for s in range(n):
        target, source = z[s], bits[s * m : s * m + m]
        for j in range(m):
            target[j] = target[j] * scale if source[j] >= threshold else np.float32(0)


@compiled
def rectify(z, n):
    """ReLU of the first n rows of z: (., m), in place."""
    for s in range(n):
        target = z[s]
        for j in range(len(target)):
            if target[j] <= 0:  # leaves NaN unchanged
                target[j] = 0


@compiled
def cross_entropy(z, y, n, g):
    """Mean loss of the logits z: (., K). g becomes softmax - one-hot, and 0 in the rows after the first n."""
    K = z.shape[1]
    g[:] = 0
    total = np.float32(0)
    for s in range(n):
        logits, target = z[s], g[s]
        top = logits[0]
        for k in range(1, K):
            top = max(top, logits[k])
        mass = np.float32(0)
        for k in range(K):
            target[k] = np.exp(logits[k] - top)
            mass += target[k]
        total += np.log(mass) + top - logits[y[s]]
        for k in range(K):
            target[k] /= mass
        target[y[s]] -= np.float32(1)
    return total / np.float32(n)


@compiled
def step(batch, n, y, sizes, dropouts, bits, w, lr, decay, pull, hidden, delta):
    """One SGD step of one model on the first n rows of a batch; returns their mean loss before the step."""
    rows = -(-n // QUAD) * QUAD
    last = len(sizes) - 2
    inputs, offset, place, used = batch, 0, 0, 0
    for k in range(last + 1):  # forward
        D, m = sizes[k], sizes[k + 1]
        out = hidden[place : place + rows * m].reshape(rows, m)
        affine(
            inputs, w[offset : offset + m * D].reshape(m, D), w[offset + m * D : offset + m * D + m], n, out
        )
        if k < last:
            if len(bits):
                drop(out, n, bits[used:], dropouts[k, 0], np.float32(dropouts[k, 1]))
                used += len(y) * m
            rectify(out, n)
        out[n:] = 0
        inputs, offset, place = out, offset + m * D + m, place + rows * m
    place -= rows * sizes[last + 1]
    g = delta[place : place + rows * sizes[last + 1]].reshape(rows, sizes[last + 1])
    loss = cross_entropy(inputs, y, n, g)
    # backward: the weights of a layer change after the gradient has passed to the layer below
    for k in range(last, -1, -1):
        D, m = sizes[k], sizes[k + 1]
        offset -= m * D + m
        W, bias = w[offset : offset + m * D].reshape(m, D), w[offset + m * D : offset + m * D + m]
        inputs, lower = batch, g
        if k:
            place -= rows * D
            inputs = hidden[place : place + rows * D].reshape(rows, D)
            lower = delta[place : place + rows * D].reshape(rows, D)
            back(g, W, n, inputs, np.float32(dropouts[k - 1, 1]) if len(bits) else np.float32(1), lower)
        source = w[offset : offset + m * D + m]
        if decay != 1:
            for j in range(len(source)):
                source[j] *= decay
        if len(pull):
            for j in range(len(source)):
                source[j] += pull[offset + j]
        accumulate(g, inputs, n, -lr / np.float32(n), W, bias)
        g = lower
    return loss


@compiled
def descend(x, scale, shift, labels, index, count, sizes, dropouts, bits, batch, w, lr, decay, pull, loss):
    """SGD of G models. M models in a row share the batches of one of the L clients.

    x: (n, D) stored samples; scale, shift: (D,). index: (S, L, B) and count: (S, L), as in `Batches`.
    sizes: of the layers, input to output. dropouts: one row (threshold, scale) per layer, or none. bits: (L, S, n).
    batch: (B or a few more, D), zeros, as working memory. w: (G, d or a few more), changed in place.
    One step: w <- decay w + pull - lr gradient; pull: (G, d), or empty. loss: (S, G) receives the batches' mean losses.
    """
    S, L, B = index.shape
    M = len(w) // L
    values = len(batch) * sizes[1:].sum()
    hidden, delta = np.zeros(values, np.float32), np.zeros(values, np.float32)
    y = np.zeros(B, np.int64)
    nothing = np.empty(0, np.int16)
    for l in range(L):
        for s in range(S):
            n = count[s, l]
            if n == 0:
                break
            take(x, index[s, l], n, scale, shift, batch)
            for b in range(n):
                y[b] = labels[index[s, l, b]]
            masks = bits[l, s] if len(bits) else nothing
            for i in range(l * M, l * M + M):
                constant = pull[i] if len(pull) else pull.ravel()
                loss[s, i] = step(
                    batch, n, y, sizes, dropouts, masks, w[i], lr, decay, constant, hidden, delta
                )


def load() -> None:
    """Load the compiled loop over pixels. It takes a second, and longer where the loop was never compiled."""
    rate, nothing = np.float32(1), np.zeros((0, 0), np.float32)
    x, unit, y, sizes = np.zeros((1, 1), np.uint8), np.ones(1, np.float32), np.zeros(1, int), np.array([1, 1])
    index, count, bits = np.zeros((0, 1, 1), int), np.zeros((0, 1), int), np.empty((0, 0, 0), np.int16)
    w, drop = np.zeros((1, 2), np.float32), np.zeros((0, 2))
    descend(x, unit, unit, y, index, count, sizes, drop, bits, nothing, w, rate, rate, nothing, nothing)
