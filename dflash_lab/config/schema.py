"""One drafter config from any dialect: what DFlash's arithmetic needs to know, under one set of names.

A `DrafterConfig` stands for one JSON object, which it keeps: `to_json` gives it back, and an edit changes it
where the field stood. The rules here are z-lab's (package 0.1.0); other engines' are in `readers`.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Literal, Self

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator
from pydantic import ConfigDict as ModelConfig

from dflash_lab.config import dialects
from dflash_lab.config.defaults import completed, default_taps
from dflash_lab.config.dialects import Dialect
from dflash_lab.config.errors import ConfigError
from dflash_lab.config.fields import FIELDS, FieldInfo
from dflash_lab.config.shapes import check_shapes, weight_shapes

__all__ = [
    "FIELDS",
    "ConfigError",
    "Dialect",
    "DrafterConfig",
    "FieldInfo",
    "LayerAttention",
    "check_shapes",
    "default_taps",
    "weight_shapes",
]

LayerType = Literal["full_attention", "sliding_attention"]

EDITABLE = (*dialects.STACK_FIELDS, *dialects.DRAFT_FIELDS, *dialects.TOP_FIELDS, "rope_parameters")


@dataclass(frozen=True, slots=True)
class LayerAttention:
    """What a drafter layer's queries see.

    | causal | window | two_sided | keys seen |
    | --- | --- | --- | --- |
    | no | none | no | all |
    | yes | none | no | k <= q |
    | yes | W | no | k <= q and q - k < W |
    | no | W | yes | abs(q - k) < W |
    """

    causal: bool
    window: int | None = None
    two_sided: bool = False


class DrafterConfig(BaseModel):
    """A drafter's config, read with `from_json`; frozen, changed only by `edited`, which makes another.

    `raw` is the JSON object it stands for and must not be changed; `extra` its keys no field stands for.
    `target_layer_ids` are 0-based layer outputs in the file's order in every dialect; -1 is the embedding.
    """

    model_config = ModelConfig(frozen=True, extra="forbid", strict=True)

    dialect: Dialect
    raw: dict[str, Any] = Field(repr=False)
    extra: dict[str, Any] = Field(default_factory=dict, repr=False)

    architectures: tuple[str, ...] = ()
    hidden_size: int = Field(gt=0)
    intermediate_size: int = Field(gt=0)
    num_hidden_layers: int = Field(gt=0, le=1024)
    num_attention_heads: int = Field(gt=0)
    num_key_value_heads: int = Field(gt=0)
    head_dim: int = Field(gt=0)
    vocab_size: int = Field(default=151936, gt=0)
    attention_bias: bool = False
    attention_sink_bias: bool | None = None
    hidden_act: str = "silu"
    rms_norm_eps: float = Field(default=1e-6, ge=0, allow_inf_nan=False)
    rope_parameters: dict[str, Any]
    max_position_embeddings: int = Field(default=32768, gt=0)

    block_size: int = Field(default=16, ge=1)
    mask_token_id: int | None = None
    target_layer_ids: tuple[int, ...] | None = None
    num_target_layers: int | None = Field(default=None, gt=0, le=10_000)
    layer_types: tuple[LayerType, ...]
    sliding_window: int | None = None
    use_sliding_window: bool | None = None
    is_causal: bool | None = None
    input_embedding_scale: float = Field(default=1.0, allow_inf_nan=False)
    output_multiplier: float = Field(default=1.0, allow_inf_nan=False)
    final_logit_softcapping: float | None = Field(default=None, allow_inf_nan=False)
    is_neox_style: bool | None = None
    attention_value_scale: float | None = Field(default=None, allow_inf_nan=False)
    use_swa: bool | None = None
    swa_window_size: int | None = None

    conv_kernel_size: int | None = Field(default=None, gt=0)
    conv_group_size: int | None = Field(default=None, gt=0)
    selector_rank: int | None = Field(default=None, gt=0)
    selector_top_k: int | None = Field(default=None, gt=0)

    draft_vocab_size: int | None = Field(default=None, gt=0)
    sample_from_anchor: bool | None = None
    sliding_window_non_causal: bool | None = None

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Self:
        """Read one JSON object of any dialect. Raises `ConfigError` for what no engine could run."""
        if not isinstance(raw, dict):
            raise ConfigError("config", raw, "The file does not hold a JSON object", "Give the drafter's config.json")
        raw = copy.deepcopy(raw)
        dialect = dialects.dialect_of(raw)
        fields = completed(dialects.read(raw, dialect), raw, dialect)
        try:
            return cls(dialect=dialect, raw=raw, extra=dialects.unknown(raw, dialect), **fields)
        except ValidationError as error:
            raise _config_error(error, fields) from error

    def to_json(self, dialect: Dialect | None = None) -> dict[str, Any]:
        """The JSON object, or the same drafter's in another dialect, unknown keys kept."""
        if dialect is None or dialect == self.dialect:
            return copy.deepcopy(self.raw)
        return dialects.convert(self.raw, self.dialect, dialect, self._written_for(dialect))

    def edited(self, **changes: Any) -> Self:
        """The config with other values; `rope_theta` may stand alone, `extra` replaces the unknown keys.

        Raises `ConfigError` that names the field, the value and a fix. Fields given their present value
        change nothing in the JSON.
        """
        raw = self.to_json()
        if "rope_theta" in changes:
            theta = changes.pop("rope_theta")
            changes["rope_parameters"] = changes.get("rope_parameters", self.rope_parameters) | {"rope_theta": theta}
        for name, value in changes.items():
            if name == "extra":
                _replace_unknown(raw, self.dialect, value)
            elif name not in EDITABLE:
                known = ", ".join(sorted(EDITABLE))
                raise ConfigError(name, value, f"{name} is not a field of a drafter config", f"Fields: {known}")
            elif value != getattr(self, name):
                dialects.write(raw, self.dialect, name, value)
        return self.from_json(raw)

    @property
    def rope_theta(self) -> float:
        """RoPE's base, wherever the file keeps it."""
        return float(self.rope_parameters["rope_theta"])

    @property
    def is_dflash2(self) -> bool:
        """Whether the config asks for DFlash 2, by its class as the `dflash` package does."""
        return "DFlash2DraftModel" in self.architectures

    @property
    def max_drafted(self) -> int:
        """The largest K inside the trained block; the anchor's slot drafts only with `sample_from_anchor`."""
        return self.block_size - (not self.sample_from_anchor)

    @property
    def has_draft_vocabulary(self) -> bool:
        """Whether the drafter has a smaller vocabulary and a head of its own (`d2t`, `lm_head` in the weights)."""
        return self.draft_vocab_size not in (None, self.vocab_size)

    @property
    def taps(self) -> tuple[int, ...]:
        """The tapped target layers: as written, else by the rule. Raises `ConfigError` when neither works."""
        if self.target_layer_ids is not None:
            return self.target_layer_ids
        if self.num_target_layers is None:
            raise ConfigError(
                "target_layer_ids",
                None,
                "The config names no taps, and without num_target_layers there is no default either",
                "Give target_layer_ids",
            )
        return default_taps(self.num_target_layers, self.num_hidden_layers)

    @property
    def all_causal(self) -> bool:
        """Whether the proposals at K are a prefix of those at K + 1."""
        return all(self._causal(i) for i in range(self.num_hidden_layers))

    def attention(self, i: int) -> LayerAttention:
        """What layer `i` sees. Raises `ConfigError` when it slides and has no usable window."""
        causal = self._causal(i)
        if self.layer_types[i] == "full_attention":
            return LayerAttention(causal)
        unread = self.use_sliding_window is False or (self.use_sliding_window is None and self.dialect != "speculators")
        if self.sliding_window is None or unread:
            what = f"Layer {i} slides"
            if self.sliding_window is None:
                what += " and the config gives no sliding_window"
                fix = "Set sliding_window to the trained window, and use_sliding_window to true"
            else:
                what += f", and its window {self.sliding_window} is not read unless use_sliding_window is true"
                fix = "Set use_sliding_window to true"
            raise ConfigError("sliding_window", self.sliding_window, what, fix)
        return LayerAttention(causal, self.sliding_window, two_sided=not causal)

    def _causal(self, i: int) -> bool:
        if self.is_causal is not None:
            return self.is_causal
        return self.layer_types[i] == "sliding_attention" and not self.sliding_window_non_causal

    def _written_for(self, dialect: Dialect) -> dict[str, Any]:
        """Field values as another dialect can say them."""
        fields = {name: getattr(self, name) for name in EDITABLE}
        for name in ("input_embedding_scale", "output_multiplier"):
            if fields[name] == 1.0:
                fields[name] = None
        slides = "sliding_attention" in self.layer_types
        if dialect == "speculators":
            if self.target_layer_ids is None and self.num_target_layers is not None:
                fields["target_layer_ids"] = self.taps
            if self.is_causal is False:
                fields |= {"is_causal": None, "sliding_window_non_causal": True if slides else None}
            elif self.conv_kernel_size:
                fields["sliding_window_non_causal"] = False  # a dflash2 file without it means true
        elif self.dialect == "speculators":
            if slides and self.sliding_window is not None and self.use_sliding_window is None:
                fields["use_sliding_window"] = True
            if self.sliding_window_non_causal:
                fields |= {"is_causal": False, "sliding_window_non_causal": None}
        names = {"DFlashDraftModel": "DFlashSpeculator"}  # DFlash 2's class has one name in both
        if dialect != "speculators":
            names = {speculator: model for model, speculator in names.items()}
        fields["architectures"] = [names.get(name, name) for name in self.architectures] or None
        return fields

    @field_validator("rope_parameters")
    @classmethod
    def _theta_is_positive(cls, rope: dict[str, Any]) -> dict[str, Any]:
        theta = rope["rope_theta"]
        if isinstance(theta, bool) or not isinstance(theta, int | float) or not 0 < theta < 1e300:
            raise ValueError(f"rope_theta is {theta!r}")
        return rope

    @field_validator("target_layer_ids")
    @classmethod
    def _taps_name_layers(cls, ids: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if ids is not None and (not ids or min(ids) < -1):
            raise ValueError("layers count from 0, and there must be at least one")
        return ids

    @field_validator("sliding_window")
    @classmethod
    def _window_is_positive(cls, window: int | None) -> int | None:
        if window is not None and window < 1:
            raise ValueError("a window holds at least one position")
        return window

    @model_validator(mode="after")
    def _one_type_a_layer(self) -> Self:
        if len(self.layer_types) != self.num_hidden_layers:
            raise ConfigError(
                "layer_types",
                list(self.layer_types),
                f"layer_types names {len(self.layer_types)} layers, not {self.num_hidden_layers}",
                "Give one type a layer",
            )
        return self


def _replace_unknown(raw: dict[str, Any], dialect: Dialect, extra: Any) -> None:
    if not isinstance(extra, dict):
        raise ConfigError("extra", extra, "The other keys must be a JSON object", "Give an object, {...}")
    dialects.drop_unknown(raw, dialect)
    for key, value in copy.deepcopy(extra).items():
        if key in (dialects.DRAFT, dialects.STACK) and isinstance(value, dict):
            raw.setdefault(key, {}).update(value)
        else:
            raw[key] = value


def _config_error(error: ValidationError, fields: dict[str, Any]) -> ConfigError:
    """The first thing wrong; a missing field comes before one that could not be filled in because of it."""
    problems = sorted(error.errors(include_url=False), key=lambda e: e["loc"] in (("layer_types",),))
    problem = problems[0]
    name = str(problem["loc"][0]) if problem["loc"] else "config"
    wants = FIELDS[name].type if name in FIELDS else "another value"
    if problem["type"] == "missing":
        return ConfigError(name, None, f"The config gives no {name}", f"Give {name}: {wants}")
    value = fields.get(name)
    shown = list(value) if isinstance(value, tuple) else value
    reason = problem["msg"].removeprefix("Value error, ")
    reason = reason[0].lower() + reason[1:]
    return ConfigError(name, shown, f"{name} is {shown!r}: {reason}", f"Give {wants}")
