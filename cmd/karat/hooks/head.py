"""Dumps a head for drafts (multi-token prediction) that an engine runs in PyTorch, for karat lab diagnose --draft-head.

Copy Head into the engine. It takes the head's module, and the module's name in the model's file:

    head = Head(model.layers["61"], "model.layers.61")   # DeepSeek and GLM: enorm, hnorm, eh_proj, shared_head, the layer
    head = Head(model.mtp, "mtp")                        # Qwen 3.5: fc, pre_fc_norm_embedding, ..., layers.0, norm
    head.prompt(ids, logits, drafts)                     # behind each prompt, of one sequence at a time
    head.save("dump.npz")

ids are the tokens of the head's rows, and one in front: the first row has the second token and the first token's state.
drafts is the number of last rows fed the head's own state, in a call each. logits are the head's, a row for each row.
"""
import json

import numpy


class Head:
    def __init__(self, module, name):
        self.caught, self.arrays, self.prompts = {}, {}, []
        for part, inner in module.named_modules():
            inner.register_forward_hook(self.after(f"{name}.{part}".strip(".")))

    def after(self, name):
        def keep(module, inputs, output):
            self.add(name + ".out", output[0] if isinstance(output, tuple) else output)
            if inputs and name.endswith(("hnorm", "pre_fc_norm_hidden", "o_proj", "down_proj")):
                self.add(name + ".in", inputs[0])

        return keep

    def add(self, name, value):
        if hasattr(value, "detach") and value.is_floating_point() and value.dim() > 1:
            value = numpy.array(value.detach().float().cpu(), "f4")  # a copy
            self.caught.setdefault(name, []).append(value.reshape(-1, value.shape[-1]))

    def prompt(self, ids, logits, drafts=0):
        i = len(self.prompts)
        self.arrays[f"{i}.ids"] = numpy.array(ids, "i4")
        self.arrays[f"{i}.logits"] = numpy.array(logits.detach().float().cpu(), "f4")
        for name, parts in self.caught.items():
            rows = numpy.concatenate(parts)
            if len(rows) == len(ids) - 1:  # not what an expert saw of some rows
                self.arrays[f"{i}.tap.{name}"] = rows
        self.prompts.append({"index": i, "decode": drafts})
        self.caught = {}

    def save(self, path):
        numpy.savez(path, **self.arrays)
        with open(path.removesuffix(".npz") + ".json", "w", encoding="utf-8") as f:
            json.dump({"prompts": self.prompts}, f)
