"""A mask embedding beside the weights takes the place of the target's row, from either format, and runs no code."""

from __future__ import annotations

import pickle

import pytest
import torch
from safetensors.torch import save_file

from dflash_lab.config.errors import ConfigError
from dflash_lab.decode.loop import Settings, run
from dflash_lab.drafters import mask_embedding
from dflash_lab.drafters.dflash import DFlashDrafter, DFlashStack, DFlashWeights
from dflash_lab.errors import LabError
from tests.tiny import PROMPT, checkpoint, tiny_pair

MASK = tiny_pair().config().mask_token_id


def write(folder, kind, row):
    if kind == "safetensors":
        save_file({"embedding": row, "mask_token_id": torch.tensor(MASK)}, folder / "mask_embedding.safetensors")
    else:
        stored = row if kind == "bare" else {"mask_token_id": MASK, "embedding": row[None]}
        torch.save(stored, folder / "mask_embedding.pt")


@pytest.mark.parametrize("kind", ["safetensors", "named", "bare"])
def test_a_shipped_row_drafts_as_the_token_whose_row_it_is(tmp_path, kind):
    pair, other = tiny_pair(), MASK - 1
    write(tmp_path, kind, pair.target.embedding[other].clone())
    weights = DFlashWeights(checkpoint(pair.oracle) | mask_embedding.load(tmp_path))

    def drafted(drafter):
        return [r.drafted for r in run(pair.target, drafter, PROMPT, Settings(4, 32))]

    own = drafted(pair.drafter())
    assert drafted(DFlashDrafter(weights, pair.config(), pair.target)) != own, "the row matters"
    assert drafted(DFlashDrafter(weights, pair.config(), pair.target)) == drafted(
        pair.drafter(pair.config(mask_token_id=other))
    )


def test_it_stands_for_its_own_token_only(tmp_path):
    pair = tiny_pair()
    write(tmp_path, "named", torch.zeros(pair.target.hidden_size, dtype=torch.float64))
    weights = DFlashWeights(checkpoint(pair.oracle) | mask_embedding.load(tmp_path))
    other = DFlashStack(weights, pair.config(mask_token_id=MASK + 1), pair.target)
    assert torch.equal(other.mask_row[0], pair.target.embedding[MASK + 1])
    assert not DFlashStack(weights, pair.config(), pair.target).mask_row.any()


def test_a_vector_of_another_width_is_refused(tmp_path):
    pair = tiny_pair()
    write(tmp_path, "bare", torch.zeros(3, dtype=torch.float64))
    weights = DFlashWeights(checkpoint(pair.oracle) | mask_embedding.load(tmp_path))
    with pytest.raises(ConfigError, match="mask embedding has 3 values"):
        DFlashStack(weights, pair.config(), pair.target)


class Bomb:
    def __reduce__(self):
        return open, ("exploded", "w")


@pytest.mark.parametrize("bad", [b"", b"not a pickle", pickle.dumps(Bomb(), 2)])
def test_a_file_that_is_something_else_is_refused_and_not_run(tmp_path, monkeypatch, bad):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mask_embedding.pt").write_bytes(bad)
    with pytest.raises(LabError, match=r"mask_embedding\.pt cannot be read"):
        mask_embedding.load(tmp_path)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    "stored",
    [{"other": torch.zeros(4)}, {"embedding": torch.zeros(2, 4)}, {"embedding": torch.zeros(4), "mask_token_id": "x"}],
)
def test_tensors_that_are_no_vector_are_refused(tmp_path, stored):
    torch.save(stored, tmp_path / "mask_embedding.pt")
    with pytest.raises(LabError, match="embedding"):
        mask_embedding.load(tmp_path)


def test_no_file_is_nothing(tmp_path):
    assert mask_embedding.load(tmp_path) == {}
