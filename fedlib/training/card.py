"""The executor for plain CNNs on a GPU: static steps (`maps.py`), compiled and captured in CUDA graphs.

The card must not wait for the host: a graph launches all kernels of a step at once, dropout's random bits are packed to
one bit each while the previous steps run, and nothing is read back before all jobs of a call are queued. Measuring is
static as well, several models and many images at a time. While the card works for one group of runs, the host works for
another one (`simulation/turns.py`). What static steps do not take (Moon's objective) goes to the general stack.

On a CPU the same steps run without graphs, which is how they are tested.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Hashable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from fedlib.data.datasets import Tensors
from fedlib.settings.schema import Local
from fedlib.training.bits import kept_bits, packed_size
from fedlib.training.chain import Chain
from fedlib.training.contract import Batches, Job, LocalWork, Turns, batches_of, longest_first
from fedlib.training.maps import MapMeasure, MapStep
from fedlib.training.objective import first_line
from fedlib.training.stacked import Measure, StackedExecutor
from fedlib.training.threads import workers

JOBS = 64  # trained together, at most: they fill the card, whose memory holds their maps
NARROWEST = 8  # jobs that a step computes, at least
ROOM = 512  # steps of a job for which there are buffers, at least: with more, a step is compiled and captured again
BUNDLE = 4  # steps whose dropout bits are sent at a time
TOGETHER = 16  # clients whose bits a thread draws in one loop, at most: fewer than 8 leave registers empty
IMAGES = 4096  # evaluated at a time, over all models: as many as a step trains on
MODELS = 4  # evaluated at a time, at most
GROUP = 32  # clients that each of two groups of runs selects, at least: fewer do not fill the card


class CardExecutor(StackedExecutor):
    """Executor that trains plain CNNs by static steps.

    compiled: whether torch.compile fuses the operations of a step; None for yes on a GPU.
    """

    def __init__(
        self, net: Chain, data: Tensors, device: torch.device, threads: int, compiled: bool | None = None
    ) -> None:
        super().__init__(net, data, device, threads)
        self.chain, self.compiled = net, device.type != "cpu" if compiled is None else compiled
        self.captures = device.type != "cpu"
        self.alone = threading.Lock()
        self.turns = Turns(GROUP, self.alone)
        self._feed, self._draw = workers(1), self.pool.map
        self._steps_by_shape: dict[Hashable, StaticStep] = {}
        self._measures: dict[int, tuple[MapMeasure, Callable[[], None]]] = {}

    def _deal(self, work: Callable[[np.ndarray, Batches], None], jobs: Sequence[Job], local: Local) -> None:
        """In chunks, longest jobs first. Jobs on the same batches stand side by side; these are drawn once a chunk."""
        first: dict[Hashable, int] = {}
        for j, job in enumerate(jobs):
            first.setdefault(job.key, j)
        order = sorted(range(len(jobs)), key=lambda j: (*longest_first(jobs[j], local), first[jobs[j].key]))

        def draw_and_work(rows: list[int]) -> None:
            clients, place = distinct([jobs[j] for j in rows])
            batches = batches_of(clients, local)
            of_jobs = Batches(batches.index[:, place], batches.count[:, place], batches.steps[place])
            work(np.array(rows), of_jobs)

        chunks = [order[i : i + JOBS] for i in range(0, len(order), JOBS)]
        for _ in self._feed.map(draw_and_work, chunks):
            pass

    def _trained(self, chunk: LocalWork, batches: Batches) -> tuple[Tensor, Tensor]:
        if chunk.previous is not None:
            return super()._trained(chunk, batches)
        jobs, w, local = chunk.jobs, chunk.start, chunk.local
        step = self._step(local, len(batches.index), chunk.linear is not None)
        active = (batches.count > 0).sum(1).tolist()
        runs = {width: step.prepared(width) for width in {width_of(n) for n in active}}
        step.load(w, self._sent(batches.index), self._sent(batches.count), chunk.lr, chunk.linear)
        for s, n in enumerate(active):
            if step.bits is not None and s % BUNDLE == 0:
                step.place.zero_()
                bits = self._packed_bits(jobs[:n], local.batch, min(BUNDLE, len(active) - s))
                step.bits[: len(bits), :n] = bits
            runs[width_of(n)]()
        return step.w[: len(jobs)] - w, step.loss[: len(active), : len(jobs)].clone()

    def _slopes(self, jobs: Sequence[Job], batches: Batches, w: Tensor, batch: int) -> Tensor:
        step = self._step(Local(lr=1, batch=batch, steps=1), 1, shifted=False)
        step.load(w, self._sent(batches.index), self._sent(batches.count), 0.0, None)
        if step.bits is not None:
            step.bits[:1, : len(jobs)] = self._packed_bits(jobs, batch, 1)
        return step.gradient(len(jobs))[0]

    def _step(self, local: Local, steps: int, shifted: bool) -> StaticStep:
        """The buffers for this kind of work, for at least this number of steps."""
        shared = local.model_copy(update={"lr": 1.0, "epochs": None, "steps": 1})
        kind = (shared.model_dump_json(), shifted)
        step = self._steps_by_shape.get(kind)
        if step is None or len(step.rate) < steps:
            room = max(ROOM, 1 << (steps - 1).bit_length())
            step = self._steps_by_shape[kind] = StaticStep(self, local, room, shifted)
        return step

    def _packed_bits(self, jobs: Sequence[Job], batch: int, steps: int) -> Tensor:
        """(S, G, bytes): which values dropout keeps. Jobs on the same batches share their bits, which are sent once."""

        clients, place = distinct(jobs)
        rngs, size = [job.rng for job in clients], packed_size(self.dropouts, batch)
        host = torch.empty(steps, len(rngs), size, dtype=torch.uint8, pin_memory=self.device.type != "cpu")
        ends = np.linspace(0, len(rngs), 1 + -(-len(rngs) // TOGETHER), dtype=int).tolist()

        def draw(first: int, last: int) -> None:
            kept_bits(rngs[first:last], self.dropouts, batch, host.numpy()[:, first:last])

        for _ in self._draw(draw, ends, ends[1:]):
            pass
        packed = host.to(self.device, non_blocking=True)
        return packed if len(clients) == len(jobs) else packed[:, self._sent(place)]

    def _images(self, models: int) -> int:
        return IMAGES // self._block(models)

    def _block(self, models: int) -> int:
        """How many of these models are measured at a time: a power of two."""
        return min(MODELS, 1 << (models - 1).bit_length())

    def _measure(self, weights: Tensor) -> Measure:
        block, images = self._block(len(weights)), self._images(len(weights))
        if block not in self._measures:
            static = MapMeasure(self.chain, self.layout, self._shape, block, images, self.device)
            self._measures[block] = static, self.ready(static.measure)
        static, run = self._measures[block]

        def measure(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            results = []
            for w in weights.split(block):
                if len(x) < images:
                    results.append(static.measured(w, x, y))
                    continue
                static.load(w, x, y)
                run()
                results.append((static.losses[: len(w)].clone(), static.correct[: len(w)].clone()))
            losses, correct = zip(*results, strict=True)
            return torch.cat(losses), torch.cat(correct)

        return measure

    def ready(self, run: Callable[[], None], reset: Callable[[], None] = lambda: None) -> Callable[[], None]:
        """A function without arguments, compiled and captured where that is possible.

        Making it calls it, each time after `reset`, and touches global generators: nobody may draw from them meanwhile.
        """
        with self.alone:
            if self.compiled:
                reset()
                run = self._fused(run)
            return captured(run, reset) if self.captures else run

    def _fused(self, run: Callable[[], None]) -> Callable[[], None]:
        """The function through torch.compile; as it is where that does not work (no C compiler, for example)."""
        fused = torch.compile(run, fullgraph=True, dynamic=False)
        try:
            with torch._dynamo.config.patch(recompile_limit=1024):  # for every width and every kind of work
                fused()
        except Exception as error:
            warnings.warn(f"steps are not compiled: {first_line(error)}", stacklevel=2)
            self.compiled = False
            return run
        return fused


class StaticStep(MapStep):
    """A step with, on a GPU, the graphs that hold it: one for every number of rows that it computes."""

    def __init__(self, executor: CardExecutor, local: Local, steps: int, shifted: bool) -> None:
        x, y = executor.x["train"], executor.y["train"]
        net, layout, shape = executor.chain, executor.layout, executor._shape
        super().__init__(net, layout, shape, x, y, local, JOBS, steps, BUNDLE, shifted)
        self.executor = executor
        self.runs: dict[int, Callable[[], None]] = {}

    def prepared(self, width: int) -> Callable[[], None]:
        """A function that does one step of the first `width` jobs. Making it overwrites the buffers."""
        if width not in self.runs:
            self.runs[width] = self.executor.ready(partial(self.step, width), self.rewind)
        return self.runs[width]


def captured(run: Callable[[], None], reset: Callable[[], None]) -> Callable[[], None]:
    """A function as a CUDA graph. It runs three times beforehand, so that nothing is compiled or tuned in the graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            reset()
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        run()
    return graph.replay


def width_of(active: int) -> int:
    """How many rows a step computes: the number of active jobs, rounded up to a power of two."""
    return min(JOBS, max(NARROWEST, 1 << (active - 1).bit_length()))


def distinct(jobs: Sequence[Job]) -> tuple[list[Job], np.ndarray]:
    """One job for each set of jobs on the same batches, and for each job the place of that one."""
    places: dict[Hashable, int] = {}
    place = np.array([places.setdefault(job.key, len(places)) for job in jobs])
    firsts = np.unique(place, return_index=True)[1]
    return [jobs[j] for j in firsts.tolist()], place
