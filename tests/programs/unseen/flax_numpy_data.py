# Flax and Optax, batches made with NumPy, the loss read in each step
import os; os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
import time, numpy as np, jax, jax.numpy as jnp, optax, flax.linen as nn

class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        for width in (256, 256): x = nn.relu(nn.Dense(width)(x))
        return nn.Dense(10)(x)

net, tx, rng = Net(), optax.adamw(1e-3), np.random.default_rng(0)
params = net.init(jax.random.PRNGKey(0), jnp.zeros((1, 784)))
state = tx.init(params)

def loss_of(p, x, y):
    return optax.softmax_cross_entropy_with_integer_labels(net.apply(p, x), y).mean()

@jax.jit
def step(p, s, x, y):
    loss, g = jax.value_and_grad(loss_of)(p, x, y)
    u, s = tx.update(g, s, p)
    return optax.apply_updates(p, u), s, loss

n = 0; t = time.perf_counter(); y = np.arange(512, dtype=np.int32) % 10
while time.perf_counter() - t < 11:
    x = rng.standard_normal((512, 784), dtype=np.float32)
    params, state, loss = step(params, state, x, y)
    v = float(loss); n += 1
print("RATE %.0f steps/s" % (n / (time.perf_counter() - t)))
