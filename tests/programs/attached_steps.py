"""Steps of a framework without an end, for attaching: attached_steps.py training|generation|graphs|arrays|gate

Each step checks its own result. After "ready", each line on the input is answered by one: "ok", how many steps there
were, the longest step since the line before and the median step (ns); or "wrong" with what is, and exit code 3. The
program ends with its input, with 0. "gate" is report 5: it hangs, by design, until a line comes, which opens its gate.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable

_guard = threading.Lock()
_times: list[int] = []
_counts = {"steps": 0}


def fail(text: str) -> None:
    """End the program because a result is wrong."""
    os.write(1, f"wrong: {text}\n".encode())
    os._exit(3)


def answer_lines() -> None:
    """Answer the input, and end the program with it."""
    for _ in sys.stdin:
        with _guard:
            found = sorted(_times)
            _times.clear()
            steps = _counts["steps"]
        longest, median = (found[-1], found[len(found) // 2]) if found else (0, 0)
        os.write(1, f"ok {steps} {longest} {median}\n".encode())
    # Workers of a data loader end with it.
    os._exit(0)


def run(step: Callable[[], None]) -> None:
    """Make steps without an end; the first ones compile and load."""
    for _ in range(10):
        step()
    threading.Thread(target=answer_lines, name="answers", daemon=True).start()
    os.write(1, b"ready\n")
    while True:
        before = time.monotonic_ns()
        step()
        with _guard:
            _times.append(time.monotonic_ns() - before)
            _counts["steps"] += 1


def training() -> Callable[[], None]:
    """ResNet-18, with batches that other processes load."""
    import torch
    from torchvision.models import resnet18
    from training_steps import BATCH, CLASSES, WORKERS, Images

    model = resnet18(num_classes=CLASSES).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches = iter(torch.utils.data.DataLoader(Images(), batch_size=BATCH, num_workers=WORKERS))
    ones = torch.ones(1 << 20, device="cuda", dtype=torch.int64)

    def step() -> None:
        images, labels = (one.cuda() for one in next(batches))
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not torch.isfinite(loss).item() or int((ones + ones).sum().item()) != 2 << 20:
            fail(f"loss {float(loss.item())}")

    return step


def generation() -> Callable[[], None]:
    """A small language model that generates the same text again and again."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_layer=4)).cuda().eval()
    prompt = torch.randint(0, 50_000, (4, 16), device="cuda")
    first: list[object] = []

    def step() -> None:
        with torch.inference_mode():
            found = model.generate(prompt, max_new_tokens=16, do_sample=False, pad_token_id=0)
        text = found.cpu().numpy().tobytes()
        first.append(text)
        del first[1:]
        if first[0] != text:
            fail("another text")

    return step


def graphs() -> Callable[[], None]:
    """A network in JAX, whose step is a CUDA graph, from the same weights again and again."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax

    keys = jax.random.split(jax.random.PRNGKey(0), 9)
    weights = [0.05 * jax.random.normal(key, (512, 512)) for key in keys[:-1]]
    inputs = jax.random.normal(keys[-1], (256, 512))

    def loss_of(present: list[jax.Array]) -> jax.Array:
        values = inputs
        for one in present:
            values = jax.nn.gelu(values @ one)
        return ((values - inputs) ** 2).mean()

    update = jax.jit(jax.value_and_grad(loss_of))
    first = float(update(weights)[0])

    def step() -> None:
        loss = float(update(weights)[0])
        if abs(loss - first) > 1e-3 * abs(first):
            fail(f"loss {loss} in place of {first}")

    return step


def arrays() -> Callable[[], None]:
    """CuPy in two threads."""
    import cupy

    size = 1 << 16

    def add() -> None:
        with cupy.cuda.Stream(non_blocking=True):
            ones = cupy.ones(size, dtype=cupy.float32)
            values = ones
            for _ in range(50):
                values = values + ones
            if float(values.sum()) != size * 51:
                fail(f"sum {float(values.sum())}")

    def beside() -> None:
        while True:
            add()

    threading.Thread(target=beside, name="beside", daemon=True).start()
    return add


def gate() -> None:
    """A pageable copy waits for a gate, and a launch for the copy, until a line comes; again for each."""
    import ctypes

    from driver import HOST_FUNCTION, NO_TIMING, Driver, pageable_memory

    driver = Driver()
    context = driver.primary()
    launch, gated, unrelated = context.kernel(), context.stream(), context.stream()
    source, target, size = context.device_memory(4), pageable_memory(4), ctypes.c_size_t(4)
    event, opened = ctypes.c_void_p(), threading.Event()
    driver("cuEventCreate", ctypes.byref(event), NO_TIMING)
    launch(2_000, unrelated)
    driver("cuCtxSynchronize")
    function = HOST_FUNCTION(lambda _: opened.wait())

    def copy() -> None:
        context.make_current()
        driver("cuMemcpyDtoHAsync_v2", target, source, size, ctypes.c_void_p())

    def close_and_launch() -> None:
        context.make_current()
        opened.clear()
        driver("cuLaunchHostFunc", gated, function, None)
        driver("cuEventRecord", event, gated)
        driver("cuStreamWaitEvent", ctypes.c_void_p(), event, 0)
        copies = threading.Thread(target=copy, name="copy")
        copies.start()
        time.sleep(0.1)
        launch(2_000, unrelated)
        copies.join()

    hung = threading.Thread(target=close_and_launch, name="launch")
    hung.start()
    time.sleep(0.5)
    os.write(1, b"ready\n")
    for rounds, _ in enumerate(sys.stdin, 1):
        opened.set()
        hung.join()
        hung = threading.Thread(target=close_and_launch, name="launch")
        hung.start()
        time.sleep(0.5)
        os.write(1, f"ok {rounds} 0 0\n".encode())
    os._exit(0)


def main(kind: str) -> None:
    """Run a kind of steps."""
    if kind == "gate":
        gate()
    else:
        run({"training": training, "generation": generation, "graphs": graphs, "arrays": arrays}[kind]())


if __name__ == "__main__":
    main(sys.argv[1])
