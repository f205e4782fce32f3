"""Programs of ``bench_program_limits.py`` and ``bench_counter_cost.py``: trainings and decode loops of known limits.

python tests/programs/limit_programs.py NAME SECONDS

Prints what the program does at least: floating-point operations of its products by unit, and bytes read from memory, a
second. It needs a GPU with 60 GB, PyTorch and transformers.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode


class Work(NamedTuple):
    """A step that waits for its result, and what it does at least: operations of products, and bytes that are read."""

    step: Callable[[], Any]
    operations: float = 0.0
    read: float = 0.0


class Block:
    """A layer of a transformer that decodes one word, with the keys and values of the words before."""

    def __init__(self, width: int, length: int) -> None:
        self.norm = torch.nn.LayerNorm(width)
        sizes = ((width, 3 * width), (width, width), (width, 4 * width), (4 * width, width))
        self.linear = [torch.nn.Linear(*size) for size in sizes]
        self.keys, self.values = torch.zeros(2, 1, width // 64, length, 64)

    def __call__(self, hidden: Any, place: Any) -> Any:
        """The hidden state [1, 1, width] after this layer."""
        heads, mixed, up, down = self.linear
        parts = heads(self.norm(hidden)).view(1, 3, -1, 1, 64)
        self.keys.index_copy_(2, place, parts[:, 1])
        self.values.index_copy_(2, place, parts[:, 2])
        seen = functional.scaled_dot_product_attention(parts[:, 0], self.keys, self.values)
        hidden = hidden + mixed(seen.reshape(1, 1, -1))
        return hidden + down(functional.gelu(up(self.norm(hidden))))


def training(batch: int, length: int, is_bf16: bool, **config: Any) -> Work:
    """A training of GPT-2 in FP32 without TF32, or with autocast to bfloat16."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.set_float32_matmul_precision("highest")
    with torch.device("cuda"):
        model = GPT2LMHeadModel(GPT2Config(**config)).train()
        words = torch.randint(model.config.vocab_size, (batch, length))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16, enabled=is_bf16):
            loss = model(input_ids=words, labels=words).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()

    step()
    with FlopCounterMode(display=False) as counted:
        step()
    return Work(step, operations=counted.get_total_flops())


def generation(width: int, layers: int, words: int = 32) -> Work:
    """The library's own text generation for one sentence."""
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_embd": width, "n_layer": layers, "n_head": width // 128, "vocab_size": 32000}
    with torch.device("cuda"):
        model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=1)).bfloat16().eval()
        prompt = torch.randint(32000, (1, 16))
    how = {"attention_mask": torch.ones_like(prompt), "do_sample": False, "pad_token_id": 0}
    read = words * sum(each.numel() * each.element_size() for each in model.parameters())
    return Work(lambda: model.generate(prompt, max_new_tokens=words, min_new_tokens=words, **how).tolist(), read=read)


def graph_decoding(width: int, layers: int, words: int) -> Work:
    """A decode loop of one sentence whose graph decodes ``words`` words."""
    length, vocabulary = 512, 32000 if width > 1024 else 4096
    torch.set_grad_enabled(False)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        blocks = [Block(width, length) for _ in range(layers)]
        known, head = (torch.nn.Linear(width, vocabulary, bias=False) for _ in range(2))
        word, place = torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, dtype=torch.long)

    def decode() -> None:
        for _ in range(words):
            hidden = known.weight[word]
            for block in blocks:
                hidden = block(hidden, place)
            word.copy_(head(hidden).argmax(-1))
            place.add_(1).remainder_(length)

    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        decode()
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph):
        decode()

    def step() -> int:
        graph.replay()
        return int(word.item())

    weights = [head.weight, *(linear.weight for block in blocks for linear in block.linear)]
    return Work(step, read=words * sum(each.numel() * each.element_size() for each in weights))


# A GPT-2 of few wide layers without dropout, whose activation is one kernel: nearly all of its time is in products.
WIDE = {
    **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
    "n_embd": 4096, "n_layer": 4, "n_head": 32, "n_positions": 2048, "vocab_size": 8192, "bos_token_id": 0,
    "eos_token_id": 1, "activation_function": "gelu_pytorch_tanh",
}  # fmt: skip


class Program(NamedTuple):
    """What makes the work of a program, the unit of its products, the right limits, and why they are right."""

    make: Callable[[], Work]
    unit: str
    limits: tuple[str, ...]
    why: str


PROGRAMS = {
    "train-bf16-wide": Program(
        lambda: training(8, 2048, True, **WIDE), "tensor", ("tensor",),
        "83 Tflop of products take about 130 ms, 80 GB of all other kernels and the optimizer about 20",
    ),
    "train-bf16": Program(
        lambda: training(16, 1024, True), "tensor", ("dram",),
        "the activation's kernels in FP32, the logits, dropout and norms move some 170 GB: about 45 ms; products 25",
    ),
    "train-fp32": Program(
        lambda: training(2, 2048, False, **WIDE), "fp32", ("fp32",),
        "21 Tflop of products in FP32 take about 400 ms, 40 GB of all other kernels about 10",
    ),
    "generate": Program(
        lambda: generation(8192, 10), "tensor", ("dram",),
        "each word reads 17 GB of weights, two operations for each number",
    ),
    "graph-decode": Program(
        lambda: graph_decoding(8192, 10, 1), "tensor", ("dram",),
        "each word reads 16 GB of weights, two operations for each number",
    ),
    "graph-decode-small": Program(
        lambda: graph_decoding(512, 4, 16), "tensor", ("few-blocks", "latency"),
        "33 MB of weights remain in the cache; about 60 kernels of 2 us for each word, of few blocks each",
    ),
}  # fmt: skip


def main(name: str, seconds: float) -> None:
    """Run a program for ``seconds``."""
    work = PROGRAMS[name].make()
    work.step()
    begin, steps = time.monotonic(), 0
    while (passed := time.monotonic() - begin) < seconds:
        work.step()
        steps += 1
    done = {"steps": 1.0, "operations": work.operations, "read": work.read}
    sys.stdout.write(f"RATE {json.dumps({name: each * steps / passed for name, each in done.items()})}\n")


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
