// Dumps what llama.cpp computes, for karat lab diagnose, compare and import.
//
//     ./dump MODEL.gguf PROMPTS.txt OUT.safetensors [--kv f16] [--threads N]
//
// PROMPTS.txt has a prompt in each line: text, or "ids:" and token ids. \n in a text is a line break, and names
// of special tokens are those tokens. Compile it against a built llama.cpp:
//
//     L=$PWD/llama.cpp; g++ -std=c++17 -O2 -I$L/include -I$L/ggml/include dump.cpp -o dump -L$L/build/bin -Wl,-rpath,$L/build/bin -lllama -lggml -lggml-base
//
// OUT.safetensors holds, for prompt i: {i}.ids; {i}.logits [positions, vocabulary]; and {i}.tap.NAME#K.OP, the
// float32 value of every named node of the compute graph, row-major, K counting the uses of the name. OUT.json says
// of which prompts. Attention is computed without the fused kernel, so that its parts can be seen, keys and
// values are kept in float32 unless --kv says otherwise, and all layers run on the CPU.

#include "ggml-backend.h"
#include "ggml.h"
#include "llama.h"

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

// What the callback knows.
struct Tap {
    Writer * out = nullptr; // nothing is tapped without one
    int prompt = 0;
    std::map<std::string, int> uses;
};

// The scheduler asks for each node, and calls again with its value. Buffers are used anew, so it is copied.
static bool on_node(ggml_tensor * t, bool ask, void * data) {
    Tap & tap = *static_cast<Tap *>(data);
    const char * name = t->name;
    const bool named = name[0] && !strchr(name, '(') && strncmp(name, "node_", 5) && strncmp(name, "leaf_", 5) && strncmp(name, "cache", 5);
    const bool wanted = tap.out && named && t->type == GGML_TYPE_F32;
    if (ask || !wanted) return wanted;

    std::vector<uint8_t> raw(ggml_nbytes(t));
    ggml_backend_tensor_get(t, raw.data(), 0, raw.size());
    std::vector<float> rows(ggml_nelements(t));
    float * to = rows.data();
    for (int64_t l = 0; l < t->ne[3]; l++)
        for (int64_t k = 0; k < t->ne[2]; k++)
            for (int64_t j = 0; j < t->ne[1]; j++)
                for (int64_t i = 0; i < t->ne[0]; i++)
                    memcpy(to++, raw.data() + i * t->nb[0] + j * t->nb[1] + k * t->nb[2] + l * t->nb[3], sizeof(float));

    std::vector<int64_t> shape;
    for (int d = GGML_MAX_DIMS - 1; d >= 0; d--)
        if (t->ne[d] != 1 || !shape.empty() || d == 0) shape.push_back(t->ne[d]);
    const std::string key = std::to_string(tap.prompt) + ".tap." + name + "#" + std::to_string(tap.uses[name]++) + "." + ggml_op_name(t->op);
    tap.out->add(key, "F32", shape, rows.data(), rows.size() * sizeof(float));
    return true;
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
};

// The logits of all positions, computed in one batch.
static std::vector<float> decode(llama_model * model, const std::vector<llama_token> & ids, const Options & o, Tap & tap) {
    llama_context_params p = llama_context_default_params();
    p.n_ctx = p.n_batch = p.n_ubatch = ids.size();
    p.n_threads = p.n_threads_batch = o.threads;
    p.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    p.type_k = p.type_v = o.kv;
    p.swa_full = true;
    p.cb_eval = on_node;
    p.cb_eval_user_data = &tap;
    llama_context * c = llama_init_from_model(model, p);
    if (!c) fail("no context");
    llama_batch batch = llama_batch_init(ids.size(), 0, 1);
    batch.n_tokens = ids.size();
    for (size_t i = 0; i < ids.size(); i++) {
        batch.token[i] = ids[i];
        batch.pos[i] = i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = true; // else the last layer computes only some rows
    }
    if (llama_decode(c, batch)) fail("llama_decode failed");
    const int vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    std::vector<float> logits;
    for (size_t i = 0; i < ids.size(); i++) {
        const float * row = llama_get_logits_ith(c, i);
        logits.insert(logits.end(), row, row + vocab);
    }
    llama_batch_free(batch);
    llama_free(c);
    return logits;
}

static void only_errors(ggml_log_level level, const char * text, void *) {
    if (level >= GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

int main(int argc, char ** argv) {
    if (argc < 4) fail("usage: dump MODEL.gguf PROMPTS.txt OUT.safetensors [--kv f16] [--threads N]");
    Options o;
    const char * kv = "f32";
    for (int i = 4; i < argc; i++) {
        const std::string flag = argv[i];
        if (i + 1 == argc) fail(flag + " needs a value");
        const std::string value = argv[++i];
        if (flag == "--kv" && value == "f16") {
            o.kv = GGML_TYPE_F16, kv = "f16";
        } else if (flag == "--threads" && atoi(value.c_str()) > 0) {
            o.threads = atoi(value.c_str());
        } else if (flag != "--kv" || value != "f32") {
            fail(flag + " " + value + ": want --kv f32, --kv f16 and --threads N");
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
    Tap tap, none;
    std::string json, line;
    bool neutral = true;
    for (int index = 0; std::getline(prompts, line); index++) {
        std::vector<llama_token> ids;
        std::string entry = "{\"index\":" + std::to_string(index);
        if (line.rfind("ids:", 0) == 0) {
            std::istringstream numbers(line.substr(4));
            for (llama_token id; numbers >> id;) {
                if (id < 0 || id >= llama_vocab_n_tokens(vocab)) fail("no token " + std::to_string(id));
                ids.push_back(id);
            }
        } else {
            for (size_t at; (at = line.find("\\n")) != std::string::npos;) line.replace(at, 2, "\n");
            ids = tokenize(vocab, line);
            entry += ",\"text\":" + Writer::quote(line) + ",\"prompt\":{\"text\":" + Writer::quote(line) + "}";
        }
        if (ids.empty()) fail("prompt " + std::to_string(index) + " has no tokens");
        tap.out = &out, tap.prompt = index, tap.uses.clear();
        const std::vector<float> logits = decode(model, ids, o, tap);
        neutral = neutral && logits == decode(model, ids, o, none);

        const int64_t n = ids.size();
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
