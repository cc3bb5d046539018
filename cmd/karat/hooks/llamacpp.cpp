// Dumps what llama.cpp computes, for karat lab diagnose, compare and import.
//
//     ./dump MODEL.gguf PROMPTS.txt OUT.safetensors [--mmproj FILE] [--kv f16] [--threads N]
//
// PROMPTS.txt has a prompt in each line: text, or "ids:" and token ids. \n in a text is a line break, and names
// of special tokens are those tokens. With --mmproj <image:PATH> in a line is a picture: in a text with the tokens that
// llama.cpp puts around it, among ids its rows alone. Compile it against a built llama.cpp; for pictures add
// -I$L/tools/mtmd and -lmtmd:
//
//     L=$PWD/llama.cpp; g++ -std=c++17 -O2 -I$L/include -I$L/ggml/include dump.cpp -o dump -L$L/build/bin -Wl,-rpath,$L/build/bin -lllama -lggml -lggml-base
//
// OUT.safetensors holds, for prompt i: {i}.ids; {i}.logits [positions, vocabulary]; and {i}.tap.NAME#K.OP, the
// float32 value of every named node of the compute graph, row-major, K counting the uses of the name. OUT.json says
// of which prompts. Of pictures there are, besides, the numbers in patches (image.pixels), the rows that the projector
// gives (image.rows), the values of named nodes before the text, and the positions. Attention is computed without the fused kernel, so that its parts can be seen, keys and
// values are kept in float32 unless --kv says otherwise, and all layers run on the CPU.

#include "ggml-backend.h"
#include "ggml.h"
#include "llama.h"
#if __has_include("mtmd.h")
#include "gguf.h"
#include "mtmd-helper.h"
#include "mtmd.h"
#else
struct mtmd_context;
struct mtmd_decoder_pos {
    uint32_t t, x, y, z;
};
#endif

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

[[noreturn]] static void fail(const std::string & why) {
    fprintf(stderr, "dump: %s\n", why.c_str());
    exit(1);
}

// A safetensors file in the making: the data waits in a file of its own until the header is known.
class Writer {
  public:
    explicit Writer(const std::string & path) : path(path), waiting(path + ".part", std::ios::binary) {
        if (!waiting) fail("cannot write " + path + ".part");
    }

    void add(const std::string & name, const char * dtype, const std::vector<int64_t> & shape, const void * data, size_t size) {
        if (!header.empty()) header += ",";
        header += quote(name) + ":{\"dtype\":\"" + dtype + "\",\"shape\":[";
        for (size_t i = 0; i < shape.size(); i++) header += (i ? "," : "") + std::to_string(shape[i]);
        header += "],\"data_offsets\":[" + std::to_string(bytes) + "," + std::to_string(bytes + size) + "]}";
        waiting.write(static_cast<const char *>(data), size);
        bytes += size;
    }

    void finish() {
        waiting.close();
        std::string text = "{" + header + "}";
        text.append((8 - text.size() % 8) % 8, ' ');
        std::ifstream in(path + ".part", std::ios::binary);
        std::ofstream out(path, std::ios::binary);
        for (int i = 0; i < 8; i++) out.put(static_cast<char>(uint64_t(text.size()) >> (8 * i)));
        out << text;
        if (bytes > 0) out << in.rdbuf();
        out.close();
        if (!waiting || !out) fail("cannot write " + path);
        remove((path + ".part").c_str());
    }

    static std::string quote(const std::string & s) {
        std::string q = "\"";
        char code[8];
        for (unsigned char c : s) {
            if (c == '"' || c == '\\') {
                q += '\\', q += c;
            } else if (c < 0x20) {
                snprintf(code, sizeof code, "\\u%04x", c), q += code;
            } else {
                q += c;
            }
        }
        return q + "\"";
    }

  private:
    std::string path, header;
    std::ofstream waiting;
    size_t bytes = 0;
};

// A value of a step, of four dimensions.
struct Value {
    std::vector<int64_t> shape;
    std::vector<float> data;
};

// What the callback knows.
struct Tap {
    bool on = false;
    std::map<std::string, int> uses;
    std::vector<std::map<std::string, Value>> steps;
};

