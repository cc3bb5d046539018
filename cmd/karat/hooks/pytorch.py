"""Dumps what a Hugging Face model computes in PyTorch, for karat lab diagnose and karat lab compare.

    python3 dump.py MODEL PROMPTS.json OUT.safetensors [--dtype float32] [--device cpu] [--decode K]

needs torch, transformers and safetensors. MODEL is a folder or a name on the hub. PROMPTS.json is a list of
objects, each with one of "text" (raw text), "chat" (messages with "role" and "content") and "ids". With "images", a
list of paths from the folder of PROMPTS.json, the text has the model's mark for each picture, and ids have the tokens
of its rows; pictures need Pillow.

OUT.safetensors holds, for prompt i: {i}.ids; {i}.logits [positions, vocabulary]; {i}.tap.MODULE.out, what each
module gave, and .in, what attention's and the MLP's last projection read, [positions, ...]; and the queries and
keys after rotation, as MODULE.q_rope.out and .k_rope.out, where the model's code rotates them by
apply_rotary_pos_emb. OUT.json says of which prompts, and in what numbers. With --decode the last K tokens
of a prompt are fed one by one, through the cache. Of pictures there are, besides, {i}.tap.image.pixels [patches, numbers],
what the modules before the text gave, and in OUT.json the files' hashes and grids of patches, the runs of their rows
and the positions of three parts.
"""
import argparse
import hashlib
import inspect
import json
import os
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

asked = json.load(open(args.prompts, encoding="utf-8"))
tokenizer, processor, kind = AutoTokenizer.from_pretrained(args.model), None, AutoModelForCausalLM
if any("images" in prompt for prompt in asked):
    from PIL import Image

    processor, kind = transformers.AutoProcessor.from_pretrained(args.model), transformers.AutoModelForImageTextToText
options = {"attn_implementation": "eager"}
if int(transformers.__version__.split(".")[0]) >= 5:
    options |= {"dtype": getattr(torch, args.dtype), "experts_implementation": "eager"}
else:
    options["torch_dtype"] = getattr(torch, args.dtype)
model = kind.from_pretrained(args.model, **options).eval().to(args.device)


SIGHT = ("visual", "vision_tower", "vision_model", "multi_modal_projector", "connector", "embed_vision")


def sees(name):
    """Whether a module comes before the text."""
    return name.removeprefix("model.").split(".")[0] in SIGHT


heads_first = {}  # by point: which of four dimensions are the heads


class Taps:
    """Catches, in one call of the model, the first value at each point."""

    def __init__(self, model, probing=False):
        self.caught, self.length, self.attention, self.probing = {}, 0, None, probing
        self.sight, self.parts, self.kept = {}, None, None
        self.undo = []
        for name, module in model.named_modules():
            if not name:
                continue
            if sees(name):
                self.undo.append(module.register_forward_hook(self.see(name)).remove)
                continue
            self.undo.append(module.register_forward_hook(self.after(name)).remove)
            if name.endswith("language_model"):
                self.undo.append(module.register_forward_pre_hook(self.place, with_kwargs=True).remove)
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

    def see(self, name):
        """Keeps rows of patches, call after call."""

        def hook(module, inputs, output):
            output = output[0] if isinstance(output, (tuple, list)) and output else output
            output = getattr(output, "last_hidden_state", output)
            if not torch.is_tensor(output) or not output.is_floating_point() or output.dim() < 2:
                return
            if self.kept is not None and output.shape[:2] == self.kept.shape:
                output = output[self.kept]
            if isinstance(module, torch.nn.Conv2d):
                output = output.flatten(2).transpose(1, 2)
            elif isinstance(module, torch.nn.Conv3d):
                output = output.flatten(1)
            rows = output.detach().to("cpu", copy=True).reshape(-1, output.shape[-1])
            self.sight.setdefault(name + ".out", []).append(rows)

        return hook

    def place(self, module, inputs, kwargs):
        """Keeps positions of three parts."""
        positions = kwargs.get("position_ids")
        if self.parts is None and torch.is_tensor(positions) and positions.dim() == 3 and positions.shape[0] > 2:
            self.parts = positions[-3:, 0].T.tolist()

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
            if name is None:
                return output
            if isinstance(output, tuple):
                self.keep(f"{name}.q_rope.out", output[0])
                self.keep(f"{name}.k_rope.out", output[1])
            else:
                self.keep(f"{name}.k_rope.out" if f"{name}.q_rope.out" in self.caught else f"{name}.q_rope.out", output)
            return output

        rotated.karat = True
        code.apply_rotary_pos_emb = rotated
        self.undo.append(lambda: setattr(code, "apply_rotary_pos_emb", rotate))


