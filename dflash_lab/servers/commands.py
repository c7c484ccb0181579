"""Launch commands to copy, for vLLM and SGLang, on one GPU or over several nodes.

Pure text: nothing is started and nothing here asks whether the GPUs exist. vLLM's flags are those of 0.32 (its own
parser reads them in ``tests/engines``), SGLang's those of its public documentation.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass

from dflash_lab.demo import target_place
from dflash_lab.errors import LabError
from dflash_lab.pairs import DEMO_TARGET, PairSpec
from dflash_lab.paths import SAMPLES
from dflash_lab.servers.speculation import Speculation

HEAD = "HEAD_ADDRESS"
"""Stands for the first node's address, which only the user knows."""

MASTER_PORT, DATA_PORT = 29501, 13345

FLAGS = {
    "nodes": "So many machines, each with a command of its own and the same files at the same paths.",
    "tensor": "Every layer is split over so many GPUs, which talk at every layer: keep it inside a node. It must "
    "divide the target's and the drafter's attention heads.",
    "pipeline": "The layers are split into so many stages, a node's worth each: for targets that one node cannot "
    "hold. The taps then come from several stages; check acceptance with one stage first.",
    "data": "So many whole copies, each with requests of its own: more tokens per second in all, no request is "
    "faster. Every copy has its own counters, which the lab adds up.",
}
"""What each number of GPUs does, in words."""


@dataclass(frozen=True, slots=True)
class Layout:
    """GPUs of a deployment: ``tensor`` x ``pipeline`` for one copy of the model, ``data`` copies, over ``nodes``.

    Raises LabError when the GPUs cannot be spread evenly over the nodes.
    """

    nodes: int = 1
    tensor: int = 1
    pipeline: int = 1
    data: int = 1

    def __post_init__(self) -> None:
        for name in ("nodes", "tensor", "pipeline", "data"):
            if getattr(self, name) < 1:
                raise LabError(f"{name} is {getattr(self, name)}", "Give at least 1")
        if self.gpus % self.nodes:
            raise LabError(
                f"{self.gpus} GPUs do not spread over {self.nodes} nodes", "Make tensor x pipeline x data a multiple"
            )
        if self.spread_copies and self.data % self.nodes:
            raise LabError(
                f"{self.data} copies on {self.nodes} nodes would split a copy over two of them",
                "Give as many copies as nodes, or a multiple, or one copy over all nodes",
            )

    @property
    def gpus(self) -> int:
        """All of them."""
        return self.tensor * self.pipeline * self.data

    @property
    def spread_copies(self) -> bool:
        """Several nodes hold whole copies each; otherwise one copy lies over all of them."""
        return self.nodes > 1 and self.data > 1


def names(spec: PairSpec) -> tuple[str, str]:
    """(target, drafter) as an engine is told them: folders for what is bundled, else as the pair's file says."""
    target = str(target_place()) if spec.target == DEMO_TARGET else spec.target
    bundled = SAMPLES / spec.drafter
    return target, str(bundled) if bundled.is_dir() else spec.drafter


def vllm(target: str, speculation: Speculation, layout: Layout, port: int = 8000) -> tuple[str, ...]:
    """One command a node, the head's first. Several nodes need the same files at the same paths on each."""
    words = ["vllm", "serve", target, "--port", str(port)]
    words += _sizes(layout, "--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size")
    body = speculation.vllm()
    if body is not None:
        words += ["--speculative-config", json.dumps(body), "--per-request-spec-decode-metrics", "detailed"]
    return tuple(shlex.join([*words, *_vllm_node(layout, rank)]) for rank in range(layout.nodes))


def _vllm_node(layout: Layout, rank: int) -> list[str]:
    headless = ["--headless"] if rank else []
    if layout.nodes == 1:
        return []
    if layout.spread_copies:
        local = layout.data // layout.nodes
        words = ["--data-parallel-size-local", str(local), "--data-parallel-address", HEAD]
        start = ["--data-parallel-start-rank", str(rank * local)] if rank else []
        return [*words, "--data-parallel-rpc-port", str(DATA_PORT), *start, *headless]
    words = ["--nnodes", str(layout.nodes), "--node-rank", str(rank)]
    return [*words, "--master-addr", HEAD, "--master-port", str(MASTER_PORT), *headless]


def sglang(target: str, speculation: Speculation, layout: Layout, port: int = 30000) -> tuple[str, ...]:
    """One command a node, the head's first; ``--enable-metrics`` shows its gauges.

    Raises LabError for copies over several nodes, which SGLang leaves to a router in front of separate servers.
    """
    if layout.spread_copies:
        raise LabError(
            "SGLang spreads copies over nodes with a router in front of separate servers",
            "Copy the command for one node, start it on each, and put the router before them",
        )
    words = ["python", "-m", "sglang.launch_server", "--model-path", target, "--port", str(port), "--enable-metrics"]
    words += _sizes(layout, "--tp-size", "--pp-size", "--dp-size") + speculation.sglang()
    return tuple(shlex.join([*words, *_sglang_node(layout, rank)]) for rank in range(layout.nodes))


def _sglang_node(layout: Layout, rank: int) -> list[str]:
    if layout.nodes == 1:
        return []
    return ["--nnodes", str(layout.nodes), "--node-rank", str(rank), "--dist-init-addr", f"{HEAD}:{MASTER_PORT}"]


def _sizes(layout: Layout, tensor: str, pipeline: str, data: str) -> list[str]:
    """The flags of every size above 1."""
    sizes = ((tensor, layout.tensor), (pipeline, layout.pipeline), (data, layout.data))
    return [word for flag, size in sizes if size > 1 for word in (flag, str(size))]
