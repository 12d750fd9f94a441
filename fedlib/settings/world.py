"""The world around the clients: when they are there, how fast they are, and when the server ends a round.

availability = rate x process x pattern. All clients are there with probability `mean` on average, whatever the rate and
the pattern: worlds differ in who is there, not in how many. `fedlib/world/` holds the formulas.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from fedlib.kinds import Count, NotNegative, Positive, Settings, Share, Whole, optional

Correlation = Annotated[float, Field(ge=-1, le=1)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Equal(Settings):
    """All clients are equally often there."""

    kind: Literal["equal"] = "equal"


class ByLabel(Settings):
    """A client's rate is the mean over its samples of a weight of their labels.

    weights: "rank": the label's number over K - 1 (MIFA's adversarial rate, for any number of labels a client);
        "halves": U(0, 1) for the first half of the labels, U(0, 0.5) for the others (FedAWE); "dirichlet": Dir(alpha)
        (FedAU).
    """

    kind: Literal["label"] = "label"
    weights: Literal["rank", "halves", "dirichlet"] = "rank"
    alpha: Positive = 0.1


class BySize(Settings):
    """A client's rate is n_k^beta: above 0, large clients are there more often; below 0, small ones (FLGo)."""

    kind: Literal["size"] = "size"
    beta: float = 1.0


class LogNormal(Settings):
    """Rates are log-normal and independent of the data."""

    kind: Literal["log_normal"] = "log_normal"
    sigma: NotNegative = 1.0


class Bernoulli(Settings):
    """A client is there independently in every round."""

    kind: Literal["bernoulli"] = "bernoulli"


class Markov(Settings):
    """A client's state lasts: each round it is drawn anew with probability 1 / `stay`, and otherwise as before."""

    kind: Literal["markov"] = "markov"
    stay: Annotated[float, Field(ge=1)] = 10.0


class Cyclic(Settings):
    """A client is there in one stretch of every `length` rounds, which begins at a random round (FedAU).

    It must be there for a round at least: a world in which p_k length < 1 is refused.
    """

    kind: Literal["cyclic"] = "cyclic"
    length: Annotated[int, Field(ge=2, le=10**6)] = 20


class Sine(Settings):
    """Availability goes up and down: 1 - depth + depth sin(2 pi t / period) (FedAWE), cut off at 0."""

    kind: Literal["sine"] = "sine"
    period: Annotated[int, Field(ge=2, le=10**6)] = 20
    depth: Share = 0.3


class Staircase(Settings):
    """Availability changes between 1 and `low` every `steps` rounds (FedAWE)."""

    kind: Literal["staircase"] = "staircase"
    steps: Count = 10
    low: Share = 0.4


class LabelCycle(Settings):
    """Clients are there by label: a client whose labels reach from a to b, in parts a/K to (b + 1)/K of every period.

    beta: how strictly: at other times its availability is (1 - beta) times as high (FLGo's YC). "Labels" are those that
        make up at least a tenth of its samples.
    """

    kind: Literal["label_cycle"] = "label_cycle"
    period: Annotated[int, Field(ge=2, le=10**6)] = 24
    beta: Share = 0.9


class Shocks(Settings):
    """What happens to all clients at once, so that many or few are there: real traces swing so.

    A client's latent number is moved by one number z(t) that all share, in a Gaussian copula: each client is there as
    often as without shocks, in every round. rho: share of the variance that is common. stay: rounds in which z(t)
    forgets (it is autoregressive with the coefficient 1 - 1 / stay).
    """

    rho: Share = 0.2
    stay: Annotated[float, Field(ge=1)] = 10.0


class Leave(Settings):
    """A client that is selected leaves after a while, also before it has answered; its update is then lost.

    seconds: mean of the exponential time that it stays. None: until its interval in the trace ends (FedScale, FLASH).
    """

    seconds: Positive | None = optional()


class Trace(Settings):
    """Recorded availability: a CSV file with the columns client, from, to (seconds); it repeats after its last `to`.

    A client that the file does not name is never there. sha256: of the file, because it is part of the run's address.
    """

    file: str
    sha256: Digest


class Speeds(Settings):
    """How fast clients compute and send: log-normal, or from a CSV file.

    seconds: median seconds to train on one sample. sigma: of its logarithm. Defaults as in FedScale.
    kbit: median kbit/s of a client's connection, both ways. kbit_sigma: of its logarithm.
    rho: correlation, in a Gaussian copula, between how fast a client computes and what `of` names: the rank of its
        availability, number of samples or entropy of labels. Above 0, clients with more of it are faster. Connections
        are drawn independently.
    file, sha256: instead, a CSV file with the columns client, seconds_per_sample, kbit_down, kbit_up and N rows.
    """

    seconds: Positive = 0.0136  # 0.005 exp(1)
    sigma: NotNegative = 0.6
    kbit: Positive = 5000.0
    kbit_sigma: NotNegative = 1.0
    rho: Correlation = 0.0
    of: Literal["availability", "size", "entropy"] = "availability"
    file: str | None = optional()
    sha256: Digest | None = optional()

    @model_validator(mode="after")
    def _file_has_a_digest(self) -> Speeds:
        if (self.file is None) != (self.sha256 is None):
            raise ValueError("speeds from a file need both file and sha256")
        return self


class Wait(Settings):
    """A round ends when all selected clients have answered; the server learns at once who is absent or leaves."""

    kind: Literal["wait"] = "wait"