// The numbers of a tensor, row-major.
static Value value_of(const ggml_tensor * t) {
    std::vector<uint8_t> raw(ggml_nbytes(t));
    ggml_backend_tensor_get(t, raw.data(), 0, raw.size());
    Value v;
    v.data.resize(ggml_nelements(t));
    float * to = v.data.data();
    for (int64_t l = 0; l < t->ne[3]; l++)
        for (int64_t k = 0; k < t->ne[2]; k++)
            for (int64_t j = 0; j < t->ne[1]; j++)
                for (int64_t i = 0; i < t->ne[0]; i++)
                    memcpy(to++, raw.data() + i * t->nb[0] + j * t->nb[1] + k * t->nb[2] + l * t->nb[3], sizeof(float));
    for (int d = GGML_MAX_DIMS - 1; d >= 0; d--) v.shape.push_back(t->ne[d]);
    return v;
}

// The scheduler asks for each node, and calls again with its value. Buffers are used anew, so it is copied. The numbers
// of a picture are what the first node reads.
static bool on_node(ggml_tensor * t, bool ask, void * data) {
    Tap & tap = *static_cast<Tap *>(data);
    const char * name = t->name;
    bool reads = false;
    for (int i = 0; i < GGML_MAX_SRC && t->src[i]; i++) reads = reads || !strcmp(t->src[i]->name, "inp_raw");
    const bool named = name[0] && !strchr(name, '(') && strncmp(name, "node_", 5) && strncmp(name, "leaf_", 5) && strncmp(name, "cache", 5);
    const bool wanted = tap.on && (named || reads) && t->type == GGML_TYPE_F32;
    for (int i = 0; i < GGML_MAX_SRC && t->src[i] && ask && tap.on; i++) // before the node, which may reuse the memory
        if (!strcmp(t->src[i]->name, "inp_raw")) tap.steps.back().emplace("inp_raw", value_of(t->src[i]));
    if (ask) return wanted;
    if (wanted && named) tap.steps.back()[std::string(name) + "#" + std::to_string(tap.uses[name]++) + "." + ggml_op_name(t->op)] = value_of(t);
    return true;
}

