"""The executor for any other `nn.Module`: it trains through torch what the hand-written passes do not know.

On a CPU it trains one client after another (`serial.py`). On a GPU, kernel launches would take most of the time, so
clients are stacked (`stacked.py`). Where that does not work (recurrent layers, dropout, batch statistics), it trains
one client after another there too.

A job's generator first gives its batches, then a seed for everything that the forward pass draws.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedlib.data.datasets import Tensors
from fedlib.errors import ConfigError
from fedlib.objectives import Step
from fedlib.settings.schema import Local
from fedlib.training.contract import (
    Batches,
    Job,
    LocalWork,
    Measures,
    Optimizer,
    Rows,
    Split,
    Trained,
    contrast,
)
from fedlib.training.layout import Layout
from fedlib.training.objective import (
    Function,
    Objective,
    close,
    first_line,
    parts_of,
    rebuilt,
    shape,
    tensors_of,
    too_few,
    tried_on,
)
from fedlib.training.randomness import (
    Source,
    drawn,
    draws,
    has_dropout,
    keeps_statistics,
    made,
    redirect_dropout,
    seeded,
)
from fedlib.training.serial import BLOCK, Anchors, Bench, Gradient, SerialExecutor
from fedlib.training.stacked import StackedExecutor

LOSSES = {"sum": "its loss is a sum over samples", "weighted": "its loss weighs samples"}  # not stacked


class ModuleExecutor(SerialExecutor):
    """Executor for any module.

    make: makes the module. It is called for every initial model, with torch's generator seeded from the run's seed.
    data: x of any shape, floats or whole numbers (tokens). loss, metric: see `Objective`.
    stacked: whether clients are stacked; None for yes on a GPU. tell: receives a message if they cannot be stacked.

    A program's own metric, as float32, takes the place of correctness in what `evaluate` returns.

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
        super().__init__(data, device, threads)
        self.make = make
        self.x = {"train": data.x_train.to(device), "test": data.x_test.to(device)}
        self.net = self._new_module(0)
        train_rows = tried_on(self.y["train"]) if loss or metric else torch.arange(min(2, len(data.y_train)))
        test_rows = tried_on(self.y["test"]) if (loss or metric) and len(data.y_test) else train_rows[:0]
        out = self._tried(torch.cat([self.x["train"][train_rows], self.x["test"][test_rows]]))
        if device.type == "cpu" and takes_channels_last(self.net, self.x["train"][:2]):
            self.x = {split: x.contiguous(memory_format=torch.channels_last) for split, x in self.x.items()}
        self.objective = Objective(
            loss, metric, out, torch.cat([self.y["train"][train_rows], self.y["test"][test_rows]])
        )
        self.weights = {split: self.objective.weight(y) for split, y in self.y.items()}
        self.measures = self.objective.column
        self.scores = bool if self.measures == "test_accuracy" else np.float32
        if loss is None and out.shape[1] <= int(torch.cat([data.y_train, data.y_test]).max()):
            raise ConfigError(too_few(out.shape[1], torch.cat([data.y_train, data.y_test])))
        self.layout = replace(Layout.of(self.net), output=output_layer(self.net, self.x["train"][:2]))
        self.random = draws(self.net, self.x["train"][:2])
        stack = device.type != "cpu" if stacked is None else stacked
        self.stacked = self._stackable(tell, checked=stacked is not None) if stack else None

    def initial(self, rng: np.random.Generator) -> Tensor:
        return drawn(self._new_module, rng)

    def new_bench(self) -> Bench:
        return ModuleBench(self)

    def _train(self, work: LocalWork, trained: Trained) -> None:
        if self.stacked is not None and work.previous is None and not work.local.by_torch:
            self.stacked._train(work, trained)
        else:
            super()._train(work, trained)

    def _stackable(self, tell: Callable[[str], None], checked: bool = False) -> StackedExecutor | None:
        """The executor that stacks clients, if passes draw nothing, keep no statistics, and torch.func can do it."""
        data = Tensors(self.x["train"], self.y["train"], self.x["test"], self.y["test"])
        executor = StackedExecutor(
            self.net, data, self.device, self.threads, self.layout, self.objective.losses
        )
        if checked:
            return executor
        reason = LOSSES.get(self.objective.kind, "")
        if any(hooks(p) for p in self.net.parameters()):
            reason = "gradients of its parameters have hooks"
        if not reason:
            reason = "its forward pass draws at random" if self.random or has_dropout(self.net) else ""
        if not reason and keeps_statistics(self.net, self.x["train"][:2]):
            reason = "it keeps statistics of its batches"
        if not reason:
            jobs = [Job(0, np.arange(2), np.random.default_rng(k)) for k in range(2)]
            start = self.initial(np.random.default_rng(0))[None]
            try:
                executor.train(jobs, start, Local(lr=1, batch=2, steps=1), 0.0)
            except (RuntimeError, NotImplementedError, ValueError) as error:
                reason = f"torch.func cannot do it ({first_line(error).rstrip('.')})"
        if reason:
            tell(f"this model is trained one client after another, not stacked: {reason}")
        return None if reason else executor

    def _new_module(self, seed: int) -> nn.Module:
        return made(self.make, seed, self.device)

    def weighted(self, batches: Batches) -> Batches:
        if (weights := self.weights["train"]) is None:
            return batches
        filled = np.arange(batches.index.shape[2]) < batches.count[:, :, None]
        return replace(batches, count=(weights.cpu().numpy()[batches.index] * filled).sum(2))

    def evaluate(self, weights: Tensor, split: Split, rows: Rows = None) -> Measures:
        """As in the contract. The value of a metric of all samples together stands for each of them."""
        losses, scores = super().evaluate(weights, split, rows)
        if self.objective.metric_kind == "together" and split == "test":
            scores = list(self.pool.map(self._together, weights, rows or [slice(None)] * len(weights)))
        return losses, scores

    @torch.no_grad()
    def _together(self, weights: Tensor, rows: np.ndarray | slice) -> np.ndarray:
        """The metric of all test samples at once, for each of them."""
        places = np.arange(len(self.y["test"]))[rows]
        parts = [torch.from_numpy(part) for part in np.split(places, range(BLOCK, len(places), BLOCK))]
        bench = self.bench
        assert isinstance(bench, ModuleBench)
        outs = [bench.output(weights, "test", part) for part in parts]
        return self.objective.scores(joined(outs), self.y["test"][torch.cat(parts)]).cpu().numpy()

    def _tried(self, x: Tensor) -> Any:
        """The module's output for some samples."""
        with seeded(0, self.device), torch.no_grad():
            try:
                return copy.deepcopy(self.net).eval()(x)
            except Exception as error:
                raise ConfigError(
                    f"model: its forward pass fails on inputs {shape(x)}: {first_line(error)}"
                ) from error


