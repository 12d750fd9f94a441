"""Which values dropout keeps, one bit each: the SFC64 generators of many clients, drawn from in one compiled loop.

The draws and what they decide are those of `contract.dropout_masks`, in a sixteenth of the space.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedlib.kernels.jit import exact
from fedlib.training.contract import Dropouts, dropout_threshold

U = np.uint64
WORD = 4  # 16-bit numbers in a word of a generator
LEAST = -(2**15)  # of them
EVEN = U(0x0000FFFF0000FFFF)  # every other number of a word
SIGNS = U(0x8000800080008000)
CARRIES = U(0x0000000100000001)
ROOM = 64  # bits of a client that wait to be written


def kept_bits(rngs: Sequence[np.random.Generator], dropouts: Dropouts, batch: int, out: np.ndarray) -> None:
    """Fill out (S, G, `packed_size`), for S steps of G clients: one bit a value that dropout masks, set if it is kept.

    Each layer starts a new byte, at its lowest bit.

    Raises:
        ValueError: a generator is no SFC64.
    """
    states = [rng.bit_generator.state for rng in rngs]
    if any(state["bit_generator"] != "SFC64" for state in states):
        raise ValueError("dropout's bits are packed as SFC64 draws them")
    words = np.stack([state["state"]["state"] for state in states], 1)
    values = np.array([batch * math.prod(shape) for _, shape in dropouts])
    thresholds = np.array([dropout_threshold(p) - LEAST for p, _ in dropouts])
    _pack(*words, values, thresholds, out)
    for rng, state, moved in zip(rngs, states, words.T, strict=True):
        state["state"]["state"] = moved
        rng.bit_generator.state = state


def packed_size(dropouts: Dropouts, batch: int) -> int:
    """Bytes of a step's packed bits, for one client."""
    return sum(-(-batch * math.prod(shape) // 8) for _, shape in dropouts)


@exact
def _draw(a, b, c, count, k):
    """The next word of generator k, by the steps of NumPy's SFC64."""
    word = a[k] + b[k] + count[k]
    count[k] += U(1)
    a[k] = b[k] ^ (b[k] >> U(11))
    b[k] = c[k] + (c[k] << U(3))
    c[k] = ((c[k] << U(24)) | (c[k] >> U(40))) + word
    return word


@exact
def _kept(word, rest):
    """The four numbers of a word that reach a threshold, as bits: a number with the rest up to 2^16 has a bit 16."""
    even = (((word ^ SIGNS) & EVEN) + rest >> U(16)) & CARRIES
    odd = ((((word ^ SIGNS) >> U(16)) & EVEN) + rest >> U(16)) & CARRIES
    both = even | odd << U(1)
    return (both | both >> U(30)) & U(15)


@exact
def _pack(a, b, c, count, values, thresholds, out):
    """`kept_bits`, with the four words of each generator's state, (G,) each.

    A word takes as long as its five operations, one after the other. So the clients stand in the innermost loops, and a
    register holds words of several.
    """
    steps, G, _ = out.shape
    words, packed = np.zeros(G, U), np.zeros(G, U)
    for s in range(steps):
        place, ready = 0, 0  # numbers of `words` that are not used yet; at the end of a step they are dropped
        for layer in range(len(values)):
            rest = U(2**16 - thresholds[layer])
            rest |= rest << U(32)
            left, used = values[layer], 0
            packed[:] = U(0)
            while left:
                if not ready and left >= WORD:
                    whole_words = min(left, ROOM - used) // WORD
                    for i in range(whole_words):
                        shift = U(used + WORD * i)
                        for k in range(G):
                            packed[k] |= _kept(_draw(a, b, c, count, k), rest) << shift
                    left, used = left - WORD * whole_words, used + WORD * whole_words
                else:  # a layer begins or ends within a word
                    if not ready:
                        for k in range(G):
                            words[k] = _draw(a, b, c, count, k)
                        ready = WORD
                    taken = min(ready, left)
                    wanted, shift, past = U((1 << taken) - 1), U(used), U(16 * (taken % WORD))
                    for k in range(G):
                        packed[k] |= (_kept(words[k], rest) & wanted) << shift
                        words[k] >>= past
                    ready, left, used = ready - taken, left - taken, used + taken
                if used + WORD > ROOM or not left:
                    filled = used // 8 if left else -(-used // 8)
                    for k in range(G):
                        row, bits = out[s, k, place : place + filled], packed[k]
                        for i in range(filled):
                            row[i] = bits & U(255)
                            bits >>= U(8)
                        packed[k] = bits
                    place, used = place + filled, used - 8 * filled
