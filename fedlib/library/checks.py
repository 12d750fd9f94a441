"""What is tried before anything is trained: it would fail in a later round, or depend on more than the run's seed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedlib.data.partition import Partition
from fedlib.errors import ConfigError
from fedlib.library.handed import Handed
from fedlib.samplers import SAMPLERS, Selection
from fedlib.samplers.checks import ELSEWHERE
from fedlib.samplers.registry import REVISIONS
from fedlib.settings.identity import digest_of_value, names_read
from fedlib.settings.schema import Local, Run
from fedlib.simulation.guard import GlobalDraws
from fedlib.simulation.live import Live
from fedlib.streams import stream
from fedlib.training.contract import Job, batches_of
from fedlib.training.executors import ProgramModel
from fedlib.training.modules import ModuleExecutor
from fedlib.training.objective import Function, first_line
from fedlib.training.randomness import made, seeded

MOST_ROUNDS = 100_000  # of which a learning rate that is a function is tried


def check(
    supply: Handed, runs: Sequence[Run], metric: Function | None, threads: int, tell: Callable[[str], None]
) -> None:
    """What the arguments say together.

    Raises:
        ConfigError: clients have no test parts to measure, training will meet a batch that the model cannot take, or
            the model, the loss, the local work or a sampler gives something else each time.
    """
    run = runs[0]
    partitions = {run.seed: supply.partition(run) for run in runs}
    if run.evaluate.clients:
        if not supply.data.labels or metric is not None:
            raise ConfigError(
                "evaluate.clients measures accuracy, which needs labels and no metric=; set it to false."
            )
        if any(part.test is None for part in partitions.values()):
            raise ConfigError(
                "evaluate.clients is true, but the clients have no test samples; give client_test."
            )
    if not isinstance(supply.model.use, str):
        check_memory(made(supply.model.use.make, 0))
        check_model(supply.model.use, supply)
        check_batches(supply.model.use, supply, run.local, partitions.values())
        check_buffers(supply.model.use, supply)
    check_local(run.local, run.T, {len(mine) for part in partitions.values() for mine in part.train})
    if callable(run.local.optimizer):
        check_optimizer(run.local, supply.model.make)
    check_weights(supply, run, partitions.values(), threads)
    check_state(supply, run, partitions[run.seed], threads, tell)
    for probe in {run.method.sampler: run for run in runs if run.method.sampler not in REVISIONS}.values():
        check_sampler(probe, partitions[probe.seed], supply, threads)


def check_batches(use: ProgramModel, supply: Handed, local: Local, partitions: Iterable[Partition]) -> None:
    """Check that no client has a batch of one sample if the model cannot be trained on one."""
    if takes_one(use, supply):
        return
    batch = local.batch
    for part in partitions:
        for k, mine in enumerate(part.train):
            steps, samples = local.work(len(mine))
            passes = local.epochs or steps
            smallest_batch = samples // passes - batch * (steps // passes - 1)
            if smallest_batch == 1:
                raise ConfigError(
                    f"model: training fails on a batch of one sample, which {supply.clients.name(k)} would have "
                    f"({len(mine)} samples in batches of {batch}); set drop_last=True in Local, or another batch."
                )


def takes_one(use: ProgramModel, supply: Handed) -> bool:
    """Whether the model can be trained on a batch of one sample. Batch normalisation cannot."""
    net, x = made(use.make, 0).train(), supply.data.tensors().x_train[:2]
    with seeded(0), torch.no_grad():
        try:
            net(x)
        except Exception:
            return True  # it fails anyhow; the executor says why
        try:
            net(x[:1])
        except ValueError:
            return False
        except Exception:
            return True
    return True


def check_model(use: ProgramModel, supply: Handed) -> None:
    """Check that a model and its loss depend on torch's generator alone, and that there is something to learn."""
    data = supply.data.tensors()
    x, y = data.x_train[:2], data.y_train[:2]
    nets = [made(use.make, 0) for _ in range(2)]
    if differ("model", ([*net.parameters(), *net.buffers()] for net in nets)):
        raise ConfigError(
            "model: two calls make different modules although torch's generator begins alike, so that results would "
            "not depend on the seed alone; draw initial values with torch, not with numpy or random."
        )
    try:
        passes = [tried(copy.deepcopy(nets[0]).train(), use.loss, x, y) for _ in range(2)]
    except Exception:
        return  # it fails anyhow; the executor says why
    for place, values in zip(("model", "loss"), zip(*passes, strict=True), strict=True):
        if differ(place, values):
            raise ConfigError(
                f"{place}: it gives something else each time although torch's generator begins alike, so that results "
                "would not depend on the seed alone; draw with torch, not with numpy or random."
            )
    if not passes[0][1].requires_grad:
        raise ConfigError(
            "loss: its value does not depend on the model's parameters, so that nothing would be learned; leave out "
            "detach, item, numpy and no_grad."
        )