class Handmade(Optimizer):
    """A torch optimiser that a program makes for the module's parameters."""

    def __init__(self, local: Local, lr: float, w: Tensor, linear: Tensor | None, net: nn.Module) -> None:
        super().__init__(local, lr, w, linear)
        trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
        optimizer = local.optimizer(trained, lr) if callable(local.optimizer) else None
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise ConfigError(
                "local.optimizer must make a torch optimiser of (parameters, rate), but makes a "
                f"{type(optimizer).__name__}."
            )
        self.optimizer = optimizer

    def move(self, w: Tensor, g: Tensor, lr: float) -> None:
        self.optimizer.step()


class ModuleBench(Bench):
    """A module, differentiated by torch's autograd. Its counters start every job as they were at creation."""

    def __init__(self, executor: ModuleExecutor) -> None:
        net, self.source = copy.deepcopy(executor.net), Source()
        redirect_dropout(net, self.source)
        for parameter, copied in zip(executor.net.parameters(), net.parameters(), strict=True):
            for hook in hooks(parameter):
                copied.register_hook(hook)
        super().__init__(net, executor.layout, executor.device)
        self.x, self.y = executor.x, executor.y
        self.objective, self.random = executor.objective, executor.random
        self.training: bool | None = None
        self.counters = {name: b.clone() for name, b in net.named_buffers() if not b.is_floating_point()}

    def optimizer(self, local: Local, lr: float, linear: Tensor | None) -> Optimizer:
        if callable(local.optimizer):
            return Handmade(local, lr, self.trained, linear, self.net)
        return super().optimizer(local, lr, linear)

    def load(self, weights: Tensor) -> None:
        self.values()
        super().load(weights)
        for name, value in self.counters.items():
            self.net.get_buffer(name).copy_(value)

    def values(self) -> Tensor:
        """(d,) the module's present values, including buffers that its forward pass replaced."""
        for parent, name, view in self.buffers:
            if (current := getattr(parent, name)) is not view:
                view.copy_(current.detach())
                setattr(parent, name, view)
        return self.w

    def ready(self, weights: Tensor, training: bool) -> nn.Module:
        """The module with these values, in training or evaluation mode."""
        self.load(weights)
        if self.training != training:  # it visits every layer
            self.training = training
            self.net.train(training)
        return self.net

    @contextmanager
    def drawing(self, seed: int) -> Generator[None]:
        """In this context, everything that the forward pass draws comes from this seed.

        If it draws from torch's own generator, only one thread at a time may run it.
        """
        self.source.generator = torch.Generator().manual_seed(seed)
        with seeded(seed, self.w.device) if self.random else nullcontext():
            yield

    @contextmanager
    def gradients(
        self, job: Job, batches: Batches, start: Tensor, local: Local, anchors: Anchors | None
    ) -> Generator[Gradient]:
        net = self.ready(start, training=True)
        term = self._contrast(net, anchors) if anchors is not None and local.mu else None
        own = local.make_objective()
        before = self.layout.views(start) if own else {}

        def teach(x: Tensor) -> Any:
            net.eval()
            with torch.no_grad():
                output = functional_call(net, before, (x,))
            net.train()
            return output

        def gradient(s: int) -> Tensor:
            rows = torch.from_numpy(batches.index[s, 0, : batches.count[s, 0]])
            x, y = self.x["train"][rows], self.y["train"][rows]
            weight = self.objective.weight(y)
            if weight is not None and not weight.any():
                raise ConfigError(
                    f"loss: every label in a batch of {len(rows)} samples has weight 0, so that its mean is 0 / 0; "
                    "choose larger batches, or leave samples of weight 0 out."
                )
            self.g.zero_()
            with torch.enable_grad():
                try:
                    output = net(x)
                    loss = self.objective.mean(output, y)
                except (ValueError, RuntimeError) as error:
                    raise ConfigError(
                        f"model: training fails on a batch of {len(rows)} samples: {first_line(error)}"
                    ) from error
                total = loss if own is None else minimised(own, Step(net, x, y, output, loss, before, teach))
                total = total if term is None else total + local.mu * term(x)
                total.backward()
            return self.objective.mean_loss(loss.detach(), y)

        with self.drawing(int(job.rng.integers(2**63))):
            yield gradient

    def _contrast(self, net: nn.Module, anchors: Anchors) -> Callable[[Tensor], Tensor]:
        """Moon's contrastive term for the batch that the net saw last, from its features and those of the anchors."""
        if self.layout.output is None:
            raise ConfigError(f"algorithm 'moon' compares what the output layer sees, but {NO_OUTPUT}")
        captured: dict[str, Tensor] = {}
        layer = net.get_submodule(self.layout.output)
        layer._forward_pre_hooks.clear()  # of the previous job
        layer.register_forward_pre_hook(lambda _, inputs: captured.update(z=inputs[0].flatten(1)))

        def term(x: Tensor) -> Tensor:
            features, anchor_features = captured["z"], []
            net.eval()
            for anchor in anchors:
                with torch.no_grad():
                    functional_call(net, self.layout.views(anchor), (x,))
                anchor_features.append(captured["z"])
            net.train()
            return contrast(features, *anchor_features).mean()

        return term

    def measure(self, weights: Tensor, split: str, rows: Tensor | slice) -> tuple[Tensor, Tensor]:
        y, out = self.y[split][rows], self.output(weights, split, rows)
        alone = self.objective.metric_kind != "together"
        return self.objective.losses(out, y), self.objective.scores(out, y) if alone else y.new_zeros(len(y))

    def output(self, weights: Tensor, split: str, rows: Tensor | slice) -> Any:
        """What the model (d,) returns for some samples, in evaluation mode."""
        with self.drawing(0):
            return self.ready(weights, training=False)(self.x[split][rows])


