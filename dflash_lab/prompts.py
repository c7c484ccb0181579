"""The prompt sets: one JSON object a line, the same twelve prompts for every figure the lab prints."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dflash_lab.errors import LabError
from dflash_lab.paths import SAMPLES

PROMPTS = SAMPLES / "prompts.jsonl"


class Prompt(BaseModel):
    """One prompt of a set: `id` is unique in its file, `kind` groups results."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(min_length=1)
    kind: Literal["chat", "code", "maths", "story"]
    prompt: str = Field(min_length=1)


def load_prompts(path: Path | None = None) -> tuple[Prompt, ...]:
    """Read a prompt set (the bundled one without `path`) in file order; blank lines are skipped.

    Raises `LabError` naming file and line for a missing file, broken JSON, a wrong field, an id used twice, or
    a file without prompts.
    """
    path = path or PROMPTS
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"The prompt file {path} cannot be read ({error})", "Check the path") from error
    prompts: dict[str, Prompt] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            prompt = Prompt.model_validate_json(line)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"])
            raise LabError(
                f"{path}, line {number}: {f'field {field}: ' if field else ''}{first['msg']}",
                'A line looks like {"id": "tea", "kind": "chat", "prompt": "How do I make tea?"}',
            ) from error
        if prompt.id in prompts:
            raise LabError(f"{path}, line {number}: the id {prompt.id!r} is used twice", "Give each its own id")
        prompts[prompt.id] = prompt
    if not prompts:
        raise LabError(f"{path} has no prompts", "Write one JSON object a line")
    return tuple(prompts.values())
