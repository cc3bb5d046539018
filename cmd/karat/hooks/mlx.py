"""Dumps what a model of mlx_lm computes, for karat lab diagnose and karat lab compare.

    python3 dump.py MODEL PROMPTS.json OUT.npz

needs mlx, mlx_lm and numpy. PROMPTS.json is a list of objects, each with "text" or "ids". OUT.npz holds, for prompt i:
{i}.ids, {i}.logits and {i}.tap.MODULE.out, what each module gave, and .in, what the last projections read.
"""
import json
import sys

import mlx.core as mx
import numpy
from mlx_lm import load

model, tokenizer = load(sys.argv[1])
arrays, caught = {}, {}


def keep(name, value):
    if isinstance(value, (tuple, list)) and value:
        value = value[0]
    if isinstance(value, mx.array) and value.ndim > 1 and mx.issubdtype(value.dtype, mx.floating) and name not in caught:
        caught[name] = numpy.array(value.astype(mx.float32))


def tap(name, module):
    class Tapped(type(module)):
        def __call__(self, *inputs, **options):
            if name.endswith(("o_proj", "down_proj")):
                keep(name + ".in", inputs[0])
            output = super().__call__(*inputs, **options)
            keep(name + ".out", output)
            return output

    module.__class__ = Tapped


for name, module in model.named_modules():
    if name and callable(module):
        tap(name, module)
for i, prompt in enumerate(json.load(open(sys.argv[2], encoding="utf-8"))):
    ids = prompt["ids"] if "ids" in prompt else tokenizer.encode(prompt["text"])
    caught.clear()
    logits = model(mx.array([ids]))
    arrays[f"{i}.ids"] = numpy.array(ids, "i4")
    arrays[f"{i}.logits"] = numpy.array(logits[0].astype(mx.float32))
    for name, value in caught.items():
        if value.shape[:2] == (1, len(ids)):  # not what an expert saw, nor heads in front
            arrays[f"{i}.tap.{name}"] = value[0]
    print(f"prompt {i}: {len(ids)} tokens, {len(caught)} taps", file=sys.stderr)
numpy.savez(sys.argv[3], **arrays)