def minimised(objective: Callable[[Step], Any], step: Step) -> Tensor:
    """What an objective returns for a batch.

    Raises:
        ConfigError: it fails, or returns no number that depends on the model.
    """
    try:
        total = objective(step)
    except Exception as error:
        raise ConfigError(f"local.objective fails: {type(error).__name__}: {first_line(error)}") from error
    if not isinstance(total, Tensor) or total.dim() or not total.requires_grad:
        raise ConfigError(
            f"local.objective must return one number that depends on the model, not {shape(total)}: take the mean of "
            "the batch, and leave out detach and item."
        )
    return total


def hooks(parameter: Tensor) -> list[Callable[[Tensor], Tensor | None]]:
    """The functions that change a parameter's gradient.

    Raises:
        ConfigError: there are some that act after the gradient was added up, which is not possible here.
    """
    if getattr(parameter, "_post_accumulate_grad_hooks", None):
        raise ConfigError(
            "model: a parameter has a hook after accumulation, which is not run here; use register_hook instead."
        )
    return list((getattr(parameter, "_backward_hooks", None) or {}).values())


def joined(outs: Sequence[Any]) -> Any:
    """The outputs of several batches as that of one."""
    if isinstance(outs[0], Tensor):
        return torch.cat(list(outs))
    parts = [parts_of(out) or {} for out in outs]
    if not parts[0]:  # neither a tensor nor something that holds any
        return outs[0]
    return rebuilt(outs[0], {key: joined([part[key] for part in parts]) for key in parts[0]})


