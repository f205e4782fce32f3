"""Fit of a Gaussian process: many small kernels, and waits for the status of each factorization."""

from __future__ import annotations

import torch
from step_times import run_steps

POINTS = 1500


def main() -> None:
    """Maximize the likelihood of observations of a sine."""
    inputs = torch.linspace(0, 1, POINTS, device="cuda")[:, None]
    targets = torch.sin(20 * inputs[:, 0]) + 0.1 * torch.randn(POINTS, device="cuda")
    parameters = [torch.zeros((), device="cuda", requires_grad=True) for _ in range(3)]
    optimizer = torch.optim.Adam(parameters, lr=0.05)

    def step() -> None:
        length, scale, noise = (torch.nn.functional.softplus(one) for one in parameters)
        covariance = scale * torch.exp(-0.5 * torch.cdist(inputs, inputs) ** 2 / length**2)
        factor = torch.linalg.cholesky(covariance + (noise + 1e-3) * torch.eye(POINTS, device="cuda"))
        solved = torch.cholesky_solve(targets[:, None], factor)[:, 0]
        loss = 0.5 * targets @ solved + factor.diagonal().log().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    run_steps(step)


if __name__ == "__main__":
    main()
