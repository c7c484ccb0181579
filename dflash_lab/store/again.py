"""The task that an experiment came from, to make it again, or with another K."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dflash_lab.config_tasks import JudgeTask, PromptSet
from dflash_lab.diagnose.task import DiagnoseTask
from dflash_lab.drafters.method import Method
from dflash_lab.errors import LabError
from dflash_lab.jobs import Work
from dflash_lab.method_tasks import MethodsTask
from dflash_lab.prompts import Prompt
from dflash_lab.store.experiment import Experiment
from dflash_lab.tasks import RunTask, SweepTask


def task_of(experiment: Experiment, k: int | None = None) -> Work:
    """The same again, with ``k`` drafted tokens when given. Raises LabError for one that the worker cannot repeat."""
    asked = _frozen(experiment.settings)
    try:
        if experiment.kind == "run":
            return RunTask(**asked | ({} if k is None else {"k": k}))
        if experiment.kind == "sweep":
            asked["prompts"] = tuple(Prompt(**p) for p in asked["prompts"])
            return SweepTask(**asked | ({} if k is None else {"ks": (k,)}))
        if experiment.kind == "what-if":
            chosen = asked.pop("prompt_set")
            prompts = tuple(Prompt(**p) for p in chosen.pop("prompts"))
            return JudgeTask(**asked | {"prompt_set": PromptSet(prompts, **chosen)} | ({} if k is None else {"k": k}))
        if experiment.kind == "methods":
            asked["prompts"] = tuple(Prompt(**p) for p in asked["prompts"])
            methods = [Method(**m) for m in asked["methods"]]
            if k is not None:
                methods = [replace(m, k=k) for m in methods]
            return MethodsTask(**asked | {"methods": tuple(dict.fromkeys(methods))})
        if experiment.kind == "diagnosis":
            asked["raw"] = experiment.settings["raw"]
            return DiagnoseTask(**asked | ({} if k is None else {"k": k}))
    except (TypeError, KeyError, ValueError) as error:
        raise LabError(f"{experiment.title} was made by another version: {error}", "Set it up on its page") from error
    raise LabError(f"A {experiment.kind} session cannot be repeated here", "Open it on its own page")


def question(experiment: Experiment, k: int | None) -> str:
    """The title of the repeat."""
    return f"{experiment.title}: again" + ("" if k is None else f" with K = {k}")


def _frozen(value: Any) -> Any:
    """Lists as tuples, as tasks have them; a copy."""
    if isinstance(value, dict):
        return {key: _frozen(inner) for key, inner in value.items()}
    return tuple(_frozen(inner) for inner in value) if isinstance(value, list) else value
