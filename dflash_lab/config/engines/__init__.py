"""The readers' rules, one class an engine: how it finds each setting in a raw config.json.

Every method gives (value, rule): the value in our terms (taps as 0-based layer outputs, -1 the embedding's) and
the rule in one sentence; or raises `Refused` with what the engine would say. A reader derives from another where it
shares its rules.
"""

from dflash_lab.config.engines.intree import Transformers
from dflash_lab.config.engines.sglang import SGLang
from dflash_lab.config.engines.speculators import Speculators
from dflash_lab.config.engines.vllm import VLLM, OldVLLM
from dflash_lab.config.engines.zlab import OldZLab, Reader, TargetFacts

__all__ = ["READERS", "Reader", "TargetFacts"]

READERS: dict[str, Reader] = {
    reader.name: reader for reader in (Reader(), OldZLab(), VLLM(), OldVLLM(), SGLang(), Transformers(), Speculators())
}
