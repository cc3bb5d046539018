#!/usr/bin/env python3
"""Writes small pictures in all forms that Pillow writes, and records.json: the SHA-256 of the RGB bytes that Pillow
reads in each, after ImageOps.exif_transpose and convert("RGB"), and of pictures resized.

    make.py OUT

Pictures are made by integer formulas, so that resizing needs no files.
"""
import hashlib, io, json, os, struct, sys, zlib

import numpy as np
import PIL
from PIL import Image, ImageOps, features

out = sys.argv[1]
os.makedirs(out, exist_ok=True)


def picture(name, w, h):
    x, y = np.meshgrid(np.arange(w, dtype=np.int64), np.arange(h, dtype=np.int64))
    if name == "waves":  # smooth, with a sharp edge
        p = np.stack([255 * x // max(w - 1, 1), (x * x + 3 * y * y) // 16 % 256, 255 * (x + y) // max(w + h - 2, 1)], -1)
        p[(2 * x - w) ** 2 + (2 * y - h) ** 2 < min(w, h) ** 2 // 4] = (255, 220, 0)
    else:  # noise
        v = (y * w + x).astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        v = (v ^ v >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        v = (v ^ v >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        v = v ^ v >> np.uint64(31)
        p = np.stack([v & np.uint64(255), v >> np.uint64(8) & np.uint64(255), v >> np.uint64(16) & np.uint64(255)], -1)
    return Image.fromarray(p.astype(np.uint8), "RGB")


records = {"pillow": PIL.__version__, "jpeg": features.version("jpg"), "turbo": features.version("libjpeg_turbo"),
           "webp": features.version("webp"), "files": {}, "resized": []}


def digest(im):
    im = im.convert("RGB")
    return {"size": list(im.size), "sha256": hashlib.sha256(im.tobytes()).hexdigest()}


def keep(name, data):
    try:
        im = Image.open(io.BytesIO(data))
        mode = im.mode
        r = digest(ImageOps.exif_transpose(im))
        r["mode"] = mode
    except Exception as e:
        r = {"error": repr(e)}
    records["files"][name] = r
    with open(os.path.join(out, name), "wb") as f:
        f.write(data)


def save(name, im, **how):
    b = io.BytesIO()
    try:
        im.save(b, **how)
    except Exception as e:
        print("not made:", name, repr(e))
        return b""
    keep(name, b.getvalue())
    return b.getvalue()


sizes = [(61, 47), (16, 16), (1, 1), (1, 40), (40, 1), (2, 2), (3, 5), (5, 3), (33, 17), (8, 9)]
for sub in (0, 1, 2, "4:1:1"):
    for q in (25, 92):
        for prog in (False, True):
            for i, (w, h) in enumerate(sizes):
                if i > 1 and q == 25:
                    continue
                how = dict(subsampling=sub)
                kind = "noise" if i % 3 == 1 else "waves"
                save(f"{kind}-{w}x{h}-{str(sub).replace(':', '')}-{q}{'-progressive' if prog else ''}.jpg", picture(kind, w, h), format="JPEG", quality=q, progressive=prog, **how)


def upright(name, data):
    """Keeps 4:2:2's blocks as 4:4:0, which Pillow does not write, with the sides exchanged. (The records are of
    Pillow 9.4 with libjpeg-turbo 2.1.5.)"""
    b, i = bytearray(data), 2
    while b[i + 1] not in (0xC0, 0xC2):
        i += 2 + b[i + 2] * 256 + b[i + 3]
    b[i + 5 : i + 7], b[i + 7 : i + 9], b[i + 11] = b[i + 7 : i + 9], b[i + 5 : i + 7], 0x12
    keep(name, bytes(b))


for name in [n for n in records["files"] if "-1-92" in n and any(s in n for s in ("61x47", "33x17", "8x9", "3x5", "16x16", "40x1-"))]:
    with open(os.path.join(out, name), "rb") as f:
        upright(name.replace("-1-92", "-440-92"), f.read())
w = picture("waves", 61, 47)
save("optimized.jpg", w, format="JPEG", optimize=True)
save("restart.jpg", w, format="JPEG", restart_marker_blocks=3)
save("restart-progressive.jpg", w, format="JPEG", restart_marker_rows=1, progressive=True)
save("grey.jpg", w.convert("L"), format="JPEG")
save("grey-progressive.jpg", w.convert("L"), format="JPEG", progressive=True)
save("cmyk.jpg", w.convert("CMYK"), format="JPEG")
save("cmyk-noise.jpg", picture("noise", 19, 23).convert("CMYK"), format="JPEG", progressive=True)
save("rgb.jpg", w, format="JPEG", keep_rgb=True)
save("q1.jpg", w, format="JPEG", quality=1)
save("q100.jpg", w, format="JPEG", quality=100, subsampling=0)
big = save("big.jpg", picture("waves", 301, 203), format="JPEG", quality=60)
tables = save("plain.jpg", w, format="JPEG", quality=80)
for o in range(1, 9):
    e = Image.Exif()
    e[0x0112] = o
    save(f"orientation-{o}.jpg", picture("waves", 21, 13), format="JPEG", exif=e)
save("orientation-6.png", picture("waves", 21, 13), format="PNG", exif=e)
save("orientation-8.webp", picture("waves", 21, 13), format="WEBP", exif=e, lossless=True)

rgba = picture("waves", 31, 22).copy()
rgba.putalpha(picture("noise", 31, 22).convert("L"))
save("rgb.png", w, format="PNG")
save("rgba.png", rgba, format="PNG")
save("grey.png", w.convert("L"), format="PNG")
save("grey-alpha.png", rgba.convert("LA"), format="PNG")
save("bits.png", w.convert("1"), format="PNG")
for bits in (1, 2, 4, 8):
    save(f"palette-{bits}.png", w.quantize(2 ** bits), format="PNG", bits=bits)
save("palette-transparent.png", w.quantize(16), format="PNG", transparency=3)
save("rgb-transparent.png", w, format="PNG", transparency=(255, 220, 0))
save("grey-transparent.png", w.convert("L"), format="PNG", transparency=100)
save("grey16.png", Image.fromarray((np.arange(31 * 22, dtype=np.uint32).reshape(22, 31) * 97 % 65536).astype(np.uint16)), format="PNG")
save("grey16-dark.png", Image.fromarray((np.arange(31 * 22, dtype=np.uint32).reshape(22, 31) % 600).astype(np.uint16)), format="PNG")


def png(kind, bits, w, h, rows, extra=b""):
    def chunk(t, d):
        return struct.pack(">I", len(d)) + t + d + struct.pack(">I", zlib.crc32(t + d))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, bits, kind, 0, 0, 0)) + extra +
            chunk(b"IDAT", zlib.compress(b"".join(b"\0" + r for r in rows))) + chunk(b"IEND", b""))


r16 = np.random.RandomState(3).randint(0, 65536, (9, 13, 4)).astype(">u2")
keep("rgb16.png", png(2, 16, 13, 9, [r[:, :3].tobytes() for r in r16]))
keep("rgba16.png", png(6, 16, 13, 9, [r.tobytes() for r in r16]))
keep("grey-alpha16.png", png(4, 16, 13, 9, [r[:, :2].tobytes() for r in r16]))
keep("grey2.png", png(0, 2, 16, 4, [bytes([27, 228, 1 << i, 85]) for i in range(4)]))
keep("grey4.png", png(0, 4, 16, 4, [bytes(range(i, i + 8)) for i in range(4)]))

save("palette.gif", w.quantize(64), format="GIF")
save("grey.gif", w.convert("L"), format="GIF")
save("transparent.gif", w.quantize(16), format="GIF", transparency=2)
save("frames.gif", w.quantize(32), format="GIF", save_all=True, append_images=[picture("noise", 61, 47).quantize(32)])
save("interlaced.gif", w.quantize(64), format="GIF", interlace=1)
save("rgb.bmp", w, format="BMP")
save("rgba.bmp", rgba, format="BMP")
save("grey.bmp", w.convert("L"), format="BMP")
save("bits.bmp", w.convert("1"), format="BMP")
save("palette.bmp", w.quantize(200), format="BMP")
for q in (10, 80, 100):
    for i, (a, b) in enumerate(sizes):
        if i == 0 or q == 80:
            save(f"lossy-{a}x{b}-{q}.webp", picture("waves", a, b), format="WEBP", quality=q)
save("noise.webp", picture("noise", 35, 27), format="WEBP", quality=70)
save("lossless.webp", w, format="WEBP", lossless=True)
save("lossless-noise.webp", picture("noise", 16, 11), format="WEBP", lossless=True)
save("alpha.webp", rgba, format="WEBP", quality=75)
save("alpha-lossless.webp", rgba, format="WEBP", lossless=True, exact=True)
save("frames.webp", w, format="WEBP", save_all=True, append_images=[picture("noise", 61, 47)])

pairs = [((61, 47), (32, 32)), ((61, 47), (100, 80)), ((301, 203), (56, 28)), ((64, 64), (64, 31)), ((64, 64), (31, 64)), ((1, 1), (16, 16)),
         ((1, 50), (28, 28)), ((50, 1), (3, 3)), ((7, 9), (7, 9)), ((640, 480), (224, 168)), ((16, 16), (17, 15)), ((900, 11), (33, 448)), ((13, 700), (384, 5))]
for kind in ("waves", "noise"):
    for (a, b), (c, d) in pairs:
        for name, f in (("bilinear", Image.BILINEAR), ("bicubic", Image.BICUBIC), ("lanczos", Image.LANCZOS)):
            records["resized"].append({"picture": kind, "from": [a, b], "to": [c, d], "filter": name,
                                       "sha256": digest(picture(kind, a, b).resize((c, d), f))["sha256"]})
try:
    import torch, torchvision
    from torchvision.transforms.v2 import functional as F
    records["torchvision"] = torchvision.__version__
    records["cpu"] = torch.backends.cpu.get_cpu_capability()
    records["torch_resized"] = []
    for kind in ("waves", "noise"):
        for (a, b), (c, d) in pairs:
            t = torch.from_numpy(np.asarray(picture(kind, a, b)).copy()).permute(2, 0, 1)[None].contiguous()
            for name, f in (("bilinear", F.InterpolationMode.BILINEAR), ("bicubic", F.InterpolationMode.BICUBIC)):
                r = F.resize(t, [d, c], interpolation=f, antialias=True)
                own = np.asarray(picture(kind, a, b).resize((c, d), Image.BILINEAR if name == "bilinear" else Image.BICUBIC)).astype(int)
                got = r[0].permute(1, 2, 0).contiguous().numpy()
                records["torch_resized"].append({"picture": kind, "from": [a, b], "to": [c, d], "filter": name, "largest": int(abs(own - got.astype(int)).max()),
                                                 "sha256": hashlib.sha256(got.tobytes()).hexdigest()})
except Exception as e:
    print("torchvision:", repr(e))
with open(os.path.join(out, "records.json"), "w") as f:
    json.dump(records, f, indent=0)
print(len(records["files"]), "files,", sum(os.path.getsize(os.path.join(out, n)) for n in os.listdir(out)), "bytes;", {k: v for k, v in records.items() if isinstance(v, str)})
for n, r in records["files"].items():
    if "error" in r:
        print(n, r)
