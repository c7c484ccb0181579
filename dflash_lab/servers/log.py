"""A server's log: followed while it runs, and read for the one sentence that says why it did not start."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dflash_lab.errors import LabError

READ_BYTES = 400_000


@dataclass(frozen=True, slots=True)
class Cause:
    """A line that explains a failure: what to say (may use the pattern's groups) and how to mend it."""

    pattern: str
    what: str
    fix: str


# First match wins: the particular before the general. Wordings of vLLM 0.32 and of what it stands on.
CAUSES = (
    Cause(
        r"DFlash drafters with mixed sliding/full attention require|does not support: mixed sliding/full dflash",
        "This vLLM runs a drafter with sliding and full layers only on its model runner V2, which needs Triton and "
        "therefore a GPU",
        "Serve it on a GPU with VLLM_USE_V2_MODEL_RUNNER=1, or judge the config here by replay",
    ),
    Cause(
        r"DFlash sliding attention requires a window size",
        "The drafter's config has sliding layers and no window: transformers drops sliding_window unless "
        "use_sliding_window is true",
        "Set use_sliding_window to true and sliding_window to the trained window",
    ),
    Cause(
        r"(?:reference layers that|target_layer_ids reference)",
        "target_layer_ids names layers that this target does not hand out",
        "Use ids of existing decoder layers, counted from 0",
    ),
    Cause(
        r"mat1 and mat2 shapes cannot be multiplied \(\d+x(?P<got>\d+) and (?P<want>\d+)x",
        "The taps together are {got} wide, the drafter's fc takes {want}",
        "Give target_layer_ids as many different layers as fc was trained on",
    ),
    Cause(
        r"ssert\w* .*loaded_weight|size mismatch|param_data.shape == loaded_weight.shape|"
        r"Attempted to load weight .* into parameter",
        "A weight of the checkpoint has another shape than the config says",
        "Correct sizes, heads, layers or the number of taps in the config",
    ),
    Cause(
        r"(?:libtorchcodec|torchvision|torchaudio).*(?:cannot open|Could not load|undefined symbol|does not exist)|"
        r"Could not load this library: \S*torchcodec",
        "vLLM does not import: torchvision, torchaudio or torchcodec in its environment was built for another torch",
        "Remove them there: pip uninstall -y torchvision torchaudio torchcodec",
    ),
    Cause(
        r"PackageNotFoundError: No package metadata was found for vllm",
        "This vLLM is installed under another package name, and `vllm serve` does not start it",
        "Launch it from the lab, which uses the other entry point",
    ),
    Cause(
        r"per-request-spec-decode-metrics requires speculative decoding",
        "Per-request speculative metrics were asked for without a speculative config",
        "Leave the flag out, or choose a drafter",
    ),
    Cause(
        r"unrecognized arguments: (?P<flag>.+)",
        "This vLLM does not know {flag}",
        "Use vLLM 0.32 or newer, or launch without it",
    ),
    Cause(
        r"(?:Address already in use|address already in use)",
        "The port is taken by another program",
        "Choose another port, or let the lab find a free one",
    ),
    Cause(
        r"(?:CUDA out of memory|OutOfMemoryError|No available memory for the cache blocks|"
        r"Free memory on device .* is less than)",
        "The GPU has too little free memory for weights and cache",
        "Lower --max-model-len or --gpu-memory-utilization, or use more GPUs (--tensor-parallel-size)",
    ),
    Cause(
        r"larger than the (?:available KV cache memory|maximum number of tokens)|"
        r"Not enough (?:available )?memory.*KV|KV cache .* is larger than",
        "The key/value cache has no room for one request of the full length",
        "Lower the context length, or give the cache more memory (on a CPU: VLLM_CPU_KVCACHE_SPACE, GiB)",
    ),
    Cause(
        r"synthetic",
        "Synthetic acceptance does not run on this device",
        "Use it on a GPU; on a CPU choose standard verification",
    ),
    Cause(
        r"does not recognize this architecture|Model architectures \[(?P<arch>[^\]]+)\] (?:are not supported|failed)",
        "This vLLM does not know the model's architecture",
        "Use a newer vLLM, or check `architectures` in config.json",
    ),
    Cause(
        r"(?:Repo id must be in the form|is not a local folder and is not a valid model|"
        r"Can't load the configuration of|LocalEntryNotFoundError)",
        "The model is neither a folder here nor to be had from the hub",
        "Check the path, or download the model first",
    ),
    Cause(
        r"Value error, (?P<reason>.+?) \[type=",
        "vLLM refuses this setup: {reason}",
        "Change what it names",
    ),
)

# The first lines that name an error of Python's or vLLM's own.
_ERROR = re.compile(r"(?:^|\s)(?P<text>(?:\w+\.)*\w*(?:Error|Exception|Refused)\b: .+)$")


class Log:
    """A log file that a server writes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def text(self) -> str:
        """The last part of the log; empty before the first line."""
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, 2)
                file.seek(max(0, size - READ_BYTES))
                return file.read().decode("utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    def tail(self, lines: int = 30) -> tuple[str, ...]:
        """The last lines."""
        return tuple(self.text().splitlines()[-lines:])

    def failure(self) -> LabError:
        """Why the server ended, as one sentence and its fix."""
        return explain(self.text().splitlines(), self.path)


def explain(lines: Iterable[str], place: Path | None = None) -> LabError:
    """The first known cause in a log, else its last error line.

    vLLM wraps one failure in several processes: the innermost comes first, the outer ones only say that it failed.
    """
    known = list(lines)
    for cause in CAUSES:
        for line in _errors(known):
            match = re.search(cause.pattern, line)
            if match:
                return LabError(cause.what.format(**match.groupdict()), cause.fix)
    errors = [m["text"] for line in known if (m := _ERROR.search(line))]
    where = f"Read the log: {place}" if place else "Read the log"
    if not errors:
        return LabError("The server ended without saying why", where)
    inner = [e for e in errors if "Engine core initialization failed" not in e]
    return LabError(f"The server stopped: {(inner or errors)[0][:300]}", where)


def _errors(lines: Iterable[str]) -> Iterator[str]:
    """Lines that report a failure; the configuration, which is logged in full, is left out."""
    for line in lines:
        if "non-default args" in line or "Initializing a V1" in line or "DeprecationWarning" in line:
            continue
        if re.search(r"[Ee]rror|raise|assert|require|cannot|Could not|in use|unrecognized|No available|larger", line):
            yield line