static void only_errors(ggml_log_level level, const char * text, void *) {
    if (level >= GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

static std::vector<llama_token> tokenize(const llama_vocab * vocab, const std::string & text) {
    std::vector<llama_token> ids(text.size() + 16);
    int n = llama_tokenize(vocab, text.data(), text.size(), ids.data(), ids.size(), true, true);
    if (n < 0) fail("a text has more tokens than bytes");
    ids.resize(n);
    return ids;
}

struct Options {
    ggml_type kv = GGML_TYPE_F32;
    int threads = 1;
    const char * mmproj = nullptr;
};

// A part of a prompt: tokens, or the rows of a picture.
struct Part {
    std::vector<llama_token> ids; // of a picture 0
    std::vector<float> rows;
    std::vector<mtmd_decoder_pos> at; // of rows where positions have three parts
    bool both = false;                // rows see later ones
    llama_pos advance = 0;
};

// The logits of all positions, each part computed in one batch.
static std::vector<float> decode(llama_model * model, const std::vector<Part> & parts, bool turns, const Options & o, Tap & tap) {
    size_t n = 0;
    for (const Part & part : parts) n += part.ids.size();
    llama_context_params p = llama_context_default_params();
    p.n_ctx = p.n_batch = p.n_ubatch = n;
    p.n_threads = p.n_threads_batch = o.threads;
    p.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    p.type_k = p.type_v = o.kv;
    p.swa_full = true;
    p.cb_eval = on_node;
    p.cb_eval_user_data = &tap;
    llama_context * c = llama_init_from_model(model, p);
    if (!c) fail("no context");
    const int vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    std::vector<float> logits;
    llama_pos past = 0;
    for (const Part & part : parts) {
        const size_t count = part.ids.size(), each = turns && !part.rows.empty() ? 4 : 1;
        std::vector<llama_pos> pos(count * each, 0);
        std::vector<int32_t> seqs(count, 1);
        std::vector<int8_t> wanted(count, 1); // else the last layer computes only some rows
        llama_seq_id zero = 0;
        std::vector<llama_seq_id *> seq(count, &zero);
        for (size_t i = 0; i < count; i++) {
            pos[i] = past + llama_pos(i);
            if (each == 4) pos[i] = part.at[i].t, pos[i + count] = part.at[i].y, pos[i + 2 * count] = part.at[i].x, pos[i + 3 * count] = part.at[i].z;
        }
        llama_batch batch = {};
        batch.n_tokens = count;
        if (part.rows.empty()) batch.token = const_cast<llama_token *>(part.ids.data());
        else batch.embd = const_cast<float *>(part.rows.data());
        batch.pos = pos.data(), batch.n_seq_id = seqs.data(), batch.seq_id = seq.data(), batch.logits = wanted.data();
        tap.uses.clear(), tap.steps.emplace_back();
        llama_set_causal_attn(c, !part.both);
        if (llama_decode(c, batch)) fail("llama_decode failed");
        for (size_t i = 0; i < count; i++) {
            const float * row = llama_get_logits_ith(c, i);
            logits.insert(logits.end(), row, row + vocab);
        }
        past += part.advance;
    }
    llama_free(c);
    return logits;
}

// Joins the values of two steps along the dimension of rows; false where there is none.
static bool join(Value & all, int64_t before, const Value & next, int64_t rows) {
    for (size_t axis = 0; axis < all.shape.size(); axis++) {
        std::vector<int64_t> shape = all.shape;
        shape[axis] = rows;
        if (all.shape[axis] != before || shape != next.shape) continue;
        size_t outer = 1, inner = 1;
        for (size_t d = 0; d < axis; d++) outer *= shape[d];
        for (size_t d = axis + 1; d < shape.size(); d++) inner *= shape[d];
        std::vector<float> joined;
        for (size_t k = 0; k < outer; k++) {
            joined.insert(joined.end(), all.data.begin() + k * before * inner, all.data.begin() + (k + 1) * before * inner);
            joined.insert(joined.end(), next.data.begin() + k * rows * inner, next.data.begin() + (k + 1) * rows * inner);
        }
        all.data = joined, all.shape[axis] = before + rows;
        return true;
    }
    return false;
}

static void write(Writer & out, const std::string & name, const Value & v) {
    size_t first = 0;
    while (first + 1 < v.shape.size() && v.shape[first] == 1) first++;
    out.add(name, "F32", {v.shape.begin() + first, v.shape.end()}, v.data.data(), v.data.size() * sizeof(float));
}

// Writes the values that all steps have, the rows of one step behind those of the other.
static void write_steps(Writer & out, const std::string & prefix, const std::vector<Part> & parts, const Tap & tap) {
    for (const auto & first : tap.steps[0]) {
        Value all = first.second;
        int64_t before = parts[0].ids.size();
        bool whole = true;
        for (size_t i = 1; i < parts.size() && whole; before += parts[i++].ids.size()) {
            const auto next = tap.steps[i].find(first.first);
            whole = next != tap.steps[i].end() && join(all, before, next->second, parts[i].ids.size());
        }
        if (whole) write(out, prefix + first.first, all);
    }
}

#if __has_include("mtmd.h")
// The part of llama.cpp before the text.
struct Eye {
    mtmd_context * ctx = nullptr;
    Tap tap;
    std::string kind;
    int side = 0, width = 0;

    Eye(const Options & o, const llama_model * model) : width(llama_model_n_embd_inp(model)) {
        mtmd_helper_log_set(only_errors, nullptr);
        gguf_init_params only = {true, nullptr};
        gguf_context * g = gguf_init_from_file(o.mmproj, only);
        if (!g) fail(std::string("cannot load ") + o.mmproj);
        for (const char * key : {"clip.projector_type", "clip.vision.projector_type"})
            if (gguf_find_key(g, key) >= 0) kind = gguf_get_val_str(g, gguf_find_key(g, key));
        if (gguf_find_key(g, "clip.vision.patch_size") >= 0) side = gguf_get_val_u32(g, gguf_find_key(g, "clip.vision.patch_size"));
        gguf_free(g);
        mtmd_context_params p = mtmd_context_params_default();
        p.use_gpu = false, p.print_timings = false, p.warmup = false, p.n_threads = o.threads;
        p.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
        p.cb_eval = on_node, p.cb_eval_user_data = &tap;
        ctx = mtmd_init_from_file(o.mmproj, model, p);
        if (!ctx || side < 1) fail(std::string("cannot load ") + o.mmproj);
        tap.on = true;
    }

    // The numbers in patches, in the order of the publisher's processor.
    std::vector<float> patches(const Value & v, int64_t & w, int64_t & h) const {
        const int64_t nx = v.shape[3], ny = v.shape[2], merge = 2;
        w = nx / side, h = ny / side;
        const bool blocks = kind.rfind("qwen", 0) == 0, last = kind.rfind("gemma4", 0) == 0 || kind == "lfm2";
        std::vector<float> out;
        for (int64_t i = 0; i < w * h; i++) {
            int64_t row = i / w, column = i % w;
            if (blocks) {
                const int64_t block = i / (merge * merge), in = i % (merge * merge), across = w / merge;
                row = block / across * merge + in / merge, column = block % across * merge + in % merge;
            }
            for (int64_t k = 0; k < 3 * side * side; k++) {
                const int64_t c = last ? k % 3 : k / (side * side), at = last ? k / 3 : k % (side * side);
                const float x = v.data[(c * ny + row * side + at / side) * nx + column * side + at % side];
                out.push_back(kind.rfind("gemma4", 0) == 0 ? 2 * x - 1 : x); // the tower scales
                if (blocks && at == side * side - 1) out.insert(out.end(), out.end() - side * side, out.end()); // the still twice
            }
        }
        return out;
    }

    // Adds the rows of pictures to parts, and, unless the prompt has ids, the tokens around them. json describes them.
    void look(const std::string & text, const std::vector<std::string> & paths, bool all, std::vector<Part> & parts, std::string & json) {
        std::vector<const mtmd_bitmap *> pictures;
        for (const std::string & path : paths) {
            pictures.push_back(mtmd_helper_bitmap_init_from_file(ctx, path.c_str(), false).bitmap);
            if (!pictures.back()) fail("cannot read " + path);
        }
        mtmd_input_text in = {text.c_str(), text.size(), all, true};
        mtmd_input_chunks * chunks = mtmd_input_chunks_init();
        if (mtmd_tokenize(ctx, chunks, &in, pictures.data(), pictures.size())) fail("mtmd_tokenize failed");
        std::string grids;
        for (size_t i = 0; i < mtmd_input_chunks_size(chunks); i++) {
            const mtmd_input_chunk * chunk = mtmd_input_chunks_get(chunks, i);
            Part part;
            size_t n = 0;
            if (mtmd_input_chunk_get_type(chunk) == MTMD_INPUT_CHUNK_TYPE_TEXT) {
                const llama_token * ids = mtmd_input_chunk_get_tokens_text(chunk, &n);
                if (!all || !n) continue;
                part.ids.assign(ids, ids + n);
                part.advance = n;
                parts.push_back(part);
                continue;
            }
            n = mtmd_input_chunk_get_n_tokens(chunk);
            tap.uses.clear(), tap.steps.emplace_back();
            if (mtmd_encode_chunk(ctx, chunk)) fail("mtmd_encode_chunk failed");
            const float * rows = mtmd_get_output_embd(ctx);
            part.ids.assign(n, 0);
            part.rows.assign(rows, rows + n * width);
            part.advance = mtmd_input_chunk_get_n_pos(chunk);
            part.both = mtmd_decode_use_non_causal(ctx, chunk);
            llama_pos past = 0;
            for (const Part & p : parts) past += p.advance;
            part.at.resize(n);
            mtmd_helper_image_get_decoder_pos(mtmd_input_chunk_get_tokens_image(chunk), past, part.at.data());
            parts.push_back(part);
            const Value & v = tap.steps.back()["inp_raw"];
            if (v.shape.size() == 4) grids += (grids.empty() ? "[" : ",[") + std::to_string(v.shape[2] / side) + "," + std::to_string(v.shape[3] / side) + "]";
        }
        mtmd_input_chunks_free(chunks);
        for (size_t i = 0; i < paths.size(); i++) { // the tiles of several pictures are not told apart
            json += (json.empty() ? "" : ",") + ("{\"path\":" + Writer::quote(paths[i]));
            json += (paths.size() == 1 && !grids.empty() ? ",\"grids\":[" + grids + "]}" : "}");
            mtmd_bitmap_free(const_cast<mtmd_bitmap *>(pictures[i]));
        }
    }

    // Writes what the part before the text computed: tile after tile.
    void write_values(Writer & out, const std::string & prefix, const std::vector<Part> & parts) {
        std::vector<float> pixels, rows;
        for (const Part & part : parts) rows.insert(rows.end(), part.rows.begin(), part.rows.end());
        int64_t w = 0, h = 0, count = 0, n = rows.size() / width;
        for (auto & step : tap.steps) {
            const Value & v = step["inp_raw"];
            if (v.shape.size() != 4 || v.shape[1] != 3) return;
            const std::vector<float> more = patches(v, w, h);
            pixels.insert(pixels.end(), more.begin(), more.end()), count += w * h;
        }
        if (!count) return;
        out.add(prefix + "image.pixels", "F32", {count, int64_t(pixels.size()) / count}, pixels.data(), pixels.size() * sizeof(float));
        out.add(prefix + "image.rows", "F32", {n, width}, rows.data(), rows.size() * sizeof(float));
        for (const auto & first : tap.steps[0]) {
            if (first.first == "inp_raw") continue;
            Value all = first.second;
            bool whole = true;
            for (size_t i = 1; i < tap.steps.size() && whole; i++) {
                const auto next = tap.steps[i].find(first.first);
                whole = next != tap.steps[i].end() && all.shape.back() == next->second.shape.back();
                if (whole) all.data.insert(all.data.end(), next->second.data.begin(), next->second.data.end());
            }
            const int64_t last = all.shape.back();
            if (whole) write(out, prefix + "sight." + first.first, {{int64_t(all.data.size()) / last, last}, all.data});
        }
    }
};
#else
struct Eye {
    Eye(const Options &, const llama_model *) { fail("pictures need mtmd.h and -lmtmd: compile with -I.../tools/mtmd"); }
    void look(const std::string &, const std::vector<std::string> &, bool, std::vector<Part> &, std::string &) {}
    void write_values(Writer &, const std::string &, const std::vector<Part> &) {}
    Tap tap;
    mtmd_context * ctx = nullptr;
};
static bool mtmd_decode_use_mrope(const mtmd_context *) { return false; }
static const char * mtmd_default_marker() { return ""; }
#endif

// Cuts a line at its pictures: the texts between them, and the paths.
static std::vector<std::string> cut(const std::string & line, std::vector<std::string> & paths) {
    static const std::string begin = "<image:";
    std::vector<std::string> texts;
    size_t from = 0;
    for (size_t at, end; (at = line.find(begin, from)) != std::string::npos && (end = line.find('>', at)) != std::string::npos; from = end + 1) {
        texts.push_back(line.substr(from, at - from));
        paths.push_back(line.substr(at + begin.size(), end - at - begin.size()));
    }
    texts.push_back(line.substr(from));
    return texts;
}

int main(int argc, char ** argv) {
    if (argc < 4) fail("usage: dump MODEL.gguf PROMPTS.txt OUT.safetensors [--mmproj FILE] [--kv f16] [--threads N]");
    Options o;
    const char * kv = "f32";
    for (int i = 4; i < argc; i++) {
        const std::string flag = argv[i];
        if (i + 1 == argc) fail(flag + " needs a value");
        const std::string value = argv[++i];
        if (flag == "--kv" && value == "f16") {
            o.kv = GGML_TYPE_F16, kv = "f16";
        } else if (flag == "--mmproj") {
            o.mmproj = argv[i];
        } else if (flag == "--threads" && atoi(value.c_str()) > 0) {
            o.threads = atoi(value.c_str());
        } else if (flag != "--kv" || value != "f32") {
            fail(flag + " " + value + ": want --mmproj FILE, --kv f32, --kv f16 and --threads N");
        }
    }
    const std::string path = argv[3], end = ".safetensors";
    if (path.size() < end.size() || path.substr(path.size() - end.size()) != end) fail("OUT must end in .safetensors");

    llama_log_set(only_errors, nullptr);
    llama_backend_init();
    llama_model_params mp = llama_model_default_params();
    mp.n_gpu_layers = 0;
    llama_model * model = llama_model_load_from_file(argv[1], mp);
    if (!model) fail(std::string("cannot load ") + argv[1]);
    const llama_vocab * vocab = llama_model_get_vocab(model);

    std::ifstream prompts(argv[2]);
    if (!prompts) fail(std::string("cannot read ") + argv[2]);
    Writer out(path);
    std::string json, line;
    bool neutral = true;
    Eye * eye = o.mmproj ? new Eye(o, model) : nullptr;
    const bool turns = eye && mtmd_decode_use_mrope(eye->ctx);
    for (int index = 0; std::getline(prompts, line); index++) {
        std::string entry = "{\"index\":" + std::to_string(index), images;
        const bool numbers = line.rfind("ids:", 0) == 0;
        if (!numbers)
            for (size_t at; (at = line.find("\\n")) != std::string::npos;) line.replace(at, 2, "\n");
        std::vector<std::string> paths;
        const std::vector<std::string> texts = cut(numbers ? line.substr(4) : line, paths);
        if (!paths.empty() && !eye) fail("prompt " + std::to_string(index) + " has a picture: --mmproj is needed");
        std::vector<Part> parts;
        if (eye) eye->tap.steps.clear();
        if (numbers) {
            for (size_t i = 0; i < texts.size(); i++) {
                Part part;
                std::istringstream in(texts[i]);
                for (llama_token id; in >> id;) {
                    if (id < 0 || id >= llama_vocab_n_tokens(vocab)) fail("no token " + std::to_string(id));
                    part.ids.push_back(id);
                }
                part.advance = part.ids.size();
                if (!part.ids.empty()) parts.push_back(part);
                if (i < paths.size()) eye->look(mtmd_default_marker(), {paths[i]}, false, parts, images);
            }
        } else if (!paths.empty()) {
            std::string text = texts[0];
            for (size_t i = 1; i < texts.size(); i++) text += mtmd_default_marker() + texts[i];
            eye->look(text, paths, true, parts, images);
        } else {
            Part part;
            part.ids = tokenize(vocab, line), part.advance = part.ids.size();
            if (!part.ids.empty()) parts.push_back(part);
            entry += ",\"text\":" + Writer::quote(line) + ",\"prompt\":{\"text\":" + Writer::quote(line) + "}";
        }
        std::vector<llama_token> ids;
        std::string runs, positions;
        llama_pos past = 0;
        for (const Part & part : parts) {
            const size_t first = ids.size();
            ids.insert(ids.end(), part.ids.begin(), part.ids.end());
            if (!part.rows.empty()) runs += (runs.empty() ? "[" : ",[") + std::to_string(first) + "," + std::to_string(ids.size()) + "]";
            for (size_t i = 0; i < part.ids.size(); i++) {
                const unsigned at = past + i;
                const mtmd_decoder_pos p = part.at.empty() ? mtmd_decoder_pos{at, at, at, 0} : part.at[i];
                positions += (positions.empty() ? "[" : ",[") + std::to_string(p.t) + "," + std::to_string(p.y) + "," + std::to_string(p.x) + "]";
            }
            past += part.advance;
        }
        if (ids.empty()) fail("prompt " + std::to_string(index) + " has no tokens");
        if (!images.empty()) entry += ",\"images\":[" + images + "],\"image_rows\":[" + runs + "]";
        if (turns) entry += ",\"position_parts\":[" + positions + "]";
        Tap tap, none;
        tap.on = true;
        const std::vector<float> logits = decode(model, parts, turns, o, tap);
        neutral = neutral && logits == decode(model, parts, turns, o, none);

        const int64_t n = ids.size();
        const std::string prefix = std::to_string(index) + ".tap.";
        write_steps(out, prefix, parts, tap);
        if (!images.empty()) eye->write_values(out, prefix, parts);
        out.add(std::to_string(index) + ".ids", "I32", {n}, ids.data(), ids.size() * sizeof(llama_token));
        out.add(std::to_string(index) + ".logits", "F32", {n, int64_t(logits.size()) / n}, logits.data(), logits.size() * sizeof(float));
        entry += ",\"ids\":[";
        for (size_t i = 0; i < ids.size(); i++) entry += (i ? "," : "") + std::to_string(ids[i]);
        json += (json.empty() ? "" : ",\n  ") + entry + "],\"positions_kept\":" + std::to_string(n) + "}";
        fprintf(stderr, "prompt %d: %d tokens\n", index, int(n));
    }
    if (!neutral) fprintf(stderr, "warning: the logits are not the same without the taps\n");
    out.finish();

    std::ofstream info(path.substr(0, path.size() - end.size()) + ".json");
    info << "{\n \"prompts\": [\n  " << json << "\n ],\n \"names\": \"llama.cpp\",\n \"numerics\": {\"engine\": \"llama.cpp\", \"kv\": \"" << kv
         << "\", \"gelu\": \"f16-table\", \"capture_neutral\": " << (neutral ? "true" : "false") << "}\n}\n";
    info.close();
    if (!info) fail("cannot write the JSON file");
    llama_model_free(model);
    return 0;
}
