"""The one list of settings of a run.

`sample` and `stream` take these fields by name, the command line makes its options from them, and
the journal holds them so that a run can be resumed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from quorate._types import Array
from quorate.data.cut import Cut
from quorate.engines.faults import Faults
from quorate.engines.options import ENGINES, EngineOptions
from quorate.errors import BadInputError, require
from quorate.models.protocol import Model
from quorate.passes.first_fit import Before
from quorate.passes.inquiry import Inquiry
from quorate.protocol.exact import ExactScheme
from quorate.protocol.patience import Limits
from quorate.protocol.scheme import Scheme, SchemeOptions, Setup
from quorate.protocol.schemes import SCHEMES, chosen
from quorate.run.progress import Listener
from quorate.run.stopping import Until
from quorate.samplers import make_sampler
from quorate.samplers.own import Draws
from quorate.samplers.protocol import Sampler

TASKS_PER_SHARD = 20  # about; fewer let workers change the shard less often
_LARGEST_TASK = 1000  # draws, for runs that are asked for very many and end before
OnLostShard = Literal["raise", "exclude"]
Method = Literal["exact", "merge"]
METHODS: tuple[Method, ...] = ("exact", "merge")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything about a run but the model and the data.

    Parameters
    ----------
    method
        Draw from the posterior itself, by passes over all shards (exact, the default), or combine
        draws of single shards, as in the paper (merge). It is merge if you name a sampler or let a
        run exclude shards: only merges have these.
    workers
        Number of workers K, and of shards. There may be more workers than cores.
    redundancy
        Number of shards r that each worker holds: 2 by default, but 1 for one worker or for cmc.
    scheme
        Name of the scheme. In Python also an object such as `Coded(redundancy=3)`.
    engine
        Where workers live: process or ray. In Python also an object such as `Processes(4)`.
    sampler
        Name of the sampler that workers draw with, in a merge. In Python also an object such as
        `EllipseSampler(thin=2)`, or a function of your own that yields draws.
    draws
        Number of global draws to get.
    seed
        Random seed.
    until
        When to stop earlier: an object such as `Until(time=60, ess=400)`, or "time:60,ess:400".
    by
        How rows are cut into shards: shuffle, files, stratify:COLUMN, group:COLUMN, in-place, or a
        `Cut`. By default rows are shuffled; those of a model with groups stay together by group.
    faults
        Delays and deaths put in on purpose: a `Faults` object, or "slow:1x10,dead:2@5".
    on_lost_shard
        What to do when no living worker holds a shard: raise an error, or exclude its rows.
    run_dir
        Folder for shards, journal and logs. By default a temporary one; on the command line,
        `runs/DATE-NAME` in the current directory.
    progress
        Whether to show progress; or a function to call with a `quorate.run.progress.Progress`.
    every
        Seconds between two reports of progress, or two results of a stream.
    check
        Check the draws against the posterior at the end. The verdict is in
        `Result.verdict`. A check takes at most a quarter of the time of the run, or ten seconds if
        that is more.
    """

    method: Method | None = None
    workers: int = 8
    redundancy: int | None = None
    scheme: str | SchemeOptions = "adaptive"
    engine: str | EngineOptions = "process"
    sampler: str | Draws | Sampler = "auto"
    draws: int = 2000
    seed: int = 1
    until: str | Until | None = None
    by: str | Cut | None = None
    faults: str | Faults | None = None
    on_lost_shard: OnLostShard = "raise"
    run_dir: str | Path | None = None
    progress: bool | Listener = True
    every: float = 0.5
    check: bool = True

    def __post_init__(self) -> None:
        draws, lost = self.draws, self.on_lost_shard
        require(
            isinstance(draws, int) and draws >= 1,
            f"draws must be a whole number, at least 1, not {draws!r}.",
        )
        require(self.every >= 0, f"every must be 0 seconds or more, not {self.every}.")
        require(
            lost in ("raise", "exclude"),
            f"on_lost_shard must be 'raise' or 'exclude', not {lost!r}.",
        )
        self._check_method()
        if self.chosen_method == "merge":
            self.cut.require_mergeable(self.method == "merge")
        scheme = self.scheme_options
        scheme.shards_per_worker(self.workers)
        require(
            lost == "raise" or scheme.can_leave_out,
            f"The scheme {scheme.name} cannot leave shards out. Use on_lost_shard='raise', or "
            "another scheme.",
        )
        self.chosen_faults.handicaps(self.workers)
        _ = self.engine_options, self.chosen_sampler, self.chosen_until  # refused now, if at all

    def _check_method(self) -> None:
        method, is_exact = self.method, self.method == "exact"
        require(method in (None, *METHODS), f"method must be 'exact' or 'merge', not {method!r}.")
        require(
            not is_exact or self.on_lost_shard == "raise",
            "An exact run needs all shards. Use on_lost_shard='raise', or method='merge'.",
        )
        require(
            not is_exact or self._has_default_sampler,
            "An exact run draws by passes over all shards, without a sampler. Leave out sampler, "
            "or use method='merge'.",
        )

    # ------------------------------------------------------------ objects for names

    @property
    def chosen_method(self) -> Method:
        """The method; where none is named, the one that has all that is asked for."""
        if self.method is not None:
            return self.method
        needs_merge = self.on_lost_shard == "exclude" or not self._has_default_sampler
        return "merge" if needs_merge else "exact"

    @property
    def _has_default_sampler(self) -> bool:
        return isinstance(self.sampler, str) and self.sampler == "auto"

    @property
    def scheme_options(self) -> SchemeOptions:
        """The scheme with its options."""
        return chosen(self.scheme, {"redundancy": self.redundancy})

    @property
    def engine_options(self) -> EngineOptions:
        """The engine with its options."""
        return ENGINES.chosen(self.engine)

    @property
    def chosen_sampler(self) -> Sampler:
        """The sampler."""
        return make_sampler(self.sampler)

    @property
    def chosen_until(self) -> Until:
        """The limits of a sitting."""
        return _read(Until, self.until)

    @property
    def chosen_faults(self) -> Faults:
        """Delays and deaths put in on purpose."""
        return _read(Faults, self.faults)

    @property
    def cut(self) -> Cut:
        """How rows are cut into shards."""
        return self.by if isinstance(self.by, Cut) else Cut(self.by)

    # ------------------------------------------------------------ what a run makes of them

    @property
    def shards_per_worker(self) -> int:
        """r, the number of shards that each worker holds; always 1 for CMC."""
        return self.scheme_options.shards_per_worker(self.workers)

    def make_scheme(self, dim: int) -> Scheme:
        """The scheme, for one run."""
        block_size = max(1, min(self.draws // TASKS_PER_SHARD, _LARGEST_TASK))
        setup = Setup(self.workers, dim, self.draws, block_size, self.seed)
        return self.scheme_options.start(setup)

    def make_exact_scheme(
        self,
        start: Array,
        names: Sequence[str],
        *,
        has_gradient: bool,
        before: Before | None = None,
    ) -> ExactScheme:
        """The scheme of an exact run, of a model with these coordinates and this start.

        `before` is the fit of the run that rows were added to, if there is one.
        """
        inquiry = Inquiry(
            start, names, self.draws, self.seed, has_gradient=has_gradient, before=before
        )
        sums = self.scheme_options.sums(self.workers, self.seed)
        devices = self.engine_options.device_workers(self.workers)
        return ExactScheme(sums, inquiry, devices if len(devices) < self.workers else ())

    def limits(self) -> Limits:
        """How much the supervisor tolerates."""
        return Limits(restarts=self.engine_options.restarts)

    def for_model(self, model: Model) -> "Settings":
        """These settings with the cut that the model needs. Cuts that tear groups are refused."""
        cut, encoding = self.cut, getattr(model, "encoding", None)
        if encoding is not None and cut.transform is None:
            made = encoding.cut(cut.by)
            made_by = {**made.made_by, **(cut.made_by or {})}
            cut = replace(made, made_by=made_by, scratch=cut.scratch)
        return replace(self, by=cut.settled(getattr(model, "group_columns", "")))

    def without_faults(self, **changes: Any) -> "Settings":
        """These settings for another sitting: with changes, and with no more faults."""
        return replace(self, faults=None, **changes)

    # ------------------------------------------------------------ in the journal

    def as_json(self) -> dict[str, Any]:
        """The settings that a resumed run needs, as JSON values."""
        return {
            "method": self.chosen_method,
            "workers": self.workers,
            "scheme": SCHEMES.as_json(self.scheme_options),
            "engine": ENGINES.as_json(self.engine_options),
            "sampler": self.chosen_sampler.name,
            "draws": self.draws,
            "seed": self.seed,
            "until": asdict(self.chosen_until),
            "by": self.cut.chosen,
            "faults": asdict(self.chosen_faults),
            "on_lost_shard": self.on_lost_shard,
        }

    @classmethod
    def from_json(cls, kept: Any) -> "Settings":
        """The settings that `as_json` wrote; the sampler is kept with the model, not here."""
        try:
            values: dict[str, Any] = {"method": "merge"} | dict(kept)  # first journals name none
            del values["sampler"]
            values["scheme"] = SCHEMES.from_json(values["scheme"])
            values["engine"] = ENGINES.from_json(values["engine"])
            values["until"] = Until(**values["until"])
            values["faults"] = Faults(**values["faults"])
            return cls(**values)
        except (TypeError, ValueError, KeyError) as error:
            if isinstance(error, BadInputError):
                raise
            raise BadInputError(
                f"These are not the settings of a run: {kept!r}. Read the run with the quorate "
                "that made it, or a later one."
            ) from None


def _read(kind: type[T], given: str | T | None) -> T:
    """An object as it is, or made from "name:value,name:value"."""
    if given is None:
        return kind()
    if not isinstance(given, str):
        return given
    types = {field.name: str(field.type) for field in fields(kind)}  # type: ignore[arg-type]
    listed = ", ".join(f"{name}:VALUE" for name in types)
    values: dict[str, object] = {}
    for part in given.split(","):
        name, colon, value = part.strip().partition(":")
        try:
            values[name] = float(value) if "float" in types[name] else value
        except (KeyError, ValueError):
            colon = ""
        require(bool(colon and value), f"Cannot read {given!r}. Write some of {listed}.")
    return kind(**values)


def described(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings from a journal in words and values, for people: options beside their names."""
    shown: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            options = dict(value)
            if "name" in options:
                shown[name] = options.pop("name")
            shown |= {key: found for key, found in options.items() if found is not None}
        else:
            shown[name] = value
    return shown
