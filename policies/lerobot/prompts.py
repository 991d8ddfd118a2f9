"""Tokenizes prompts as LeRobot does, with as little padding as possible: `Prompts`.

    a task's words      |pick|it|up|.|.|.|.|.|.|.|.|.|.|.|.|   as LeRobot pads it, or does not
    eager               |pick|it|up|                           the longest of the batch
    compiled            |pick|it|up|.|.|.|.|.|                 the next of a few lengths, to fix shapes

Nothing attends to padding, but it costs time in every layer of the prefix.
"""

import logging
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

logger = logging.getLogger(__name__)
BUCKET = 64
"""The length of compiled prompts is a multiple of it, or the policy's longest."""
MAX_KEPT = 256
"""Number of texts whose tokens are cached: a task's text rarely changes between requests."""


class Prompts:
    """Replaces `_tokenize_text` in a step of LeRobot's preprocessor."""

    def __init__(self, step: Any) -> None:
        self._tokenize, self._words = step._tokenize_text, step.input_tokenizer
        self.longest = int(step.max_length)
        self._padding = {"input_ids": self._words.pad_token_id or 0, "attention_mask": 0}
        self._kept: OrderedDict[tuple[str, ...], dict[str, Tensor]] = OrderedDict()
        self._least, self.lengths, self._has_warned = 0, (), False
        step._tokenize_text = self

    lengths: tuple[int, ...]
    """Lengths that prompts may have, shortest first; empty: the length of the longest in a batch."""

    def choose(self, usual: int) -> None:
        """Limit prompts to two lengths from here on: one for the usual number of tokens, and the longest."""
        rounded = -(-max(usual, 1) // BUCKET) * BUCKET
        self.lengths = tuple(sorted({min(rounded, self.longest), self.longest}))
        self._kept.clear()

    @contextmanager
    def at_least(self, length: int) -> Iterator[None]:
        """A context in which prompts have at least this length."""
        self._least = length
        try:
            yield
        finally:
            self._least = 0

    def __call__(self, text: str | Sequence[str]) -> dict[str, Tensor]:
        """As `_tokenize_text`: input_ids and attention_mask (B, n)."""
        texts = (text,) if isinstance(text, str) else tuple(text)
        tokens = self._kept.get(texts)
        if tokens is None:
            tokens = self._shortened(dict(self._tokenize(list(texts))), texts)
            self._kept[texts] = tokens
            if len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(texts)
        if not self.lengths:
            return tokens
        need = max(tokens["input_ids"].shape[1], self._least)
        length = next(length for length in self.lengths if length >= min(need, self.longest))
        return {name: self._padded(name, x, length) for name, x in tokens.items()}

    def _shortened(self, tokens: dict[str, Tensor], texts: tuple[str, ...]) -> dict[str, Tensor]:
        is_word = tokens["attention_mask"].bool().any(dim=0)
        num_words = int(is_word.nonzero().max()) + 1 if is_word.any() else 1
        if num_words == self.longest:
            self._warn_of_a_cut(texts)
        return {name: tokens[name][:, :num_words].contiguous() for name in self._padding}

    def _padded(self, name: str, x: Tensor, length: int) -> Tensor:
        return F.pad(x, (0, length - x.shape[1]), value=self._padding[name])

    def _warn_of_a_cut(self, texts: tuple[str, ...]) -> None:
        if self._has_warned:
            return
        for text in texts:
            num = len(self._words(text)["input_ids"])
            if num > self.longest:
                self._has_warned = True
                logger.warning(
                    "a prompt has %d tokens, of which the policy reads the first %d: %.60r ...",
                    num, self.longest, text,
                )  # fmt: skip
                return


def prompts_of(before: Any) -> Prompts | None:
    """Put `Prompts` into LeRobot's preprocessor; None if it has no tokenizer, or pads on the left."""
    for step in before.steps:
        if hasattr(step, "_tokenize_text") and step.padding_side == "right":
            return Prompts(step)
    return None


def prompt_length(batch: Mapping[str, Any]) -> int:
    """Tokens of the longest prompt of a preprocessed batch, without padding."""
    mask = batch["observation.language.attention_mask"]
    return int(torch.as_tensor(mask).sum(dim=1).max())
