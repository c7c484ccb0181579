"""The drafter's RoPE: present, read by the installed transformers, and near the target's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dflash_lab.config.checks.finding import Finding
from dflash_lab.config.checks.subject import Subject, real

FAR = 2.0


def rope_theta_missing(s: Subject) -> Iterator[Finding]:
    if s.config is not None and _written_theta(s.stack) is None:
        yield Finding(
            "warning",
            "rope_theta",
            None,
            "The config gives no RoPE theta, and engines choose different defaults",
            _target_rope(s)[0],
            "transformers takes 10000, vLLM 1000000",
        )


def rope_theta_given_twice(s: Subject) -> Iterator[Finding]:
    inner, top = real(_scaling(s.stack).get("rope_theta")), real(s.stack.get("rope_theta"))
    if inner is not None and top is not None and inner != top:
        yield Finding(
            "error",
            "rope_theta",
            top,
            f"rope_theta is {top:g} at the top level and {inner:g} in the RoPE parameters",
            None,
            "transformers 5 takes the inner one, 4.57 the outer one",
        )


def nested_rope_on_old_transformers(s: Subject) -> Iterator[Finding]:
    version = s.facts.transformers_version or ""
    major = version.split(".")[0]
    nested = isinstance(s.stack.get("rope_parameters"), dict) and real(s.stack.get("rope_theta")) is None
    if nested and major.isdecimal() and int(major) < 5:
        yield Finding(
            "error",
            "rope_parameters",
            s.stack.get("rope_parameters"),
            f"transformers {version} ignores rope_parameters and takes a theta of 10000",
            None,
            "Update transformers to 5, or write rope_theta at the top level (legacy dialect)",
        )


def theta_far_from_target(s: Subject) -> Iterator[Finding]:
    theta, (wanted, _) = s.config.rope_theta if s.config else None, _target_rope(s)
    if theta is None or wanted is None or wanted <= 0 or 1 / FAR < theta / wanted < FAR:
        return
    yield Finding(
        "warning",
        "rope_theta",
        theta,
        f"RoPE theta is {theta:g}, the target's {wanted:g}",
        wanted,
        "Drafters mostly share it; a wrong one is fine at short range and collapses with distance",
        "vllm#53063, lucebox#447",
    )


def target_is_stretched_and_drafter_is_not(s: Subject) -> Iterator[Finding]:
    _, kind = _target_rope(s)
    if s.config is not None and kind == "yarn" and s.config.rope_parameters.get("rope_type") == "default":
        yield Finding(
            "warning",
            "rope_parameters",
            s.config.rope_parameters,
            "The target's RoPE is stretched with YaRN, the drafter's is not",
            None,
            "Acceptance falls to nothing past the drafter's own length",
            "vllm#58080",
        )


def _scaling(config: dict[str, Any]) -> dict[str, Any]:
    found = config.get("rope_scaling") or config.get("rope_parameters")
    return found if isinstance(found, dict) else {}


def _written_theta(config: dict[str, Any]) -> float | None:
    inner = real(_scaling(config).get("rope_theta"))
    return inner if inner is not None else real(config.get("rope_theta"))


def _target_rope(s: Subject) -> tuple[float | None, str | None]:
    """(theta, type); a target with one RoPE per layer type gives that of its full layers."""
    config = {name: s.target(name) for name in ("rope_parameters", "rope_scaling", "rope_theta")}
    scaling = _scaling(config)
    full = scaling.get("full_attention")
    if isinstance(full, dict):
        config = {"rope_parameters": full, "rope_theta": config["rope_theta"]}
        scaling = full
    kind = scaling.get("rope_type") or scaling.get("type")
    return _written_theta(config), kind if isinstance(kind, str) else None


CHECKS = (
    rope_theta_missing,
    rope_theta_given_twice,
    nested_rope_on_old_transformers,
    theta_far_from_target,
    target_is_stretched_and_drafter_is_not,
)
