"""Run inside vLLM's environment: what its own code resolves from drafters' config folders, as JSON.

python resolved.py FOLDER ... prints a list of {taps, mask_token_id, layers: [[causal, window], ...], theta}.
"""

import json
import sys
from types import SimpleNamespace

from vllm.model_executor.models import qwen3_dflash
from vllm.transformers_utils.config import get_config, set_default_rope_theta
from vllm.transformers_utils.configs.eagle import EAGLEConfig
from vllm.v1.worker.gpu.spec_decode.eagle.eagle3_utils import get_eagle3_aux_layers_from_config

# Mixed layers are resolved by the newer runner only; the older one's refusal has a test of its own.
qwen3_dflash.get_current_vllm_config = lambda: SimpleNamespace(use_v2_model_runner=True)


def resolved(folder: str) -> dict[str, object]:
    """One folder's settings."""
    config = EAGLEConfig(get_config(folder, trust_remote_code=False), method="dflash", model_type="eagle")
    speculative = SimpleNamespace(draft_model_config=SimpleNamespace(hf_config=config))
    set_default_rope_theta(config, default_theta=1000000)
    layers = [qwen3_dflash._resolve_layer_attention(config, i) for i in range(config.num_hidden_layers)]
    draft = config.dflash_config
    return {
        "taps": [i - 1 for i in sorted(get_eagle3_aux_layers_from_config(speculative))],
        "mask_token_id": draft.get("mask_token_id", getattr(config, "mask_token_id", None)),
        "layers": [[causal, window] for window, causal in layers],
        "theta": config.rope_parameters["rope_theta"],
    }


print(json.dumps([resolved(folder) for folder in sys.argv[1:]]))
