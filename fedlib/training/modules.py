"""The executor for any other `nn.Module`: it trains through torch what the hand-written passes do not know.

On a CPU it trains one client after another; each thread has its own model. Values and gradients lie in two flat
vectors, so that clearing gradients and an optimiser step are a handful of operations, whatever the number of tensors.
On a GPU, kernel launches would take most of the time, so torch.func stacks the clients. Where that does not work
(recurrent layers, dropout, batch statistics), it trains one client after another there too.

A job's generator first gives its batches, then a seed for everything that the forward pass draws.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fedlib.data.datasets import Tensors
from fedlib.errors import ConfigError
from fedlib.settings.schema import Local
from fedlib.training.bench import Bench, drawn, draws, has_dropout, keeps_statistics, made, seeded
from fedlib.training.contract import Batches, Job, Optimizer, Trained, contrast, draw_batches, workers
from fedlib.training.layout import Layout
from fedlib.training.objective import Function, Objective, first_line, shape, too_few

BLOCK = 500  # samples evaluated at a time
CHUNK = 64  # jobs stacked at most


class ModuleExecutor:
    """Executor for any module; implements `contract.Executor`.

    make: makes the module. It is called for every initial model, with torch's generator seeded from the run's seed.
    data: x of any shape, floats or whole numbers (tokens). loss, metric: see `Objective`.
    stacked: whether clients are stacked; None for yes on a GPU. tell: receives a message if they cannot be stacked.

    Raises:
        ConfigError: the module fails on this data, or loss and metric do not fit the module's output.
    """

    def __init__(
        self,
        make: Callable[[], nn.Module],
        data: Tensors,
        device: torch.device,
        threads: int,
        loss: Function | None = None,
        metric: Function | None = None,
        stacked: bool | None = None,
        tell: Callable[[str], None] = print,
    ) -> None:
        self.make, self.device, self.threads, self.pool = make, device, threads, workers(threads)
        self.x = {"train": data.x_train.to(device), "test": data.x_test.to(device)}
        self.y = {"train": data.y_train.to(device), "test": data.y_test.to(device)}
        self.net = self._made(0)
        out = self._tried()
        if device.type == "cpu" and takes_channels_last(self.net, self.x["train"][:2]):
            self.x = {split: x.contiguous(memory_format=torch.channels_last) for split, x in self.x.items()}
        self.objective = Objective(loss, metric, out, self.y["train"][:2])
        self.measures = self.objective.column
        if loss is None and out.shape[1] <= int(data.y_train.max()):
            raise ConfigError(too_few(out.shape[1], data.y_train))
        self.layout = replace(Layout.of(self.net), output=output_layer(self.net, self.x["train"][:2]))
        self.random = draws(self.net, self.x["train"][:2])
        self._own = threading.local()
        self.stacked = self._stackable(tell) if stacked is None and device.type != "cpu" else bool(stacked)

    def initial(self, rng: np.random.Generator) -> Tensor:
        return drawn(self._made, rng)

    def train(
        self,
        jobs: Sequence[Job],
        start: Tensor,
        local: Local,
        lr: float,
        linear: Tensor | None = None,
        previous: Tensor | None = None,
    ) -> Trained:
        if self.stacked and previous is None:
            return self._train_stacked(jobs, start, local, lr, linear)
        updates = torch.empty(len(jobs), self.layout.d, device=self.device)
        losses, steps = np.zeros(len(jobs)), np.zeros(len(jobs), int)

        order = np.argsort([-len(job.samples) for job in jobs], kind="stable")
        drawn = draw_batches(
            [jobs[j] for j in order], local.batch, local.steps, local.epochs
        )  # cheaper in one call

        def work(i: int) -> None:
            j, steps_of = order[i], slice(drawn.steps[i])
            own = start[jobs[j].run]
            batches = Batches(
                drawn.index[steps_of, i : i + 1], drawn.count[steps_of, i : i + 1], drawn.steps[i : i + 1]
            )
            shift = None if linear is None else linear[j]
            anchors = None if previous is None else (own, previous[j])
            loss = self._steps(jobs[j], batches, own, local, lr, shift, anchors)
            updates[j] = self._bench.values() - own
            steps[j], losses[j] = len(loss), batches.mean_loss(0, loss, local.epochs)

        self._deal(work, range(len(jobs)))
        return Trained(updates, losses, steps)

    def gradients(self, jobs: Sequence[Job], start: Tensor, batch: int) -> Tensor:
        gradients = torch.zeros(len(jobs), self.layout.d, device=self.device)

        def work(j: int) -> None:
            batches = draw_batches([jobs[j]], batch, steps=1)
            self._steps(jobs[j], batches, start[jobs[j].run], Local(lr=1, batch=batch, steps=1), 0.0)
            gradients[j, : self.layout.n_trainable] = self._bench.g

        self._deal(work, range(len(jobs)))
        return gradients

    def evaluate(
        self, weights: Tensor, split: Literal["train", "test"], rows: Sequence[np.ndarray] | None = None
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """As in the contract. A program's own metric, as float32, takes the place of correctness."""
        kind = bool if self.measures == "test_accuracy" else np.float32
        sizes = [len(self.y[split]) if rows is None else len(rows[r]) for r in range(len(weights))]
        losses = [np.empty(size, np.float32) for size in sizes]
        scores = [np.empty(size, kind) for size in sizes]

        @torch.no_grad()
        def work(block: tuple[int, int]) -> None:
            r, first = block
            part = slice(first, min(first + BLOCK, sizes[r]))
            where = part if rows is None else torch.from_numpy(np.ascontiguousarray(rows[r][part]))
            bench, y = self._bench, self.y[split][where]
            with bench.drawing(0, self.random):
                out = bench.load(weights[r], training=False)(self.x[split][where])
            losses[r][part] = self.objective.losses(out, y).cpu().numpy()
            scores[r][part] = self.objective.scores(out, y).cpu().numpy()

        self._deal(work, [(r, first) for r, size in enumerate(sizes) for first in range(0, size, BLOCK)])
        return losses, scores

    # -- one client after another ------------------------------------------------------------------------------

    def _steps(
        self,
        job: Job,
        batches: Batches,
        start: Tensor,
        local: Local,
        lr: float,
        linear: Tensor | None = None,
        anchors: tuple[Tensor, Tensor] | None = None,
    ) -> np.ndarray:
        """All steps of one job; the trained model stays on the bench. Returns the mean loss of each step, (S,)."""
        bench, n, losses = self._bench, self.layout.n_trainable, []
        own = local if anchors is None else local.model_copy(update={"mu": 0.0})
        net = bench.load(start, training=True)
        optimizer = Optimizer(own, lr, bench.trained, None if linear is None else linear[:n])
        rows = [
            torch.from_numpy(i[:c]) for i, c in zip(batches.index[:, 0], batches.count[:, 0], strict=True)
        ]
        term = self._contrast(net, anchors) if anchors is not None and local.mu else None
        with bench.drawing(int(job.rng.integers(2**63)), self.random), torch.enable_grad():
            for now in rows:
                x, y = self.x["train"][now], self.y["train"][now]
                bench.g.zero_()
                try:
                    loss = self.objective.mean(net(x), y)
                except (ValueError, RuntimeError) as error:
                    raise ConfigError(
                        f"model: training fails on a batch of {len(now)} samples: {first_line(error)}"
                    ) from error
                losses.append(loss.detach())
                if term is not None:
                    loss = loss + local.mu * term(x)
                loss.backward()
                if lr:
                    optimizer.step(bench.trained, bench.g)
        return torch.stack(losses).cpu().numpy()

    def _contrast(self, net: nn.Module, anchors: tuple[Tensor, Tensor]) -> Callable[[Tensor], Tensor]:
        """Moon's contrastive term for the batch that the net saw last, from its features and those of the anchors."""
        if self.layout.output is None:
            raise ConfigError(f"algorithm 'moon' compares what the output layer sees, but {NO_OUTPUT}")
        seen: dict[str, Tensor] = {}
        layer = net.get_submodule(self.layout.output)
        layer._forward_pre_hooks.clear()  # of the previous job
        layer.register_forward_pre_hook(lambda _, given: seen.update(z=given[0].flatten(1)))

        def term(x: Tensor) -> Tensor:
            now, others = seen["z"], []
            net.eval()
            for anchor in anchors:
                with torch.no_grad():
                    functional_call(net, self.layout.views(anchor), (x,))
                others.append(seen["z"])
            net.train()
            return contrast(now, *others).mean()

        return term

    @property
    def _bench(self) -> Bench:
        """The calling thread's own copy of the model."""
        if not hasattr(self._own, "bench"):
            self._own.bench = Bench(self.net, self.layout, self.device)
        return self._own.bench

    def _deal(self, work: Callable[[Any], None], items: Sequence[Any] | np.ndarray) -> None:
        for _ in self.pool.map(work, items):
            pass

    # -- stacked clients ---------------------------------------------------------------------------------------

    def _train_stacked(
        self, jobs: Sequence[Job], start: Tensor, local: Local, lr: float, linear: Tensor | None
    ) -> Trained:
        """Train the jobs side by side, longest first, so that the jobs still running are always the first rows."""
        updates = torch.empty(len(jobs), self.layout.d, device=self.device)
        losses, steps = np.zeros(len(jobs)), np.zeros(len(jobs), int)
        order = np.argsort([-len(job.samples) for job in jobs], kind="stable")
        net, n = copy.deepcopy(self.net).train(), self.layout.n_trainable

        def loss(
            trained: Tensor, fixed: Tensor, x: Tensor, y: Tensor, share: Tensor
        ) -> tuple[Tensor, Tensor]:
            out = functional_call(net, self.layout.views(torch.cat([trained, fixed])), (x,))
            total = (self.objective.losses(out, y) * share).sum()
            return total, total

        for first in range(0, len(jobs), CHUNK):
            part = order[first : first + CHUNK]
            chunk = [jobs[j] for j in part]
            batches = draw_batches(chunk, local.batch, local.steps, local.epochs)
            w = start[[job.run for job in chunk]].clone()
            optimizer = Optimizer(local, lr, w[:, :n], None if linear is None else linear[part][:, :n])
            filled = np.arange(local.batch) < batches.count[:, :, None]
            shares = torch.from_numpy((filled / batches.count.clip(1)[:, :, None]).astype(np.float32))
            shares, index = shares.to(self.device), torch.from_numpy(batches.index).to(self.device)
            each = torch.zeros(len(index), len(chunk), device=self.device)
            for s, active in enumerate((batches.count > 0).sum(1).tolist()):
                rows, now = index[s, :active], w[:active]
                x, y = self.x["train"][rows], self.y["train"][rows]
                slope = vmap(grad(loss, has_aux=True))
                g, each[s, :active] = slope(now[:, :n], now[:, n:], x, y, shares[s, :active])
                optimizer.step(now[:, :n], g.detach().contiguous())
            mean = each.cpu().numpy()
            updates[part] = w - start[[job.run for job in chunk]]
            steps[part] = batches.steps
            losses[part] = [batches.mean_loss(i, mean[:, i], local.epochs) for i in range(len(chunk))]
        return Trained(updates, losses, steps)

    def _stackable(self, tell: Callable[[str], None]) -> bool:
        """Whether clients can be stacked: passes draw nothing and keep no statistics, and torch.func can do it."""
        reason = "its forward pass draws at random" if self.random or has_dropout(self.net) else ""
        if not reason and keeps_statistics(self.net, self.x["train"][:2]):
            reason = "it keeps statistics of its batches"
        if not reason:
            jobs = [Job(0, np.arange(2), np.random.default_rng(k)) for k in range(2)]
            start = self.initial(np.random.default_rng(0))[None]
            try:
                self._train_stacked(jobs, start, Local(lr=1, batch=2, steps=1), 0.0, None)
            except (RuntimeError, NotImplementedError, ValueError) as error:
                reason = f"torch.func cannot do it ({first_line(error).rstrip('.')})"
        if reason:
            tell(f"this model is trained one client after another, not stacked: {reason}")
        return not reason

    # -- the module --------------------------------------------------------------------------------------------

    def _made(self, seed: int) -> nn.Module:
        return made(self.make, seed, self.device)

    def _tried(self) -> Any:
        """The module's output for two samples."""
        x = self.x["train"][:2]
        with seeded(0, self.device), torch.no_grad():
            try:
                return copy.deepcopy(self.net).eval()(x)
            except Exception as error:
                raise ConfigError(
                    f"model: its forward pass fails on inputs {shape(x)}: {first_line(error)}"
                ) from error


