"""The schema of the configuration, one dataclass a Hydra group. Values and their comments are in conf/.

Hydra wants these mutable and their choices as Enums; nothing past evo/cli.py sees a DictConfig.
"""

from dataclasses import dataclass, field
from enum import Enum

from omegaconf import MISSING

from evo.pool_config import PoolConfig


class BackendKind(Enum):
    """Where candidates run."""

    auto = "auto"
    cuda = "cuda"
    host = "host"
    recorded = "recorded"


class BaselineKind(Enum):
    """What candidates are measured against."""

    auto = "auto"
    best = "best"
    fa3 = "fa3"
    fa4 = "fa4"
    cudnn = "cudnn"
    sdpa = "sdpa"


class AnswererKind(Enum):
    """Who answers the questions."""

    offline = "offline"
    openai = "openai"
    replay = "replay"
    mailbox = "mailbox"


class StyleKind(Enum):
    """How a question's content is phrased."""

    question = "question"
    imperative = "imperative"
    information = "information"
    prescription = "prescription"
    open = "open"
    bare = "bare"


class SelectionKind(Enum):
    """How parents and survivors are chosen."""

    tournament = "tournament"
    lexicase = "lexicase"


class SamplingKind(Enum):
    """How the next question is drawn from those that fit the moment."""

    thompson = "thompson"
    uniform = "uniform"


class LoggerKind(Enum):
    """Which program is told of a run's figures."""

    none = "none"
    tensorboard = "tensorboard"
    mlflow = "mlflow"


class ElementKind(Enum):
    """The element type of a scenario."""

    bf16 = "bf16"
    fp16 = "fp16"


class DistributionKind(Enum):
    """What a scenario's inputs are drawn from."""

    normal = "normal"
    peaked = "peaked"
    large = "large"
    dominant = "dominant"
    shifted = "shifted"
    small = "small"


class EvolutionKind(Enum):
    """When judged candidates compete."""

    generational = "generational"
    steady = "steady"


class ApiKind(Enum):
    """Which protocol of an OpenAI-compatible server is spoken."""

    chat = "chat"
    responses = "responses"


@dataclass
class BackendConfig:
    """conf/backend"""

    kind: BackendKind = BackendKind.auto
    device: int | None = None
    claim: bool | None = None
    threads: int = 1
    run_model_code: bool = False
    cache: str | None = None
    compile_processes: int = 0
    compile_timeout_s: float = 60.0
    table: str | None = None


@dataclass
class BaselineConfig:
    """conf/baseline"""

    kind: BaselineKind = BaselineKind.auto


@dataclass
class ScenarioConfig:
    """One shape of a suite."""

    batch: int = MISSING
    heads: int = MISSING
    kv_heads: int | None = None
    seqlen_q: int = MISSING
    seqlen_k: int | None = None
    head_dim: int = MISSING
    causal: bool = MISSING
    element_type: ElementKind = ElementKind.bf16


@dataclass
class SuiteConfig:
    """conf/suite"""

    name: str = "auto"
    edges: bool = True
    timed: bool = True
    distributions: list[DistributionKind] | None = None
    long_seqlen_k: int | None = None  # from so many keys on all but the first distribution is judged on some rows
    repeats: int | None = None
    least_repeats: int | None = None
    scenarios: list[ScenarioConfig] = field(default_factory=list)


@dataclass
class JudgeConfig:
    """How strictly and how long a candidate is measured; null takes what suits the backend."""

    repeats: int | None = None
    warmups: int | None = None
    precision: float | None = None
    race: bool = False
    call_timeout_s: float = 20.0


@dataclass
class AnswererConfig:
    """conf/answerer"""

    kind: AnswererKind = AnswererKind.offline
    model: str | None = None
    base_url: str | None = None
    api_key_env: str = "OPENAI_API_KEY"
    api: ApiKind = ApiKind.chat
    max_tokens: int = 32768
    temperature: float | None = None
    timeout_s: float = 900.0
    max_retries: int = 5
    concurrency: int = 8
    tools: bool = False
    tool_calls: int = 8
    usd_per_million_prompt_tokens: float = 0.0
    usd_per_million_completion_tokens: float = 0.0
    replay_from: str | None = None


@dataclass
class StyleConfig:
    """conf/style"""

    kind: StyleKind = StyleKind.question
    template: str | None = None
    budget_tokens: int = 60000


@dataclass
class EvolutionConfig:
    """conf/evolution"""

    kind: EvolutionKind = EvolutionKind.generational
    mu: int = 6
    lambda_: int = 6
    elites: int = 1
    crossover_probability: float = 0.15
    hall_of_fame: int = 10
    keep_checkpoints: int = 3


@dataclass
class SelectionConfig:
    """conf/selection"""

    kind: SelectionKind = SelectionKind.tournament
    tournament_size: int = 3


@dataclass
class StopConfig:
    """conf/stop; null switches a condition off."""

    target_geomean: float | None = None
    evaluations: int | None = None
    generations: int | None = None
    wall_time_s: float | None = None
    spend_usd: float | None = None
    stall_evaluations: int | None = None
    barren_generations: int = 10


@dataclass
class QuestionsConfig:
    """The bank, how it is sampled, and when a lineage counts as stalled."""

    files: list[str] = field(default_factory=list)
    sampling: SamplingKind = SamplingKind.thompson
    all_styles: bool = False
    stall_after: int = 8
    noise: float = 0.01
    big_win: float = 1.3


@dataclass
class LoggerConfig:
    """conf/logger"""

    kind: LoggerKind = LoggerKind.none
    tracking_uri: str = "file:./mlruns"
    experiment: str = "question-evo"


@dataclass
class SingleShotConfig:
    """An experiment in place of a search: so many questions about each seed, each in every style; null: a search."""

    questions: int | None = None
    styles: list[StyleKind] = field(default_factory=lambda: list(StyleKind))


@dataclass
class Config:
    """The whole of one run's configuration."""

    name: str | None = None
    runs: str = "runs"
    seeds: list[str] | None = None
    rng_seed: int = 0
    resume: str | None = None
    audit: bool | None = None
    backend: BackendConfig = field(default_factory=BackendConfig)
    baseline: BaselineConfig = field(default_factory=BaselineConfig)
    suite: SuiteConfig = field(default_factory=SuiteConfig)
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    pool: PoolConfig = field(default_factory=PoolConfig)
    answerer: AnswererConfig = field(default_factory=AnswererConfig)
    style: StyleConfig = field(default_factory=StyleConfig)
    questions: QuestionsConfig = field(default_factory=QuestionsConfig)
    single_shot: SingleShotConfig = field(default_factory=SingleShotConfig)
    evolution: EvolutionConfig = field(default_factory=EvolutionConfig)
    selection: SelectionConfig = field(default_factory=SelectionConfig)
    stop: StopConfig = field(default_factory=StopConfig)
    logger: LoggerConfig = field(default_factory=LoggerConfig)

    @property
    def asked_styles(self) -> list[str]:
        """The styles that questions are put in: a search's own, or all of a single shot."""
        single = self.single_shot.questions is not None
        return [style.value for style in (self.single_shot.styles if single else [self.style.kind])]
