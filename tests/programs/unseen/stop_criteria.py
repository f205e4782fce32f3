# text generation with a stopping criterion that looks at each token
import time, torch
from transformers import LlamaConfig, LlamaForCausalLM, StoppingCriteria, StoppingCriteriaList

class Stop(StoppingCriteria):
    def __call__(self, input_ids, scores, **kw):
        found = (input_ids[:, -1] == 5).all().item()
        return torch.full((input_ids.shape[0],), found, device=input_ids.device, dtype=torch.bool)

torch.manual_seed(0)
m = LlamaForCausalLM(LlamaConfig(vocab_size=8000, hidden_size=512, intermediate_size=1024, num_hidden_layers=6, num_attention_heads=8)).cuda().half().eval()
ids = torch.randint(10, 8000, (4, 32), device="cuda")
kw = dict(do_sample=False, max_new_tokens=64, min_new_tokens=64, pad_token_id=0, attention_mask=torch.ones_like(ids), stopping_criteria=StoppingCriteriaList([Stop()]))
m.generate(ids, **kw); n = 0; t = time.perf_counter()
while time.perf_counter() - t < 8:
    m.generate(ids, **kw)
    n += 4 * 64
print("RATE %.0f tokens/s" % (n / (time.perf_counter() - t)))
