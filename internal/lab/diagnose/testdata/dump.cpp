// dump MMPROJ WIDTH HEIGHT RGB OUT writes a picture as llama.cpp's preprocessing for Qwen-VL and Gemma 4 gives it:
// width, height, and float32 numbers [row, column, channel]. For TestPeer. In tools/mtmd of a built llama.cpp:
// g++ -std=c++17 -I. -I../../ggml/include -I../../include dump.cpp clip.cpp mtmd-image.cpp models/*.cpp
//     -o dump -L../../build/bin -lggml -lggml-base -lggml-cpu
#include "clip.h"
#include "clip-impl.h"
#include "clip-model.h"
#include "mtmd-image.h"
#include <cstdio>
#include <cstring>
int main(int c, char ** v) {
    clip_context_params p; memset((void*)&p, 0, sizeof p);
    p.use_gpu = false; p.flash_attn_type = CLIP_FLASH_ATTN_TYPE_DISABLED; p.image_min_tokens = -1; p.image_max_tokens = -1; p.warmup = false;
    auto r = clip_init(v[1], p);
    if (!r.ctx_v) { fprintf(stderr, "no ctx\n"); return 1; }
    int w = atoi(v[2]), h = atoi(v[3]);
    std::vector<uint8_t> rgb((size_t)w*h*3);
    FILE * f = fopen(v[4], "rb"); if (fread(rgb.data(), 1, rgb.size(), f) != rgb.size()) return 2; fclose(f);
    clip_image_u8 img; img.set_size({w, h}, false); img.cpy_buf(rgb);
    mtmd_image_preprocessor_dyn_size pre(r.ctx_v);
    auto out = pre.preprocess(img);
    auto & e = out.entries[0];
    fprintf(stderr, "%d entries, %d x %d\n", (int)out.entries.size(), e.nx(), e.ny());
    f = fopen(v[5], "wb");
    int hd[2] = {e.nx(), e.ny()}; fwrite(hd, 4, 2, f);
    auto & buf = e.get_ro_buf(); fwrite(buf.data(), 4, buf.size(), f);
    fclose(f);
}
