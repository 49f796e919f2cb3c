#!/usr/bin/env python3
"""Writes trajectories.json: parameters under PyTorch's optimizers, step by step.

usage: tests/nn/trajectories.py > tests/nn/trajectories.json   (made with torch 2.15.0)

The loss is mean((tanh(x @ w + b) - y)^2). The rate is halved after the third step; in the cases named "late", b takes
part from the third step on only.
"""
import json

import torch

torch.set_num_threads(1)
STEPS, RATE = 6, 0.1

CASES = [
    ("SGD", {}),
    ("SGD", {"weight_decay": 0.1}),
    ("SGD", {"momentum": 0.9}),
    ("SGD", {"momentum": 0.9, "dampening": 0.3}),
    ("SGD", {"momentum": 0.9, "weight_decay": 0.1, "nesterov": True}),
    ("Adam", {}),
    ("Adam", {"betas": [0.8, 0.95], "eps": 1e-3, "weight_decay": 0.1}),
    ("AdamW", {}),
    ("AdamW", {"betas": [0.8, 0.95], "weight_decay": 0.5}),
]


def values(shape, dtype):
    """Numbers that look random and are exact in f32."""
    n = torch.Size(shape).numel()
    numbers = [((i * 37 + 11) % 64 - 32) / 32 for i in range(n)]
    return torch.tensor(numbers, dtype=dtype).reshape(shape)


def trajectory(optimizer, options, dtype, late):
    x, y = values((4, 3), dtype), values((4, 2), dtype) / 2
    w, b = values((3, 2), dtype).requires_grad_(), (values((2,), dtype) / 4).requires_grad_()
    o = getattr(torch.optim, optimizer)([w, b], lr=RATE, foreach=False, **options)
    steps = []
    for step in range(STEPS):
        if step == 3:
            o.param_groups[0]["lr"] = RATE / 2
        z = x @ w if late and step < 2 else x @ w + b
        loss = ((torch.tanh(z) - y) ** 2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        steps.append({"loss": loss.item(), "w": w.flatten().tolist(), "b": b.tolist()})
    return steps


cases = []
for optimizer, options in CASES:
    for dtype in ("float32", "float64"):
        for late in (False, True):
            if late and dtype == "float32":
                continue
            cases.append({
                "optimizer": optimizer,
                "options": options,
                "dtype": dtype,
                "late": late,
                "steps": trajectory(optimizer, options, getattr(torch, dtype), late),
            })
rows = ",\n".join(" " + json.dumps(case) for case in cases)
print(f'{{"torch": "{torch.__version__}", "rate": {RATE}, "cases": [\n{rows}\n]}}')