def takes_channels_last(net: nn.Module, x: Tensor) -> bool:
    """Whether the module takes images (B, C, H, W) whose channels lie last in memory, which a CPU passes faster.

    It does not if it calls `view` on what it computes from them.
    """
    if x.dim() != 4 or not x.is_floating_point():
        return False
    net, x = copy.deepcopy(net), x.contiguous(memory_format=torch.channels_last)
    with seeded(0):
        try:
            net.eval()(x)
            net.train()(x)
        except Exception:  # if training fails anyhow, `_steps` says why
            return False
    return True


NO_OUTPUT = (
    "the model names none: set its attribute output_layer to the name of a torch.nn.Linear with bias in it."
)


def output_layer(net: nn.Module, x: Tensor) -> str | None:
    """Name of the linear layer that computes the module's output: from its attribute `output_layer`, or as observed.

    Raises:
        ConfigError: the module names a layer that is not a linear layer with bias.
    """
    layers = {
        name: layer
        for name, layer in net.named_modules()
        if isinstance(layer, nn.Linear) and layer.bias is not None and layer.weight.requires_grad
    }
    if (named := getattr(net, "output_layer", None)) is not None:
        if named not in layers:
            there = ", ".join(layers) or "none"
            raise ConfigError(
                f"model: output_layer is {named!r}, which is not a linear layer with bias; there are {there}."
            )
        return named
    net, gave = copy.deepcopy(net).eval(), {}
    for name, layer in net.named_modules():
        if name in layers:
            layer.register_forward_hook(lambda _, given, out, name=name: gave.update({name: out}))
    with seeded(0, x.device), torch.no_grad():
        out = net(x)
    return next((name for name, own in gave.items() if own is out), None)