def check_memory(net: nn.Module) -> None:
    """Check that no parameter lies in the memory of another tensor, because each has its own place in a vector."""
    parameters = {name for name, _ in net.named_parameters()}
    spans = []
    for name, value in [*net.named_parameters(), *net.named_buffers()]:
        reach = sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
        if value.numel():
            spans.append((value.data_ptr(), value.data_ptr() + (reach + 1) * value.element_size(), name))
    spans.sort()
    for (_, end, name), (start, _, following) in pairwise(spans):
        if start < end and parameters & {name, following}:
            raise ConfigError(
                f"model: {name} and {following} lie in the same memory, but would be trained as two tensors; to share "
                "a parameter, assign the parameter itself, not its data."
            )


def check_buffers(use: ProgramModel, supply: Handed) -> None:
    """Check that what a module keeps in its buffers is averaged, like its weights, or decides nothing.

    Only real numbers are averaged. So a buffer of another type may be constant, or count what nothing reads.
    """
    data = supply.data.tensors()
    x, y = data.x_train[:2], data.y_train[:2]
    net = made(use.make, 0)
    if any(p.is_complex() for p in net.parameters()):
        raise ConfigError(
            "model: it has a complex parameter, which is not averaged here; keep two real ones, its real and its "
            "imaginary part, and join them in forward (torch.complex)."
        )
    initial = dict(net.named_buffers())
    counts = [name for name, value in initial.items() if not value.is_floating_point()]
    counters = {
        f"{name}.num_batches_tracked".lstrip(".") for name, part in net.named_modules() if is_norm(part)
    }
    passed = copy.deepcopy(net).train()
    try:
        tried(passed, use.loss, x, y)
    except Exception:
        return  # it fails anyhow; the executor says why
    for name in set(counts) - counters:
        changed = passed.get_buffer(name)
        if torch.equal(changed, initial[name]):
            continue
        advanced = copy.deepcopy(net)
        advanced.get_buffer(name).copy_(changed)
        passes = [outcome(part, use.loss, x, y, set(counts)) for part in (copy.deepcopy(net), advanced)]
        if differ("model", passes):
            kind = "two buffers, its real and its imaginary part" if changed.is_complex() else "float32"
            raise ConfigError(
                f"model: forward changes its buffer {name!r} and reads it, but {changed.dtype} is not averaged over "
                f"clients, so that it would begin anew with every client; make it {kind}, which is averaged."
            )


def is_norm(part: nn.Module) -> bool:
    """Whether it is batch normalisation, whose counter decides only how fast its averaged statistics move."""
    return isinstance(part, nn.modules.batchnorm._NormBase)


def outcome(net: nn.Module, loss: Function | None, x: Tensor, y: Tensor, counts: set[str]) -> list[Any]:
    """What a module computes of some samples in training and in evaluation, and what it then keeps."""
    trained = tried(net.train(), loss, x, y)
    statistics = [value for name, value in net.named_buffers() if name not in counts]
    return [
        *trained,
        *torch.autograd.grad(trained[1], [p for p in net.parameters() if p.requires_grad], allow_unused=True),
        *statistics,
        *tried(net.eval(), loss, x, y),
    ]


def check_weights(supply: Handed, run: Run, partitions: Iterable[Partition], threads: int) -> None:
    """Check that every client has a sample whose label has a weight in the loss."""
    executor = supply.executor(run, threads)
    weights = executor.weights["train"] if isinstance(executor, ModuleExecutor) else None
    if weights is None:
        return
    for part in partitions:
        for k, mine in enumerate(part.train):
            if not weights[torch.from_numpy(mine)].any():
                raise ConfigError(
                    f"loss: every label of {supply.clients.name(k)} has weight 0, so that its mean is 0 / 0; leave the "
                    "client out."
                )


def check_state(
    supply: Handed, run: Run, partition: Partition, threads: int, tell: Callable[[str], None]
) -> None:
    """Check that what a client computes depends neither on the clients before it nor on the number of threads.

    Two clients are trained and measured in both orders, by one copy of the module. If a module keeps something between
    its calls, each client is given a copy of its own, and a line says so.

    Raises:
        ConfigError: it keeps something outside itself.
    """
    executor = supply.executor(run, threads)
    if not isinstance(executor, ModuleExecutor):
        return
    start = executor.initial(stream(run.seed, "init", 0))
    local = run.local.model_copy(update={"steps": 2, "epochs": None, "drop_last": False})
    clients = range(min(2, len(partition.train)))

    def trial(order: Iterable[int], isolated: bool) -> list[Any]:
        executor.isolated, results = isolated, {}
        bench = executor.new_bench()
        for k in order:
            bench = executor.new_bench() if isolated else bench
            job = Job(0, partition.train[k][: 2 * local.batch], stream(run.seed, "local", 1, k, 0))
            batches = batches_of([job], local).of(0)
            losses = bench.train(job, batches, start, local, local.lr_at(1))
            measured = bench.measure(start, "train", torch.from_numpy(job.samples[:8]))
            results[k] = [losses, bench.values().clone(), *measured]
        return [results[k] for k in clients]

    def depends(isolated: bool) -> bool:
        orders = (clients, clients[::-1], clients)
        return differ("model", [trial(order, isolated) for order in orders])

    try:
        changing = keeps(executor.net, executor.x["train"][:2])
        if not (depends(isolated=False) or changing):
            return
        elsewhere = depends(isolated=True)
    except ConfigError:
        return  # training fails in the same way, and says why
    if elsewhere:
        raise ConfigError(
            "model: what a client computes depends on the clients before it, although each has a copy of the module of "
            "its own; let neither the module nor the loss keep anything outside the module's attributes, such as in a "
            "global, in an attribute of a class or in the loss."
        )
    executor.isolated, executor.stacked = True, None
    names = f" ({', '.join(changing)})" if changing else ""
    tell(f"this model keeps something between its calls{names}: each client begins with a copy of its own")


