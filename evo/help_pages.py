"""What is told of each command, in the order of `evo help`. A test holds defaults to conf/ and to the commands."""

from collections.abc import Mapping
from types import MappingProxyType

from evo.help import HelpPage, Word

_BACKEND = Word(
    name="backend", default="auto", meaning="what runs kernels; auto: a GPU where one is found, else the host"
)
_BASELINE = Word(
    name="baseline", default="auto", meaning="what speedups are over; auto: fa3 on sm_90, fa4 on sm_100, else sdpa"
)
_SUITE = Word(
    name="suite",
    default="auto",
    meaning="the shapes that are checked and timed; auto: core26 on a GPU, smoke on the host",
)
_DEVICE = Word(name="backend.device", default="null", meaning="a GPU's index; null: those of the pool")
_RUN = Word(name="RUN", meaning="a run's folder, or its name below runs/")

HELP_PAGES: Mapping[str, HelpPage] = MappingProxyType(
    {
        "evolve": HelpPage(
            arguments="[key=value …] [-m]",
            summary="search; -m sweeps over comma-separated values; resume=RUN goes on with a run",
            does="Searches for a faster attention kernel by questions, until a stop condition holds. The run lies in "
            "runs/NAME, with result.json at its end. Exit code 0 where a kernel passed, 1 where none did.",
            words=(
                Word(name="-m", meaning="a sweep: a run for each combination of comma-separated values"),
                Word(name="resume", default="null", meaning="a run, or with -m a sweep, to go on with"),
                Word(name="name", default="null", meaning="the run's folder below runs/; null: date and time"),
                Word(
                    name="seeds",
                    default="null",
                    meaning="kernels to begin with, as in seeds=[mma,my.cu]; null: mma on a GPU, tiled on the host",
                ),
                Word(name="rng_seed", default="0", meaning="from which every generator of the run is seeded"),
                Word(name="stop.evaluations", default="60", meaning="candidates to measure; null: no limit"),
                Word(name="stop.target_geomean", default="null", meaning="end at this geometric mean speedup"),
                Word(name="stop.wall_time_s", default="null", meaning="end after so many seconds"),
                Word(name="stop.spend_usd", default="null", meaning="end after so many US dollars for the answerer"),
                Word(name="evolution.mu", default="6", meaning="individuals that survive a generation"),
                Word(name="evolution.lambda_", default="6", meaning="children asked for in a generation"),
                Word(name="answerer.model", default="null", meaning="the model's name, where answerer=openai"),
                _BACKEND,
                _BASELINE,
                _SUITE,
                Word(name="answerer", default="offline", meaning="who answers; offline: knobs alone, no model"),
                Word(name="style", default="question", meaning="how questions are put"),
                Word(name="evolution", default="generational", meaning="when candidates compete"),
                Word(name="selection", default="tournament", meaning="who becomes a parent, and who survives"),
                Word(name="pool", default="local", meaning="whose GPUs measure: this machine's, or a Ray cluster's"),
                Word(name="logger", default="none", meaning="which program is told of the figures"),
                Word(name="experiment", default="null", meaning="a whole set of options, laid over the others"),
            ),
            examples=(
                "evo evolve backend=host stop.evaluations=20",
                "evo evolve answerer=openai answerer.model=NAME stop.spend_usd=5",
                "evo evolve -m style=question,imperative rng_seed=0,1,2",
            ),
            configured=True,
        ),
        "verify": HelpPage(
            arguments="KERNEL.cu [key=value …]",
            summary="compile, check, time and score one kernel; --json; exit 0 viable, 1 not viable",
            does="Judges one kernel as a search does: compiles it, checks it against an fp32 reference on every shape, "
            "times it beside the baseline, scores it. Exit code 0 where it is right everywhere, 1 where it is not.",
            words=(
                Word(name="KERNEL.cu", meaning="a file, or the name of a shipped kernel: mma, tiled, …"),
                Word(name="--json", meaning="the whole evaluation as JSON"),
                Word(name="audit", default="null", meaning="true: look again as at a run's best (docs/audit.md)"),
                _BACKEND,
                _BASELINE,
                _SUITE,
                _DEVICE,
            ),
            examples=("evo verify tiled backend=host", "evo verify my.cu suite=core8 --json"),
            configured=True,
        ),
        "ask": HelpPage(
            arguments="RUN [n=8] [key=value …]",
            summary="write the next prompts to RUN/outbox; begins a run that is not there",
            does="Puts the next questions of a search by files into RUN/outbox, for any model or person to answer; a "
            "run that is not there begins, with the key=value of evo evolve. Exit code 1 where its search is over.",
            words=(
                _RUN,
                Word(name="n=8", meaning="how many questions; left out: evolution.lambda_, which is 6"),
                Word(
                    name="seeds",
                    default="null",
                    meaning="kernels to begin with, as in seeds=[mma]; to be named where a run begins",
                ),
                Word(name="suite", default="auto", meaning="the shapes to be timed; to be named where a run begins"),
                Word(name="answerer.model", default="null", meaning="who answers; else evo tell says it by model=NAME"),
            ),
            examples=("evo ask mine n=4 suite=core26 seeds=[mma] answerer.model=NAME", "evo ask mine"),
            configured=True,
        ),
        "tell": HelpPage(
            arguments="RUN [partial=true]",
            summary="take in RUN/inbox and RUN/measured, and go on as far as they go",
            does="Takes in the replies in RUN/inbox, each under its prompt's name, and what evo evaluate has measured; "
            "then says what the search waits for next.",
            words=(
                _RUN,
                Word(name="partial", default="false", meaning="true: go on without the replies that are missing"),
                Word(name="model=NAME", meaning="who answered, where answerer.model is not set"),
                Word(name="used_tools", default="false", meaning="true: whoever answered used tools"),
            ),
            examples=("evo tell mine model=NAME",),
        ),
        "evaluate": HelpPage(
            arguments="RUN [backend.…=value …]",
            summary="measure RUN/pending into RUN/measured, on any machine that holds the two",
            does="Measures the candidates in RUN/pending into RUN/measured. The two folders may be carried to a "
            "machine with a GPU and back, without network or key. Exit code 1 where a file could not be used.",
            words=(_RUN, _DEVICE),
            examples=("evo evaluate mine backend.device=0",),
        ),
        "questions": HelpPage(
            arguments="list|add|lint|promote",
            summary='the bank, and what its questions brought; add RUN "…?" asks a running search',
            does="Shows questions and what they brought, puts a person's question to a search, checks files of them.",
            words=(
                Word(name="list [RUN]", meaning="the bank, or what each question brought in a run"),
                Word(name='add RUN "…?"', meaning="ask this next; layer=algorithm says which layer it is about"),
                Word(
                    name="lint [FILES…]",
                    meaning="check the bank and further files; exit code 1 where something is found",
                ),
                Word(
                    name="promote RUNS…",
                    meaning="people's questions that recurred or gained, as entries of a bank; --out FILE",
                ),
            ),
            examples=('evo questions add mine "Is the tail effect worse for causal masks?" layer=schedule',),
        ),
        "kernels": HelpPage(
            arguments="add|merge RUN …",
            summary="add KERNEL.cu… [parents=ID,ID] puts one's own to a run; merge ID ID joins two",
            does="Puts a person's kernels to a search, to be judged beside the next generation's children. Exit code 1 "
            "where the search is over, or two kernels cannot be joined as they are.",
            words=(
                Word(name="add RUN KERNEL.cu…", meaning="put these to the run; parents=ID,ID says what they came from"),
                Word(name="merge RUN ID ID", meaning="join two of its kernels over their nearest common ancestor"),
            ),
            examples=("evo kernels add mine my.cu parents=k0123456789",),
        ),
        "compare": HelpPage(
            arguments="RUNS… [by=style]",
            summary="statistics over runs, in groups; --csv FILE, --json FILE, --plot FILE.png|.svg",
            does="Compares groups of runs: exact tests, effect sizes, times to a target, and whether the runs suffice.",
            words=(
                Word(name="RUNS…", meaning="runs, sweeps or folders of them, or the traces of runs"),
                Word(name="by", default="style", meaning="the option whose values make the groups"),
                Word(
                    name="outcome",
                    default="equal_evaluations",
                    meaning="a run's one number: best, equal_evaluations, equal_spend or area",
                ),
                Word(name="target=1.2", meaning="also tell how soon runs came to this geometric mean"),
                Word(name="--csv FILE", meaning="a row a run"),
                Word(name="--json FILE", meaning="everything"),
                Word(name="--plot FILE.png|.svg", meaning="the ways to the best (extra: plot)"),
            ),
            examples=("evo compare runs/my-sweep by=style target=1.1 --csv runs.csv",),
        ),
        "report": HelpPage(
            arguments="RUN [--out FILE]",
            summary="what happened in a run, as one HTML file: report.html in its folder",
            does="Writes a run's report: the way to the best, the champion's line, scenarios, questions, audits, cost.",
            words=(_RUN, Word(name="--out FILE", meaning="write there; left out: report.html in the run's folder")),
            examples=("evo report mine --out mine.html",),
        ),
        "watch": HelpPage(
            arguments="RUN [RUN…] [port=8765]",
            summary="the same, live, for a browser on this machine, while the search goes on",
            does="Serves the reports of runs, renewed as they go on, until Ctrl-C ends it. The searches go on.",
            words=(
                _RUN,
                Word(name="port", default="8765", meaning="0: any that is free"),
                Word(name="host", default="127.0.0.1", meaning="whoever reaches another address can read the runs"),
            ),
            examples=("evo watch mine other port=0",),
        ),
        "runs": HelpPage(
            arguments="[FOLDER] [--json]",
            summary="every run below a folder: its state, its best, what it has cost",
            does="Lists the runs in and below a folder, sweeps' jobs too, one a line, beside running searches.",
            words=(
                Word(name="FOLDER", meaning="where to look; left out: runs"),
                Word(name="--json", meaning="the same as JSON, units in the names"),
            ),
            examples=("evo runs | grep finished",),
        ),
        "table": HelpPage(
            arguments="RUNS… --out FILE.jsonl.xz",
            summary="what runs measured, for backend=recorded to answer from without a device",
            does="Gathers what runs measured on one device, suite and baseline into a table, in which a search can "
            "look up kernels without a device.",
            words=(
                Word(name="RUNS…", meaning="runs, sweeps or folders of them"),
                Word(name="--out FILE", meaning="ends in .jsonl, .jsonl.gz or .jsonl.xz"),
            ),
            examples=("evo table runs/my-sweep --out table.jsonl.xz",),
        ),
        "trace": HelpPage(
            arguments="export|replay",
            summary="a run as one file, export RUN [--out FILE]; the same search from it, replay FILE",
            does="Makes one file of a run, and from that file the same search again, without a model and without a "
            "device. Exit code 1 where a replay came to another result.",
            words=(
                Word(name="export RUN", meaning="to the standard output, or --out FILE; .xz and .gz compress"),
                Word(name="replay FILE", meaning="into runs/replay-RUN; name=NAME calls it otherwise"),
            ),
            examples=("evo trace export mine --out mine.jsonl.xz", "evo trace replay mine.jsonl.xz name=again"),
        ),
        "doctor": HelpPage(
            arguments="[key=value …]",
            summary="what this machine has, and what to install for what it lacks",
            does="Lists GPUs, compilers, baselines and the answerer's key as they are found here, and what a run would "
            "use. Exit code 2 where nothing can be judged here as configured.",
            words=(_BACKEND, _BASELINE, _SUITE),
            examples=("evo doctor backend=cuda",),
            configured=True,
        ),
    }
)