def takes_channels_last(net: nn.Module, x: Tensor) -> bool:
    """Whether the module takes images (B, C, H, W) whose channels lie last in memory, which a CPU passes faster.

    It does not if it calls `view` or `as_strided` on what it computes from them.
    """
    if x.dim() != 4 or not x.is_floating_point():
        return False
    outs = []
    for part in (x, x.contiguous(memory_format=torch.channels_last)):
        passed = copy.deepcopy(net)
        try:
            for ready in (passed.eval(), passed.train()):
                with seeded(0), torch.no_grad():
                    outs.append(tensors_of(ready(part)))
        except Exception:  # if training fails anyhow, `ModuleBench` says why
            return False
    usual, last = outs[:2], outs[2:]
    return all(close(b, a) for a, b in zip(sum(usual, []), sum(last, []), strict=True))


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
            names = ", ".join(layers) or "none"
            raise ConfigError(
                f"model: output_layer is {named!r}, which is not a linear layer with bias; there are {names}."
            )
        return named
    net, outputs = copy.deepcopy(net).eval(), {}
    for name, layer in net.named_modules():
        if name in layers:
            layer.register_forward_hook(lambda _, inputs, out, name=name: outputs.update({name: out}))
    with seeded(0, x.device), torch.no_grad():
        out = net(x)
    return next((name for name, value in outputs.items() if value is out), None)