def keeps(net: nn.Module, x: Tensor) -> list[str]:
    """Names of the attributes of a module, no parameters or buffers, that a forward pass in training changes."""
    net = copy.deepcopy(net).train()
    initial = attributes(net)
    with seeded(0, x.device), torch.no_grad():
        net(x)
    return sorted(name for name, digest in attributes(net).items() if initial.get(name) != digest)


def attributes(net: nn.Module) -> dict[str, str]:
    """Digests of what a module and the modules in it keep as attributes of a program's own."""
    ours = set(vars(nn.Module()))
    return {
        f"{place}.{name}".lstrip("."): digest_of_value(value, name, skip=True)
        for place, part in net.named_modules()
        for name, value in vars(part).items()
        if name not in ours
    }


def tried(net: nn.Module, loss: Function | None, x: Tensor, y: Tensor) -> tuple[Any, Tensor]:
    """A module's output for some samples, and their loss."""
    with seeded(0):
        output = net(x)
        return output, (loss or cross_entropy)(output, y).mean()


def differ(place: str, values: Iterable[Any]) -> bool:
    """Whether some of the values hold something else than the others, bit by bit."""
    return len({digest_of_value(value, place, skip=True) for value in values}) > 1


def check_local(local: Local, T: int, sizes: Iterable[int]) -> None:
    """Check what functions say of the local work in every round, and of every client."""
    for t in range(1, min(T, MOST_ROUNDS) + 1) if callable(local.lr) else ():
        rate = returned("local.lr", f"in round {t}", local.lr, t)
        if not isinstance(rate, int | float) or not 0 < rate < 1e30:
            raise ConfigError(f"local.lr returns {rate!r} in round {t}; it must be a number above 0.")
    for size in sorted(sizes) if callable(local.steps) else ():
        steps = returned("local.steps", f"for {size} samples", local.steps, size)
        if isinstance(steps, bool) or not isinstance(steps, int) or not 1 <= steps <= 10**6:
            raise ConfigError(
                f"local.steps returns {steps!r} for {size} samples; it must be a whole number, 1 to 1,000,000."
            )


def check_optimizer(local: Local, make: Callable[[], nn.Module]) -> None:
    """Check that an optimiser can be made for the model's parameters, and moves them."""
    net = made(make, 0)
    trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.grad = torch.zeros_like(parameter)
    optimizer = returned("local.optimizer", "for the model's parameters", local.optimizer, trained, 0.1)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ConfigError(
            "local.optimizer must make a torch optimiser of (parameters, rate), but makes a "
            f"{type(optimizer).__name__}."
        )
    returned("local.optimizer", f"in a step of {type(optimizer).__name__}", optimizer.step)


def returned(place: str, where: str, function: Any, *arguments: Any) -> Any:
    """What a program's function returns, a number of numpy as a plain one."""
    try:
        value = function(*arguments)
    except Exception as error:
        raise ConfigError(f"{place} fails {where}: {type(error).__name__}: {first_line(error)}") from error
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else value


def check_sampler(run: Run, partition: Partition, supply: Handed, threads: int) -> None:
    """Check that a program's sampler draws from the generators that it is handed, and from nothing else."""
    name = run.method.sampler
    for used in sorted(names_read(SAMPLERS[name]) & set(ELSEWHERE)):
        raise ConfigError(
            f"methods: sampler {name!r} uses {ELSEWHERE[used]}.{used}, so that its draws would be the same for all "
            "seeds, or differ when the program is repeated; draw from round.rng, or in setup from rng."
        )
    executor = supply.executor(run, threads)
    steps = [first_step(Live(run, partition, executor)) for _ in range(2)]
    if None not in steps and differ(name, steps):
        raise ConfigError(
            f"methods: sampler {name!r} does something else when round 1 is repeated, so that its results would not "
            "depend on the run's seed alone; draw from round.rng, or in setup from rng, and keep its state on self."
        )


def first_step(live: Live) -> Any:
    """What a run's sampler chooses or asks first in round 1; None if it fails, which the run itself will report."""
    live.t = 1
    step: Any = None
    with live.trying("select", GlobalDraws()):
        step = live.sampler.select(live.round("select"))
        if isinstance(step, Generator):
            try:
                step = next(step)
            except StopIteration as stop:
                step = stop.value
    if live.failed:
        return None
    return [step.clients, step.weights, step.expected] if isinstance(step, Selection) else step
