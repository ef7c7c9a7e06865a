"""`python -m tests.bench.cpu_embedding`: the tied embedding on a CPU, decoded to bf16 and by the kernel in C.

A random table of the released size: the head over the rows of a canvas, and the soft embedding of rows that split their
probability equally among a number of ids. Both ways run in one thread and take turns. Times count only while the thread
runs, so other work on the machine matters little.
"""

from __future__ import annotations

import argparse
import os
from functools import partial

import torch
from torch import Tensor

from localdiff.bench.step.released import released_config
from localdiff.machine.hardware import cpu_name
from quant.codecs import CODECS
from quant.codecs.codec import GROUP
from quant.cpu.embedding import Bf16Embedding, NativeEmbedding
from quant.modules.embedding import QuantEmbedding
from tests.bench.one_thread import REPEATS, library_in_one_thread, milliseconds

NEEDED = (16, 512, 4_096, 16_384, 32_768, 65_536)
"""Numbers of ids among which a row's probability is shared out equally."""


def random_table(vocab_size: int, width: int) -> QuantEmbedding:
    """Int8, any codes and scales."""
    with torch.device("meta"):
        embedding = QuantEmbedding(CODECS["int8"], vocab_size, width, torch.bfloat16)
    embedding.weight.codes = torch.randint(-127, 128, (vocab_size, width), dtype=torch.int8)
    embedding.weight.scales = (torch.rand(vocab_size, width // GROUP) * 0.01).bfloat16()
    return embedding


def sure_of(ids: int, rows: int, vocab_size: int) -> Tensor:
    """Logits [rows, vocab_size] of rows in which that many ids are equally probable, and no others."""
    logits = torch.full((rows, vocab_size), -30.0, dtype=torch.bfloat16)
    for row in logits:
        row[torch.randperm(vocab_size)[:ids]] = 30.0
    return logits


def main() -> None:
    """Measure and print."""
    argparse.ArgumentParser(prog="python -m tests.bench.cpu_embedding", description=__doc__).parse_args()
    library = library_in_one_thread()
    config = released_config(6)
    rows, vocab_size = config.canvas_length, config.vocab_size
    table = random_table(vocab_size, config.hidden_size)
    ways = (Bf16Embedding(table), NativeEmbedding(table, library))
    print(f"{cpu_name()}, load {os.getloadavg()[0]:.1f}; the kernel: {ways[1].path}")
    print(f"ms of one thread for {rows} rows, least of {REPEATS}\n{'':34}{'bf16':>9}{'kernel':>9}")
    hidden = torch.randn(rows, config.hidden_size).bfloat16()
    with torch.inference_mode():
        taken = milliseconds([partial(way.logits, hidden) for way in ways])
        print(f"{'head':34}" + "".join(f"{least:9.0f}" for least in taken))
        for ids in NEEDED:
            logits = sure_of(ids, rows, vocab_size)
            normalizer = logits.float().logsumexp(dim=-1)
            taken = milliseconds([partial(way.soft, logits, normalizer) for way in ways])
            print(f"{f'soft embedding of {ids:,} ids a row':34}" + "".join(f"{least:9.0f}" for least in taken))


if __name__ == "__main__":
    main()
