"""Generation of text by a small language model with random weights; a step is one token of all sequences."""

from __future__ import annotations

import torch
from step_times import run_steps
from transformers import GPT2Config, GPT2LMHeadModel

# Few layers, so that there are many steps to compare.
LAYERS, SEQUENCES, PROMPT, LONGEST = 2, 8, 32, 512


def main() -> None:
    """Generate."""
    model = GPT2LMHeadModel(GPT2Config(n_layer=LAYERS)).cuda().half().eval()
    prompt = torch.randint(0, 50_000, (SEQUENCES, PROMPT), device="cuda")
    tokens, past = prompt, None

    def step() -> bool:
        nonlocal tokens, past
        with torch.inference_mode():
            found = model(tokens, past_key_values=past, use_cache=True)
        chosen = torch.multinomial(torch.softmax(found.logits[:, -1].float(), dim=-1), 1)
        tokens, past = chosen, found.past_key_values
        if past.get_seq_length() >= LONGEST:
            tokens, past = prompt, None
        # Whether all sequences have ended, as a library asks after each token.
        return bool((chosen == 0).all())

    run_steps(step)


if __name__ == "__main__":
    main()
