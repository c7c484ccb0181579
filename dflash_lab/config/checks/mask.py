"""The mask token: in the vocabulary, not a token with another job, and with an embedding that says something."""

from __future__ import annotations

from collections.abc import Iterator

from dflash_lab.config.checks.finding import Finding
from dflash_lab.config.checks.subject import Subject, id_set, whole

# Published drafters by the size of the target's vocabulary.
PUBLISHED_MASKS: dict[int, tuple[int, ...]] = {
    128256: (128002,),
    151936: (151669,),
    152576: (151669,),
    163840: (163838,),
    201088: (200000,),
    202048: (201818,),
    248320: (248070, 248077),
    262144: (4,),
}
NEAR_ZERO = 0.05
ALIKE = 0.98
MASK_EMBEDDINGS = ("mask_embedding.safetensors", "mask_embedding.pt")


def mask_missing(s: Subject) -> Iterator[Finding]:
    value = s.drafting("mask_token_id")
    if s.mask is None:
        yield Finding(
            "error",
            "mask_token_id",
            value,
            "The config names no mask token",
            _published(s),
            "An absent id becomes -1 or the vocabulary's size in some engines, and stops others",
            "llama.cpp#26761, vllm#53977",
        )


def mask_outside_vocabulary(s: Subject) -> Iterator[Finding]:
    sizes = [whole(s.target("vocab_size")), s.whole("vocab_size")]
    size = next((n for n in sizes if n is not None), None)
    if s.mask is not None and (s.mask < 0 or (size is not None and s.mask >= size)):
        yield Finding(
            "error",
            "mask_token_id",
            s.mask,
            f"Mask token {s.mask} is outside the vocabulary of {size}",
            _published(s),
            "Its embedding does not exist",
            "llama.cpp#28158",
        )


def mask_has_another_job(s: Subject) -> Iterator[Finding]:
    jobs = {name: id_set(s.stack.get(name)) | id_set(s.target(name)) for name in _TOKENS}
    if (tokenizer := s.facts.tokenizer) is not None:
        jobs["bos_token_id"] |= id_set(tokenizer.bos_id)
        jobs["eos_token_id"] |= tokenizer.eos_ids
        jobs["pad_token_id"] |= id_set(tokenizer.pad_id)
        jobs["unk_token_id"] |= id_set(tokenizer.unk_id)
    names = [_TOKENS[name] for name, ids in jobs.items() if s.mask in ids]
    if s.mask is not None and names:
        yield Finding(
            "error",
            "mask_token_id",
            s.mask,
            f"Mask token {s.mask} is also the {' and '.join(names)} token",
            _published(s),
            "The drafter has seen that token with another meaning; as a stop token it ends generation",
            "NeMo Automodel#2461, z-lab#109",
        )


def mask_is_ordinary_text(s: Subject) -> Iterator[Finding]:
    tokenizer = s.facts.tokenizer
    if tokenizer is None or s.mask is None or tokenizer.mask_text is None or s.mask in tokenizer.special_ids:
        return
    yield Finding(
        "warning",
        "mask_token_id",
        s.mask,
        f"Mask token {s.mask} is {tokenizer.mask_text!r}, a token of ordinary text",
        _published(s),
        "Drafters are trained with a token that text never holds",
        "z-lab#73",
    )


def mask_is_not_the_published_one(s: Subject) -> Iterator[Finding]:
    size = whole(s.target("vocab_size")) or s.whole("vocab_size")
    known = PUBLISHED_MASKS.get(size or 0, ())
    if s.mask is not None and known and s.mask not in known:
        yield Finding(
            "warning",
            "mask_token_id",
            s.mask,
            f"Published drafters for a vocabulary of {size} use {' or '.join(map(str, known))}, not {s.mask}",
            known[0],
            "A wrong mask token raises no error: acceptance length stays at 1.0 to 1.2",
        )


def mask_row_is_near_zero(s: Subject) -> Iterator[Finding]:
    e = s.facts.embedding
    if e is None or e.mask_token_id != s.mask or e.mask_norm >= NEAR_ZERO * e.median_norm:
        return
    shipped = next((name for name in MASK_EMBEDDINGS if name in s.facts.files), None)
    yield Finding(
        "warning" if shipped else "error",
        "mask_token_id",
        s.mask,
        f"The target's row for mask token {s.mask} has norm {e.mask_norm:.3g}, the median row {e.median_norm:.3g}",
        None,
        f"{shipped} beside the weights holds the real vector: the lab uses it, an engine that ignores it drafts blindly"
        if shipped
        else "The drafter was trained with another vector, which must be loaded with it",
        "sglang#27924",
    )


def mask_row_is_like_another(s: Subject) -> Iterator[Finding]:
    e = s.facts.embedding
    if e is None or e.mask_token_id != s.mask or e.nearest_cosine < ALIKE:
        return
    yield Finding(
        "note",
        "mask_token_id",
        s.mask,
        f"The row of mask token {s.mask} is almost that of token {e.nearest_id} (cosine {e.nearest_cosine:.3f})",
        None,
        "A wrong id among such rows would not show in acceptance",
    )


def _published(s: Subject) -> int | None:
    size = whole(s.target("vocab_size")) or s.whole("vocab_size")
    return next(iter(PUBLISHED_MASKS.get(size or 0, ())), None)


_TOKENS = {
    "bos_token_id": "beginning-of-text",
    "eos_token_id": "end-of-text",
    "pad_token_id": "padding",
    "unk_token_id": "unknown",
}

CHECKS = (
    mask_missing,
    mask_outside_vocabulary,
    mask_has_another_job,
    mask_is_ordinary_text,
    mask_is_not_the_published_one,
    mask_row_is_near_zero,
    mask_row_is_like_another,
)
