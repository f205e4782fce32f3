# an adaptive ODE solver in JAX, one number read from each solution
import os; os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
import time, jax, jax.numpy as jnp, diffrax

def field(t, y, args):
    u, v = y
    return v, 2.0 * (1 - u * u) * v - u

@jax.jit
def solve(u0):
    sol = diffrax.diffeqsolve(diffrax.ODETerm(field), diffrax.Tsit5(), t0=0.0, t1=10.0, dt0=0.01, y0=(u0, jnp.zeros_like(u0)),
                              stepsize_controller=diffrax.PIDController(rtol=1e-4, atol=1e-5), max_steps=4096)
    return sol.ys[0].sum()

u0 = jnp.linspace(0.5, 2.5, 1024)
float(solve(u0)); n = 0; t = time.perf_counter()
while time.perf_counter() - t < 8:
    float(solve(u0))
    n += 1
print("RATE %.0f solves/s" % (n / (time.perf_counter() - t)))