def run(ids, taps=None, pictures={}):
    """The logits of all positions, and what the taps saw, over the prompt's part and its decoded tokens."""
    first = max(1, len(ids) - args.decode)
    steps = [ids[:first]] + [[t] for t in ids[first:]]
    cache, logits, seen = None, [], {}
    for step in steps:
        if taps:
            taps.caught, taps.length = {}, len(step)
        with torch.no_grad():
            output = model(input_ids=torch.tensor([step], device=args.device), past_key_values=cache, use_cache=len(steps) > 1,
                           **{k: v[:, : len(step)] if k.endswith("token_type_ids") else v for k, v in pictures.items()})
        pictures = {}
        cache = output.past_key_values if len(steps) > 1 else None
        logits.append(output.logits[0].detach().cpu())
        for name, value in (taps.caught if taps else {}).items():
            seen.setdefault(name, []).append(value)
    whole = {name: torch.cat(values) for name, values in seen.items() if len(values) == len(steps)}
    return torch.cat(logits).contiguous(), whole


def patches(inputs):
    """The numbers in a picture's patches, tile after tile, and the rows and columns of patches of each tile."""
    x = inputs["pixel_values"]
    if "image_grid_thw" in inputs:
        return x, [[h, w] for _, h, w in inputs["image_grid_thw"].tolist()]
    if "image_position_ids" in inputs:  # x and y, -1 where patches are padding; the tower scales the numbers
        return 2 * x[padding(inputs)] - 1, [[int(p[:, 1].max()) + 1, int(p[:, 0].max()) + 1] for p in inputs["image_position_ids"]]
    if "spatial_shapes" in inputs:
        return x[padding(inputs)], inputs["spatial_shapes"].tolist()
    side = model.config.vision_config.patch_size
    rows, grids = [], []
    for i, tile in enumerate(x.reshape(-1, *x.shape[-3:])):
        h, w = inputs["image_sizes"][i].tolist() if "image_sizes" in inputs else tile.shape[1:]
        if x.dim() == 5 and not tile.any():  # padding of pictures with fewer tiles
            continue
        h, w = h // side, w // side
        tile = tile[:, : h * side, : w * side].reshape(3, h, side, w, side)
        rows.append(tile.permute(1, 3, 0, 2, 4).reshape(h * w, -1))
        grids.append([h, w])
    return torch.cat(rows), grids


def look(paths):
    """The pictures of a prompt, how OUT.json names them, and the numbers in their patches."""
    here, there = os.path.dirname(os.path.abspath(args.prompts)), os.path.dirname(os.path.abspath(args.out))
    shown, named, pixels = [], [], []
    for path in paths:
        path = os.path.join(here, path)
        with open(path, "rb") as f:
            digest = hashlib.sha256(f.read()).hexdigest()
        shown.append(Image.open(path))
        rows, grids = patches(processor.image_processor(images=[shown[-1]], return_tensors="pt"))
        named.append({"path": os.path.relpath(path, there), "sha256": digest, "grids": grids})
        pixels.append(rows)
    return shown, named, torch.cat(pixels).to(torch.float32).contiguous()


def padding(inputs):
    """Which of the padded patches are patches, None where there is no padding."""
    if "image_position_ids" in inputs:
        return (inputs["image_position_ids"] >= 0).all(-1)
    return inputs["pixel_attention_mask"].bool() if "spatial_shapes" in inputs else None


