"""Plain CNNs side by side as one static step, for a GPU.

All that a step reads and writes lies in buffers of fixed size on the device: models and optimiser state as (J, d), the
batches of all steps, and the step's own number. No value comes from the host and none goes there, so that one captured
CUDA graph serves every step of every round. Finished jobs and unfilled places of a batch are masked.

Maps are (J P, C, B / P, h, w): a convolution is one batched product of weights (O, C a b) and patches
(C a b, B / P h w). The batch of each job is cut in P parts, and each part is treated like a job until the weights'
gradients are added. The long sums of these gradients are thus P sums at once, whose order is fixed. Nothing adds
atomically.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from fedlib.settings.schema import Local
from fedlib.training.chain import Chain
from fedlib.training.contract import BETAS, EPSILON, rate
from fedlib.training.layers import is_plain_convolution, is_plain_pooling
from fedlib.training.layout import Layout
from fedlib.training.objective import measured

PARTS = 8  # of a batch, at most
Views = dict[str, Tensor]  # a model's tensors by name: (J, *shape)


def takes(net: nn.Module) -> bool:
    """Whether a model is a CNN of layers that are known here, with all parameters trained."""
    if not isinstance(net, Chain) or net.is_dense or not all(p.requires_grad for p in net.parameters()):
        return False
    return all(
        is_unit_convolution(layer) or is_plain_pooling(layer) or type(layer) in OTHERS for layer in net
    )


OTHERS = (nn.ReLU, nn.Dropout, nn.Flatten, nn.Linear)


def is_unit_convolution(layer: nn.Module) -> bool:
    """Whether the layer is a plain convolution with step 1 and one group."""
    return is_plain_convolution(layer) and (layer.stride, layer.dilation, layer.groups) == ((1, 1), (1, 1), 1)


# -- layers: `forward` returns what `backward` needs; `backward` adds the layer's own gradients to `slopes` --------


class PatchConvolution:
    def __init__(self, name: str, layer: nn.Conv2d, first: bool) -> None:
        self.name, self.first, self.size = name, first, layer.kernel_size
        y, x = (int(n) for n in layer.padding)
        self.margin = (x, x, y, y)

    def forward(self, w: Views, x: Tensor, parts: int) -> tuple[Tensor, tuple[Tensor, torch.Size]]:
        """x may have one batch, (1, ...), for all models."""
        x = pad(x, self.margin) if any(self.margin) else x
        patches, weight = im2col(x, self.size), repeat(w[f"{self.name}.weight"].flatten(2), parts)
        bias = repeat(w[f"{self.name}.bias"][:, :, None], parts)
        y = torch.baddbmm(bias, weight, patches.expand(len(weight), -1, -1))
        height, width = (n - a + 1 for n, a in zip(x.shape[-2:], self.size, strict=True))
        return y.view(len(y), -1, x.shape[2], height, width), (patches, x.shape)

    def backward(self, w: Views, g: Tensor, saved: tuple[Tensor, torch.Size], slopes: Views) -> Tensor:
        patches, shape = saved
        weight = w[f"{self.name}.weight"].flatten(2)
        J, parts = len(weight), len(g) // len(weight)
        g = g.reshape(*g.shape[:2], -1)
        product = torch.bmm(g, patches.mT)
        slopes[f"{self.name}.weight"] = product.view(J, parts, -1).sum(1)
        slopes[f"{self.name}.bias"] = g.sum(2).view(J, parts, -1).sum(1)
        if self.first:
            return g
        lower = col2im(torch.bmm(repeat(weight, parts).mT, g), shape, self.size)
        west, _, top, _ = self.margin
        return lower[..., top : shape[-2] - top, west : shape[-1] - west]


class Pooling:
    """The maximum of each 2 x 2 square. The first largest cell passes, as in torch; NaN passes as well."""

    def forward(self, w: Views, x: Tensor, parts: int) -> tuple[Tensor, tuple[Tensor, torch.Size]]:
        height, width = (n // 2 * 2 for n in x.shape[-2:])
        best, *rest_of_square = (x[..., i:height:2, j:width:2] for i in (0, 1) for j in (0, 1))
        place = torch.zeros_like(best, dtype=torch.uint8)
        for k, cell in enumerate(rest_of_square, 1):
            place = torch.where(cell > best, k, place)
            best = torch.maximum(best, cell)
        return best, (place, x.shape)

    def backward(self, w: Views, g: Tensor, saved: tuple[Tensor, torch.Size], slopes: Views) -> Tensor:
        place, shape = saved
        cells = [torch.where(place == k, g, 0.0) for k in range(4)]
        rows = [torch.stack(cells[k : k + 2], -1).flatten(-2) for k in (0, 2)]
        lower = torch.stack(rows, -2).flatten(-3, -2)
        rim = (0, shape[-1] - lower.shape[-1], 0, shape[-2] - lower.shape[-2])
        return pad(lower, rim) if any(rim) else lower


class Rectifier:
    def forward(self, w: Views, x: Tensor, parts: int) -> tuple[Tensor, Tensor]:
        y = x.relu()
        return y, y

    def backward(self, w: Views, g: Tensor, saved: Tensor, slopes: Views) -> Tensor:
        return torch.where(saved > 0, g, 0.0)


class Masking:
    """Dropout with given bits. first: the place of its bytes among those of a step."""

    def __init__(self, p: float, first: int) -> None:
        self.p, self.first = p, first
        self.bits: Tensor | None = None  # (J, bytes) of the present step; None in evaluation

    def forward(self, w: Views, x: Tensor, parts: int) -> tuple[Tensor, Tensor]:
        if self.bits is None:
            return x, x
        n = len(self.bits)
        size = x.numel() // n
        packed = self.bits[:, self.first : self.first + -(-size // 8)]
        shifts = torch.arange(8, device=x.device, dtype=torch.uint8)
        keep = ((packed[:, :, None] >> shifts) & 1).flatten(1)[:, :size]
        if x.dim() == 5:  # the bits of a map are in the order (B, h, w, C)
            keep = keep.reshape(len(x), *x.shape[2:], x.shape[1]).permute(0, 4, 1, 2, 3)
        mask = keep.reshape(x.shape) * (1 / (1 - self.p))
        return x * mask, mask

    def backward(self, w: Views, g: Tensor, saved: Tensor, slopes: Views) -> Tensor:
        return g * saved


class Flattening:
    def forward(self, w: Views, x: Tensor, parts: int) -> tuple[Tensor, torch.Size]:
        flat = x.transpose(1, 2).flatten(2)
        return flat.reshape(len(flat) // parts, -1, flat.shape[2]), x.shape

    def backward(self, w: Views, g: Tensor, saved: torch.Size, slopes: Views) -> Tensor:
        n, C, batch, height, width = saved
        return g.reshape(n, batch, C, height, width).transpose(1, 2)


class Product:
    """A linear layer."""

    def __init__(self, name: str) -> None:
        self.name = name

    def forward(self, w: Views, x: Tensor, parts: int) -> tuple[Tensor, Tensor]:
        weight, bias = w[f"{self.name}.weight"], w[f"{self.name}.bias"]
        return torch.baddbmm(bias[:, None], x.expand(len(weight), -1, -1), weight.mT), x

    def backward(self, w: Views, g: Tensor, saved: Tensor, slopes: Views) -> Tensor:
        slopes[f"{self.name}.weight"] = torch.bmm(g.mT, saved).flatten(1)
        slopes[f"{self.name}.bias"] = g.sum(1)
        return torch.bmm(g, w[f"{self.name}.weight"])


Pass = PatchConvolution | Pooling | Rectifier | Masking | Flattening | Product


def repeat(t: Tensor, parts: int) -> Tensor:
    """(J, ...) -> (J P, ...), each P times in a row."""
    return t[:, None].expand(-1, parts, *t.shape[1:]).flatten(0, 1) if parts > 1 else t


def im2col(x: Tensor, size: tuple[int, ...]) -> Tensor:
    """Patches (n, C a b, B h' w') of maps x: (n, C, B, h, w)."""
    (a, b), (height, width) = size, x.shape[-2:]
    rows, columns = height - a + 1, width - b + 1
    patches = [x[..., i : i + rows, j : j + columns] for i in range(a) for j in range(b)]
    return torch.stack(patches, 2).flatten(1, 2).flatten(2)


def col2im(patches: Tensor, shape: torch.Size, size: tuple[int, ...]) -> Tensor:
    """The transpose of `im2col`: maps of `shape`, to which each patch is added; shifted additions, in a fixed order."""
    (n, C, batch, height, width), (a, b) = shape, size
    patches = patches.view(n, C, a * b, batch, height - a + 1, width - b + 1)
    maps = None
    for i in range(a):
        for j in range(b):
            shifted = pad(patches[:, :, i * b + j], (j, b - 1 - j, i, a - 1 - i))
            maps = shifted if maps is None else maps + shifted
    assert maps is not None
    return maps


class Passes:
    """The forward and backward pass of a plain CNN for J models at once. bytes: of a step's dropout bits, per model."""

    def __init__(self, net: Chain, batch: int) -> None:
        self.passes: list[Pass] = []
        self.maskings: list[Masking] = []
        self.bytes, dropouts = 0, iter(net.dropouts)
        for i, layer in enumerate(net):
            if isinstance(layer, nn.Conv2d):
                self.passes.append(PatchConvolution(str(i), layer, first=not self.passes))
            elif isinstance(layer, nn.MaxPool2d):
                self.passes.append(Pooling())
            elif isinstance(layer, nn.ReLU):
                self.passes.append(Rectifier())
            elif isinstance(layer, nn.Dropout):
                p, shape = next(dropouts)
                self.maskings.append(Masking(p, self.bytes))
                self.passes.append(self.maskings[-1])
                self.bytes += -(-batch * math.prod(shape) // 8)
            elif isinstance(layer, nn.Flatten):
                self.passes.append(Flattening())
            else:
                self.passes.append(Product(str(i)))

    def forward(self, w: Views, x: Tensor, parts: int, bits: Tensor | None) -> tuple[Tensor, list]:
        """Logits (J, B, K), and what each pass saw. x: (J P, C, B / P, h, w), or (1, C, B, h, w) for all models."""
        saved = []
        for masking in self.maskings:
            masking.bits = bits
        for stage in self.passes:
            x, keep = stage.forward(w, x, parts)
            saved.append(keep)
        return x, saved

    def backward(self, w: Views, g: Tensor, saved: list) -> Views:
        """The gradients of the weights, (J, values) by name, from that of the logits g: (J, B, K)."""
        slopes: Views = {}
        for stage, keep in zip(reversed(self.passes), reversed(saved), strict=True):
            g = stage.backward(w, g, keep, slopes)
        return slopes


class MapStep:
    """J jobs' training, one static step at a time.

    x, y: the training set on the device, (n, C h w) and (n,). steps: of a job, at most. bundle: steps whose dropout
    bits are on the device at a time. shifted: whether a constant is added to every gradient.
    """

    def __init__(
        self,
        net: Chain,
        layout: Layout,
        shape: tuple[int, ...],
        x: Tensor,
        y: Tensor,
        local: Local,
        jobs: int,
        steps: int,
        bundle: int = 1,
        shifted: bool = False,
    ) -> None:
        self.shape, self.local, self.x, self.y = shape, local, x, y
        B, d, device = local.batch, layout.d, x.device
        self.parts = next(p for p in range(min(PARTS, B), 0, -1) if B % p == 0)
        self.passes = Passes(net, B)
        adam = local.optimizer == "adam"

        def zeros(*size: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(size, dtype=dtype, device=device)

        self.w = zeros(jobs, d)
        self.start = zeros(jobs, d) if local.mu else None
        self.shift = zeros(jobs, d) if shifted else None
        self.momentum = zeros(jobs, d) if adam or local.momentum else None
        self.square = zeros(jobs, d) if adam else None
        self.index = zeros(steps, jobs, B, dtype=torch.int64)
        self.count = zeros(steps, jobs, dtype=torch.int64)
        self.rate, self.root = zeros(steps), zeros(steps)  # of the optimiser: see `load`
        self.loss = zeros(steps, jobs)
        self.bits = zeros(bundle, jobs, self.passes.bytes, dtype=torch.uint8) if net.dropouts else None
        self.s = zeros(1, dtype=torch.int64)  # of the step
        self.place = zeros(1, dtype=torch.int64)  # of its bits
        self.places = torch.arange(B, device=device)
        names, shapes = layout.names, layout.shapes
        self.tensors = [(name, layout.slices[name], tuple(s)) for name, s in zip(names, shapes, strict=True)]
        self.classes = torch.arange(layout.shapes[-1][0], device=device)

    def load(self, start: Tensor, index: Tensor, count: Tensor, lr: float, shift: Tensor | None) -> None:
        """Begin with J' <= J jobs. start, shift: (J', d); index: (S, J', B) and count: (S, J') on the device."""
        jobs, local = len(start), self.local
        self.rewind()
        for buffer in (self.count, self.momentum, self.square):
            if buffer is not None:
                buffer.zero_()
        for buffer, values in ((self.w, start), (self.start, start), (self.shift, shift)):
            if buffer is not None and values is not None:
                buffer[:jobs] = values
        self.index[: len(index), :jobs], self.count[: len(count), :jobs] = index, count
        rates, roots = [], []
        for t in range(len(self.rate)):
            first, second = ((1 - beta ** (t + 1)) if self.square is not None else 1.0 for beta in BETAS)
            rates.append(rate(local, lr, t) / first)
            roots.append(1 / math.sqrt(second))
        for buffer, values in ((self.rate, rates), (self.root, roots)):
            buffer.copy_(torch.tensor(values), non_blocking=True)

    def rewind(self) -> None:
        """Go back to the first step, and to the first of the bits."""
        self.s.zero_()
        self.place.zero_()

    def gradient(self, jobs: int) -> tuple[Tensor, Tensor]:
        """(jobs, d) gradient of the first jobs' present batches, and (jobs,) their mean losses."""
        index = self.index.index_select(0, self.s)[0, :jobs]
        count = self.count.index_select(0, self.s)[0, :jobs]
        share = (self.places < count[:, None]) / count.clamp(min=1)[:, None]
        x = self.x.index_select(0, index.flatten()).view(jobs * self.parts, -1, *self.shape).transpose(1, 2)
        w = {name: self.w[:jobs, where].unflatten(1, shape) for name, where, shape in self.tensors}
        bits = None if self.bits is None else self.bits.index_select(0, self.place)[0, :jobs]
        logits, saved = self.passes.forward(w, x, self.parts, bits)
        y = self.y.index_select(0, index.flatten()).view(index.shape)
        logs = torch.log_softmax(logits, 2)
        loss = -(logs.gather(2, y[:, :, None])[:, :, 0] * share).sum(1)
        g = (logs.exp() - (y[:, :, None] == self.classes).float()) * share[:, :, None]
        slopes = self.passes.backward(w, g, saved)
        return torch.cat([slopes[name] for name, _, _ in self.tensors], 1), loss

    def step(self, jobs: int) -> None:
        """One step of the first jobs. It is the same sequence of operations whatever the buffers hold."""
        g, loss = self.gradient(jobs)
        local, w = self.local, self.w[:jobs]
        rate, root = self.rate.index_select(0, self.s), self.root.index_select(0, self.s)
        if local.weight_decay:
            g = g + local.weight_decay * w
        if self.start is not None:
            g = g + local.mu * (w - self.start[:jobs])
        if self.shift is not None:
            g = g + self.shift[:jobs]
        move = g
        if self.momentum is not None:
            momentum = self.momentum[:jobs]
            if self.square is not None:
                first, second = BETAS
                move = torch.lerp(momentum, g, 1 - first)
                square = self.square[:jobs] * second + (1 - second) * g * g
                self.square[:jobs] = square
            else:
                square, move = None, local.momentum * momentum + g
            self.momentum[:jobs] = move
            if square is not None:
                move = move / (square.sqrt() * root + EPSILON)
        active = self.count.index_select(0, self.s)[0, :jobs, None] > 0
        self.w[:jobs] = torch.where(active, w - rate * move, w)
        self.loss[:, :jobs].index_copy_(0, self.s, loss[None])
        self.s += 1
        self.place += 1


class MapMeasure:
    """Losses of R models on n images, without dropout, as one static pass. x: (n, C h w); y: (n,)."""

    def __init__(
        self,
        net: Chain,
        layout: Layout,
        shape: tuple[int, ...],
        models: int,
        images: int,
        device: torch.device,
    ) -> None:
        self.passes, self.layout, self.shape = Passes(net, images), layout, shape
        self.w = torch.zeros(models, layout.d, device=device)
        self.x = torch.zeros(images, math.prod(shape), device=device)
        self.y = torch.zeros(images, dtype=torch.int64, device=device)
        self.losses = torch.zeros(models, images, device=device)
        self.correct = torch.zeros(models, images, dtype=torch.bool, device=device)

    def load(self, w: Tensor, x: Tensor, y: Tensor) -> None:
        """w: (R', d), with R' <= R."""
        self.w[: len(w)], self.x[:], self.y[:] = w, x, y

    def measure(self) -> None:
        self.losses[:], self.correct[:] = self.measured(self.w, self.x, self.y)

    def measured(self, w: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """(R, n) losses and correctness, of any number of models and images."""
        images = x.view(len(x), *self.shape).transpose(0, 1)[None]
        logits, _ = self.passes.forward(self.layout.views(w), images, 1, None)
        return measured(logits.transpose(1, 2), y)
