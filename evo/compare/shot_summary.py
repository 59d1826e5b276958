"""Single shots worked out: what each style led to, which of any two was ahead, and what a layer or a warning told."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from evo.compare.funnel import Funnel
from evo.compare.shots import Shot
from evo.compare.statistics import MeanGain, mean_gain
from evo.compare.style_pairs import StylePair, style_pairs
from questions.question import Style

_IN_ORDER = [str(style) for style in Style]


@dataclass(frozen=True, kw_only=True)
class StyleOutcome:
    """All shots of one style."""

    style: str
    funnel: Funnel
    gain: MeanGain | None  # over the parent, of the right kernels; None where there is none
    median_gain: float | None
    reply_characters: int  # the median of the replies; 0 where there is none
    promised: int  # right kernels whose reply names a gain
    some_scenario: int  # those of them of which some scenario gained as much
    promised_faster: int  # those of them that are faster than their parents at all, beyond noise


@dataclass(frozen=True, kw_only=True)
class LayerOutcome:
    """The shots about one layer, in one style."""

    layer: str
    style: str
    shots: int
    gain: MeanGain | None


@dataclass(frozen=True, kw_only=True)
class ShotComparison:
    """All that is shown or written of single shots."""

    shots: tuple[Shot, ...]
    styles: tuple[StyleOutcome, ...]
    pairs: tuple[StylePair, ...]
    layers: tuple[LayerOutcome, ...]
    unwarned: MeanGain | None  # gain of right kernels, all styles together, of which the compiler had no advisory
    warned: MeanGain | None  # and of the others


def compare_shots(shots: Sequence[Shot]) -> ShotComparison:
    """The styles in the order of the documentation, and each two of them."""
    names = sorted({shot.style for shot in shots}, key=_IN_ORDER.index)
    layers = sorted({shot.layer for shot in shots})
    right = [shot for shot in shots if shot.funnel.right]
    return ShotComparison(
        shots=tuple(shots),
        styles=tuple(_style(name, [shot for shot in shots if shot.style == name]) for name in names),
        pairs=style_pairs(shots, names),
        layers=tuple(
            _layer(layer, name, [shot for shot in shots if (shot.layer, shot.style) == (layer, name)])
            for layer in layers
            for name in names
        ),
        unwarned=_mean_gain(shot for shot in right if shot.funnel.unwarned),
        warned=_mean_gain(shot for shot in right if not shot.funnel.unwarned),
    )


def _style(name: str, shots: Sequence[Shot]) -> StyleOutcome:
    told = [shot for shot in shots if shot.promised is not None and shot.best_scenario is not None]
    gains = _gains(shots)
    return StyleOutcome(
        style=name,
        funnel=sum((shot.funnel for shot in shots), Funnel()),
        gain=_mean_gain(shots),
        median_gain=median(gains) if gains else None,
        reply_characters=round(median([shot.reply_characters for shot in shots if shot.reply_characters] or [0])),
        promised=len(told),
        some_scenario=sum((shot.best_scenario or 0.0) >= (shot.promised or 0.0) for shot in told),
        promised_faster=sum(shot.funnel.faster for shot in told),
    )


def _layer(layer: str, style: str, shots: Sequence[Shot]) -> LayerOutcome:
    return LayerOutcome(layer=layer, style=style, shots=len(shots), gain=_mean_gain(shots))


def _mean_gain(shots: Iterable[Shot]) -> MeanGain | None:
    gains = _gains(shots)
    return mean_gain(gains) if gains else None


def _gains(shots: Iterable[Shot]) -> list[float]:
    return [shot.gain for shot in shots if shot.gain is not None]