def in_order(name, rows, inputs):
    """Rows of Qwen2.5-VL's tower in the order of patches, not of windows."""
    visual = getattr(model.base_model, "visual", None)
    if not hasattr(visual, "get_window_index") or ".blocks." not in name and ".merger" not in name:
        return rows.contiguous()
    order = torch.argsort(torch.as_tensor(visual.get_window_index(inputs["image_grid_thw"])[0]).cpu())
    return rows.reshape(len(order), -1, rows.shape[-1])[order].reshape(rows.shape).contiguous()


def image_rows(ids):
    """The runs of positions of pictures' rows, first and end."""
    image, runs = getattr(model.config, "image_token_id", getattr(model.config, "image_token_index", None)), []
    for i, t in enumerate(ids):
        if t == image and runs and runs[-1][1] == i:
            runs[-1][1] = i + 1
        elif t == image:
            runs.append([i, i + 1])
    return runs


def inputs_of(shown, ids, text, special):
    """The ids of a prompt with pictures, and what else the model takes."""
    if ids is None:
        inputs = dict(processor(text=[text], images=shown, return_tensors="pt", add_special_tokens=special))
        ids = inputs.pop("input_ids")[0].tolist()
        inputs.pop("attention_mask", None)
    else:
        inputs = dict(processor.image_processor(images=shown, return_tensors="pt"))
        kinds = torch.zeros(1, len(ids), dtype=torch.int64)
        for first, end in image_rows(ids):
            kinds[0, first:end] = 1
        inputs |= {"token_type_ids": kinds, "mm_token_type_ids": kinds}
    takes = inspect.signature(model.forward).parameters
    number = getattr(torch, args.dtype)
    return ids, {k: v.to(args.device, number if v.is_floating_point() else v.dtype) for k, v in inputs.items()
                 if torch.is_tensor(v) and k in takes}


# A call of more tokens than there are heads tells one from the other.
taps = Taps(model, probing=True)
run([0] * (model.config.get_text_config().num_attention_heads + 1 + args.decode), taps)
taps.remove()

tensors, prompts, neutral = {}, [], True
for i, prompt in enumerate(asked):
    shown, named, pixels = look(prompt["images"]) if "images" in prompt else ([], [], None)
    if "ids" in prompt:
        ids, text = prompt["ids"], ""  # what text they were of nobody knows
    elif "chat" in prompt:
        text = (processor if shown else tokenizer).apply_chat_template(prompt["chat"], tokenize=False, add_generation_prompt=True)
        ids = None if shown else tokenizer(text, add_special_tokens=False).input_ids
    else:
        text = prompt["text"]
        ids = None if shown else tokenizer(text).input_ids
    pictures = {}
    if shown:
        ids, pictures = inputs_of(shown, ids, text, "text" in prompt)
    if not ids:
        sys.exit(f"prompt {i} has no tokens")
    taps = Taps(model)
    taps.kept = padding(pictures)
    logits, caught = run(ids, taps, pictures)
    taps.remove()
    neutral = neutral and torch.equal(logits, run(ids, None, pictures)[0])
    if shown:
        caught = {"image.pixels": pixels} | {name: in_order(name, torch.cat(rows), pictures) for name, rows
                                             in taps.sight.items() if len({r.shape[-1] for r in rows}) == 1} | caught
    tensors[f"{i}.ids"] = torch.tensor(ids, dtype=torch.int32)
    tensors[f"{i}.logits"] = logits
    for name, value in caught.items():
        tensors[f"{i}.tap.{name}"] = value
    entry = {"index": i, "prompt": {k: v for k, v in prompt.items() if k != "images"}, "text": text, "ids": ids, "positions_kept": len(ids)}
    if args.decode:
        entry["decode"] = min(args.decode, len(ids) - 1)
    if shown:
        entry |= {"images": named, "image_rows": image_rows(ids)}
    if taps.parts and len(taps.parts) == len(ids):
        entry["position_parts"] = taps.parts
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
