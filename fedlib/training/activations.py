"""Compiled passes over feature maps: max-pooling with ReLU and dropout, PReLU with batch normalisation.

Feature maps are (n, h, w, C) float32, channels last, so that a pass can use whole registers of channels.
"""

from __future__ import annotations

import numpy as np

from fedlib.kernels.jit import compiled

NONE = np.uint8(4)  # beside the 2 x 2 cells 0 .. 3 of a square: none of them


@compiled
def activate(z, pool, relu, bits, threshold, scale, out, won):
    """out (n, h, w, C) = dropout(ReLU(max-pooling of z)). won: which cell of its square passed, NONE if none did."""
    n, height, width, C = out.shape
    drop, place = len(bits) > 0, 0
    for s in range(n):
        for y in range(height):
            upper, lower = z[s, pool * y], z[s, pool * y + pool - 1]
            for x in range(width):
                west, east = pool * x, pool * x + pool - 1
                a, b, c, d = upper[west], upper[east], lower[west], lower[east]  # all one without pooling
                target, cell, draws = out[s, y, x], won[s, y, x], bits[place : place + C]
                place += C
                for k in range(C):
                    best, i = a[k], np.uint8(0)
                    if not b[k] <= best:  # lets NaN pass
                        best, i = b[k], np.uint8(1)
                    if not c[k] <= best:
                        best, i = c[k], np.uint8(2)
                    if not d[k] <= best:
                        best, i = d[k], np.uint8(3)
                    if relu and best <= 0:
                        best, i = np.float32(0), NONE
                    if drop:
                        if draws[k] >= threshold:
                            best *= scale
                        else:
                            best, i = np.float32(0), NONE
                    target[k], cell[k] = best, i


@compiled
def hand_down(g, won, pool, scale, lower):
    """The gradient below an activation: 0 except where a cell passed. A rim that no square covers is not written."""
    n, height, width, C = g.shape
    for s in range(n):
        for y in range(height):
            for i in range(pool):
                row = lower[s, pool * y + i]
                for x in range(width):
                    cells, cell = g[s, y, x], won[s, y, x]
                    for j in range(pool):
                        target, corner = row[pool * x + j], np.uint8(2 * i + j)
                        for k in range(C):
                            target[k] = cells[k] * scale if cell[k] == corner else np.float32(0)


# Sums over an image are in single precision, sums over images in double precision.


@compiled
def distance_sums(z, slope, centre, plain, square):
    """Add the sums of PReLU(z) - centre and of its square."""
    n, height, W = z.shape
    first, second = np.empty(W, np.float32), np.empty(W, np.float32)
    for s in range(n):
        first[:] = 0
        second[:] = 0
        for y in range(height):
            cells = z[s, y]
            for k in range(W):
                off = (cells[k] if cells[k] > 0 else slope[k] * cells[k]) - centre[k]
                first[k] += off
                second[k] += off * off
        plain += first
        square += second


@compiled
def normalise(z, slope, scale, shift, out):
    """out = scale PReLU(z) + shift."""
    n, height, W = z.shape
    for s in range(n):
        for y in range(height):
            cells, target = z[s, y], out[s, y]
            for k in range(W):
                target[k] = scale[k] * (cells[k] if cells[k] > 0 else slope[k] * cells[k]) + shift[k]


@compiled
def gradient_sums(g, z, slope, plain, weighted):
    """Add the sums of g and of g PReLU(z)."""
    n, height, W = z.shape
    first, second = np.empty(W, np.float32), np.empty(W, np.float32)
    for s in range(n):
        first[:] = 0
        second[:] = 0
        for y in range(height):
            cells, slopes = z[s, y], g[s, y]
            for k in range(W):
                first[k] += slopes[k]
                second[k] += slopes[k] * (cells[k] if cells[k] > 0 else slope[k] * cells[k])
        plain += first
        weighted += second


@compiled
def unnormalise(g, z, slope, a, b, c, lower, to_slope):
    """The gradient below PReLU, where above it is a g + b PReLU(z) + c; adds the sums for the slopes' gradients."""
    n, height, W = z.shape
    row = np.empty(W, np.float32)
    for s in range(n):
        row[:] = 0
        for y in range(height):
            cells, slopes, target = z[s, y], g[s, y], lower[s, y]
            for k in range(W):
                v, positive = cells[k], cells[k] > 0
                middle = a[k] * slopes[k] + b[k] * (v if positive else slope[k] * v) + c[k]
                target[k] = middle if positive else slope[k] * middle
                row[k] += np.float32(0) if positive else middle * v
        to_slope += row