class Deadline(Settings):
    """A round ends after `seconds`, or when all have answered.

    Where absences are hidden, the server waits for absent clients, too.
    """

    kind: Literal["deadline"] = "deadline"
    seconds: Positive


class First(Settings):
    """The server selects c m clients and ends the round when the first m of them have answered (Oort, FedScale).

    Where fewer than m come, it ends as with `wait`.
    """

    kind: Literal["first"] = "first"
    c: Annotated[float, Field(ge=1, le=100)] = 1.3


class Polynomial(Settings):
    """s(tau) = (1 + tau)^-a (FedAsync; FedBuff's a is 0.5)."""

    kind: Literal["polynomial"] = "polynomial"
    a: Positive = 0.5


class Hinge(Settings):
    """s(tau) = 1 up to b, then 1 / (a (tau - b) + 1) (FedAsync)."""

    kind: Literal["hinge"] = "hinge"
    a: Positive = 10.0
    b: Whole = 4


class Buffer(Settings):
    """The server is asynchronous: m clients train at any time, and a round ends when `size` updates have arrived.

    FedBuff (Nguyen et al., AISTATS 2022); with size 1 and the algorithm `fedasync`, FedAsync (Xie et al., 2019).

    size: K of FedBuff. m is the concurrency: whenever fewer than m clients train, the sampler is asked who is next.
    staleness: weight of an update by tau, the rounds that ended since its client received the model. None: 1.
    divide: by the "size" of the buffer, so that stale updates make a step shorter, or by the sum of the "weights".
    oldest: updates with a larger tau are dropped.
    """

    kind: Literal["buffer"] = "buffer"
    size: Count
    staleness: Annotated[Polynomial | Hinge, Field(discriminator="kind")] | None = optional()
    divide: Literal["size", "weights"] = "size"
    oldest: Whole | None = optional()

    @model_validator(mode="after")
    def _possible(self) -> Buffer:
        if self.divide == "weights" and self.staleness is None:
            raise ValueError(
                "without staleness the weights sum to the size; set staleness, or leave divide out"
            )
        return self


Rate = Annotated[Equal | ByLabel | BySize | LogNormal, Field(discriminator="kind")]
Process = Annotated[Bernoulli | Markov | Cyclic, Field(discriminator="kind")]
Pattern = Annotated[Sine | Staircase | LabelCycle, Field(discriminator="kind")]
Ends = Annotated[Wait | Deadline | First | Buffer, Field(discriminator="kind")]


class World(Settings):
    """See the module docstring. Every sampler meets the same world: it has a random stream of its own.

    mean: share of clients that are there, on average over clients and time. least: no client's availability is lower.
    shocks: what happens to all clients at once. None: absences are independent between clients.
    slot: seconds after which availability is drawn anew, however long a round is. None: it is drawn once a round.
    trace: recorded availability in place of mean, rate, process, pattern and shocks.
    speeds: None: every answer takes one second, so the clock counts rounds.
    ends: when a round ends. late: updates that come later are dropped, or kept and added when they arrive; until then
        their client is busy, that is absent.
    leave: when a client that trains goes away before it has answered. None: it stays until then.
    absences: "visible": the server selects among the clients that are there. "hidden": it selects among all, and absent
        ones do not answer. "all": every client that is there trains, whatever m is (MIFA, FedAU, FedAWE).
    """

    mean: Annotated[float, Field(gt=0, le=1)] = 1.0
    least: Share = 0.0
    rate: Rate = Equal()
    process: Process = Bernoulli()
    pattern: Pattern | None = optional()
    shocks: Shocks | None = optional()
    slot: Annotated[float, Field(ge=1e-6, le=1e9)] | None = optional()
    trace: Trace | None = optional()
    speeds: Speeds | None = optional()
    ends: Ends = Wait()
    late: Literal["drop", "keep"] = "drop"
    leave: Leave | None = optional()
    absences: Literal["visible", "hidden", "all"] = "visible"

    @model_validator(mode="after")
    def _possible(self) -> World:
        if self.least > self.mean:
            raise ValueError(f"least = {self.least} must not be above mean = {self.mean}")
        stated = {"mean", "rate", "process", "pattern", "shocks", "slot"}
        if self.trace and any(getattr(self, key) != World.model_fields[key].default for key in stated):
            raise ValueError(
                "a trace says who is there; leave mean, rate, process, pattern, shocks and slot out"
            )
        if self.leave and self.leave.seconds is None and not self.trace:
            raise ValueError("only a trace says when clients leave; set leave.seconds, or add a trace")
        if isinstance(self.ends, First) and self.absences == "all":
            raise ValueError("where all clients train, m has no meaning; end rounds by wait or deadline")
        if self.late == "keep" and isinstance(self.ends, Wait):
            raise ValueError("no update is late where rounds wait for all; end rounds by deadline or first")
        if isinstance(self.ends, Buffer):
            self._buffered()
        return self

    def _buffered(self) -> None:
        """Raises ValueError where a server without rounds leaves a key without meaning."""
        if self.absences != "visible":
            raise ValueError(
                "a server with a buffer fills a slot at once, so it must see who is there; leave absences out"
            )
        if self.late == "keep":
            raise ValueError("in a buffer no update is late, each joins when it arrives; leave late out")
        if self.mean < 1 and self.slot is None:
            raise ValueError(
                "a buffer has no common rounds for availability to follow; set slot, the seconds after which it is "
                "drawn anew"
            )
