"""Dumps what a Hugging Face model computes in PyTorch, for karat lab diagnose and karat lab compare.

    python3 dump.py MODEL PROMPTS.json OUT.safetensors [--dtype float32] [--device cpu] [--decode K]

needs torch, transformers and safetensors. MODEL is a folder or a name on the hub. PROMPTS.json is a list of
objects, each with one of "text" (raw text), "chat" (messages with "role" and "content") and "ids".

OUT.safetensors holds, for prompt i: {i}.ids; {i}.logits [positions, vocabulary]; {i}.tap.MODULE.out, what each
module gave, and .in, what attention's and the MLP's last projection read, [positions, ...]; and the queries and
keys after rotation, as MODULE.q_rope.out and .k_rope.out, where the model's code rotates them by
apply_rotary_pos_emb. OUT.json says of which prompts, and in what numbers. With --decode the last K tokens
of a prompt are fed one by one, through the cache.
"""
import argparse
import json
import sys

import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

SHORT = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16"}

args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
args.add_argument("model")
args.add_argument("prompts")
args.add_argument("out")
args.add_argument("--dtype", choices=SHORT, default="float32")
args.add_argument("--device", default="cpu")
args.add_argument("--decode", type=int, default=0, metavar="K")
args = args.parse_args()
if not args.out.endswith(".safetensors"):
    sys.exit("OUT must end in .safetensors")

# float32 means float32: no TF32 in products.
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False

tokenizer = AutoTokenizer.from_pretrained(args.model)
options = {"attn_implementation": "eager"}
if int(transformers.__version__.split(".")[0]) >= 5:
    options |= {"dtype": getattr(torch, args.dtype), "experts_implementation": "eager"}
else:
    options["torch_dtype"] = getattr(torch, args.dtype)
model = AutoModelForCausalLM.from_pretrained(args.model, **options).eval().to(args.device)


heads_first = {}  # by point: which of four dimensions are the heads


class Taps:
    """Catches, in one call of the model, the first value at each point."""

    def __init__(self, model, probing=False):
        self.caught, self.length, self.attention, self.probing = {}, 0, None, probing
        self.undo = []
        for name, module in model.named_modules():
            if not name:
                continue
            self.undo.append(module.register_forward_hook(self.after(name)).remove)
            if name.endswith(("o_proj", "down_proj")):
                self.undo.append(module.register_forward_pre_hook(self.before(name)).remove)
            if name.endswith("self_attn"):
                self.undo.append(module.register_forward_pre_hook(self.enter(name), with_kwargs=True).remove)
                self.patch(sys.modules.get(type(module).__module__))

    def remove(self):
        for undo in self.undo:
            undo()

    def keep(self, name, value):
        """Keeps a copy of [1, positions, ...], or of [1, heads, positions, size] with positions first."""
        if not torch.is_tensor(value) or not value.is_floating_point() or value.dim() < 2 or name in self.caught:
            return
        if value.dim() == 4:
            if self.probing:
                heads_first.setdefault(name, value.shape[1] != self.length and value.shape[2] == self.length)
            if heads_first.get(name):
                value = value.transpose(1, 2)
        if value.dim() > 2:
            value = value.reshape(-1, *value.shape[2:])
        if value.shape[0] == self.length:  # not what an expert saw of some positions
            self.caught[name] = value.detach().to("cpu", copy=True).contiguous()

    def after(self, name):
        return lambda module, inputs, output: self.keep(name + ".out", output[0] if isinstance(output, tuple) else output)

    def before(self, name):
        return lambda module, inputs: self.keep(name + ".in", inputs[0]) if inputs else None

    def enter(self, name):
        def hook(module, inputs, kwargs):
            self.attention = name

        return hook

    def patch(self, code):
        """Wraps the rotation of queries and keys, of both at once or of one after the other."""
        rotate = getattr(code, "apply_rotary_pos_emb", None)
        if rotate is None or hasattr(rotate, "karat"):
            return

        def rotated(*inputs, **kwargs):
            output = rotate(*inputs, **kwargs)
            name = self.attention
            if isinstance(output, tuple):
                self.keep(f"{name}.q_rope.out", output[0])
                self.keep(f"{name}.k_rope.out", output[1])
            else:
                self.keep(f"{name}.k_rope.out" if f"{name}.q_rope.out" in self.caught else f"{name}.q_rope.out", output)
            return output

        rotated.karat = True
        code.apply_rotary_pos_emb = rotated
        self.undo.append(lambda: setattr(code, "apply_rotary_pos_emb", rotate))


def run(ids, taps=None):
    """The logits of all positions, and what the taps saw, over the prompt's part and its decoded tokens."""
    first = max(1, len(ids) - args.decode)
    steps = [ids[:first]] + [[t] for t in ids[first:]]
    cache, logits, seen = None, [], {}
    for step in steps:
        if taps:
            taps.caught, taps.length = {}, len(step)
        with torch.no_grad():
            output = model(input_ids=torch.tensor([step], device=args.device), past_key_values=cache, use_cache=len(steps) > 1)
        cache = output.past_key_values if len(steps) > 1 else None
        logits.append(output.logits[0].detach().cpu())
        for name, value in (taps.caught if taps else {}).items():
            seen.setdefault(name, []).append(value)
    whole = {name: torch.cat(values) for name, values in seen.items() if len(values) == len(steps)}
    return torch.cat(logits).contiguous(), whole


# A call of more tokens than there are heads tells one from the other.
taps = Taps(model, probing=True)
run([0] * (model.config.get_text_config().num_attention_heads + 1 + args.decode), taps)
taps.remove()

tensors, prompts, neutral = {}, [], True
for i, prompt in enumerate(json.load(open(args.prompts, encoding="utf-8"))):
    if "ids" in prompt:
        ids, text = prompt["ids"], ""  # what text they were of nobody knows
    elif "chat" in prompt:
        text = tokenizer.apply_chat_template(prompt["chat"], tokenize=False, add_generation_prompt=True)
        ids = tokenizer(text, add_special_tokens=False).input_ids
    else:
        text = prompt["text"]
        ids = tokenizer(text).input_ids
    if not ids:
        sys.exit(f"prompt {i} has no tokens")
    taps = Taps(model)
    logits, caught = run(ids, taps)
    taps.remove()
    neutral = neutral and torch.equal(logits, run(ids)[0])
    tensors[f"{i}.ids"] = torch.tensor(ids, dtype=torch.int32)
    tensors[f"{i}.logits"] = logits
    for name, value in caught.items():
        tensors[f"{i}.tap.{name}"] = value
    entry = {"index": i, "prompt": prompt, "text": text, "ids": ids, "positions_kept": len(ids)}
    if args.decode:
        entry["decode"] = min(args.decode, len(ids) - 1)
    prompts.append(entry)
    print(f"prompt {i}: {len(ids)} tokens, {len(caught)} taps", file=sys.stderr)

if not neutral:
    print("warning: the logits are not the same without the taps: this machine's results vary, or a tap changes them", file=sys.stderr)
save_file(tensors, args.out)
info = {
    "prompts": prompts,
    "names": "hf",
    "numerics": {
        "engine": f"transformers {transformers.__version__}, torch {torch.__version__}",
        "activations": SHORT[args.dtype],
        "kv": SHORT[args.dtype],
        "device": args.device,
        "capture_neutral": neutral,
    },
}
with open(args.out.removesuffix(".safetensors") + ".json", "w", encoding="utf-8") as f:
    json.dump(info, f, ensure_ascii=False, indent=1)
