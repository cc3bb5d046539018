package lint

import (
	"path"
	"strings"
	"testing"
)

// below says what a package may import, and with it everything below that. An
// entry ending in /* stands for every folder there that has no entry of its own.
var below = map[string]string{
	"jsonerr": "", "spelling": "", "patherr": "", "atomicfile": "filelock", "tensor": "", "float16": "", "mmap": "patherr", "rope": "", "sample": "simd", "draft": "", "chat": "jinja", "tokenizer": "jsonerr", "npy": "", "kv": "", "kvfile": "", "receipt": "jsonerr", "sysinfo": "", "jinja": "", "jsasync": "", "embed": "rope", "filelock": "", "image": "image/jpeg", "image/jpeg": "", "image/processor": "image",

	"hub/local":   "",
	"hub":         "hub/local atomicfile filelock patherr sysinfo",
	"simd":        "float16",
	"dev/simdgen": "",
	"quant":       "tensor float16 simd",
	"gguf":        "atomicfile tensor mmap",
	"quantmix":    "gguf registry",
	"safetensors": "atomicfile tensor mmap float16",
	"checkpoint":  "checkpoint/gguf checkpoint/hf checkpoint/packing safetensors quant embed image/processor",
	"panel":       "quant simd tensor",
	"graph":       "tensor",
	"bind":        "graph tensor",
	"round":       "float16 tensor",
	"logprob":     "mmap",
	"grammar":     "sample syntax",

	"checkpoint/settings": "family jsonerr rope",
	"checkpoint/gguf":     "checkpoint/settings gguf registry tokenizer",
	"checkpoint/hf":       "checkpoint/settings mmap registry tokenizer",
	"checkpoint/packing":  "tensor float16 jsonerr quant simd",

	"family":   "graph rope",
	"arch/*":   "graph rope family",
	"registry": "arch/*",
	"arch":     "bind checkpoint",

	"backend":            "graph kv rope",
	"backend/reference":  "backend float16 sysinfo mmap quant rope round simd",
	"backend/cpu":        "backend float16 sysinfo mmap quant rope simd panel",
	"backend/numerics":   "backend/cpu backend/reference",
	"backend/webgpu":     "backend mmap quant rope backend/webgpu/gpu",
	"backend/webgpu/gpu": "jsasync",
	"dev/backendtest":    "backend/reference",

	"engine":          "arch backend draft engine/schedule kv kvfile sample sysinfo tokenizer",
	"engine/schedule": "graph kv",
	"imatrix":         "graph gguf",
	"adapter":         "backend checkpoint quant",
	"vision":          "arch backend image/processor",
	"model":           "arch backend/numerics engine gguf sysinfo adapter hub/local",
	"dev/adaptertest": "model safetensors",
	"lab":             "model vision npy spelling quant float16 atomicfile logprob backend/reference",
	"eval":            "lab",
	"autoquant":       "eval imatrix quantmix quant",
	"lab/matrix":      "",
	"lab/mistake":     "lab lab/matrix backend/reference rope",
	"lab/diagnose":    "lab lab/mistake lab/matrix chat tokenizer",
	"dev/parity":      "lab/diagnose",
	"lab/report":      "lab/diagnose",

	"convert":   "arch quant atomicfile quantmix imatrix sysinfo",
	"dev/synth": "convert float16 tokenizer",
	"check":     "arch chat quant",
	"bench":     "model",

	"dev/task":     "dev/parity dev/synth dev/golden",
	"dev/golden":   "",
	"dev/trim":     "dev/golden",
	"dev/simulate": "",
	"dev/fleet":    "",
	"dev/parrot":   "gguf",
	"dev/talker":   ". dev/parrot",
	"dev/packed":   "safetensors quant",
	"dev/serving":  ". server atomicfile",

	"dev/oracle": "", // a module of its own, which the tokenizer's tests run

	"mcp":             ". jsonerr",
	"x/internal/turn": ". syntax",
	"x/*":             "x/internal/turn",
	"server/otlp":     ". server",
	"server/kvevents": ".",

	".":            "model vision hub/local chat convert check grammar kvfile receipt syntax",
	"experiment":   ". lab npy safetensors",
	"webgpu":       "backend/numerics backend/webgpu",
	"syntax":       "",
	"pull":         "hub hub/local",
	"server":       ". hub hub/local syntax filelock",
	"js":           "",
	"web":          "atomicfile backend/webgpu/gpu lab/report js",
	"dev/webbuild": "",
	"dev/webgen":   "atomicfile dev/webbuild",
	"web/probe":    ". experiment",
	"web/wasm":     ". webgpu lab jsasync syntax web/probe",
	"cmd/*":        ". mcp webgpu server server/otlp server/kvevents hub hub/local web experiment kvfile eval imatrix autoquant lab lab/* convert bench simd",
}

// never are the imports that must stay impossible however below grows.
var never = []struct{ from, to string }{
	{"arch/*", "backend"}, {"arch/*", "backend/*"}, {"backend/*", "arch"}, {"backend/*", "arch/*"},
	{"backend", "arch"}, {"simd", "graph"}, {"engine", "server"}, {"chat", "checkpoint"},
	{".", "backend/webgpu"}, {".", "backend/webgpu/*"}, // a program that does not ask for GPUs links none
}

// libraries are the modules that one package alone may import, by their prefix.
var libraries = map[string]string{
	"github.com/gogpu/":           "internal/backend/webgpu/gpu",
	"github.com/go-webgpu":        "internal/backend/webgpu/gpu",
	"github.com/VictoriaMetrics/": "server",
}

// entry returns the name in below of a package, given its folder from the root.
func entry(dir string) (name string, ok bool) {
	name = strings.TrimPrefix(dir, "internal/")
	if _, ok = below[name]; !ok {
		name = path.Dir(name) + "/*"
		_, ok = below[name]
	}
	return name, ok
}

// reachable returns all that a package may import, by its name in below.
func reachable(name string) map[string]bool {
	seen := map[string]bool{}
	var visit func(string)
	visit = func(name string) {
		for _, next := range strings.Fields(below[name]) {
			if seen[next] {
				continue
			}
			seen[next] = true
			visit(next)
			if family, ok := strings.CutSuffix(next, "*"); ok {
				for other := range below {
					if strings.HasPrefix(other, family) && !seen[other] {
						seen[other] = true
						visit(other)
					}
				}
			}
		}
	}
	visit(name)
	return seen
}

// disorder finds the imports that below does not allow. Outside internal/dev, only tests may import an instrument of
// developers. Tests are free otherwise.
func disorder(all []*source) (findings []string) {
	for _, s := range all {
		if s.test() || s.dir() == "internal/dev/golden" {
			continue
		}
		from, ok := entry(s.dir())
		if !ok {
			findings = append(findings, s.name+": the order of packages (internal/dev/lint) has no place for "+s.dir())
			continue
		}
		allowed := reachable(from)
		for _, p := range s.imports() {
			for library, dir := range libraries {
				if strings.HasPrefix(p, library) && s.dir() != dir {
					findings = append(findings, s.name+": only "+dir+" imports "+library)
				}
			}
			dir, ok := strings.CutPrefix(p, modulePath)
			if !ok {
				continue
			}
			if dir = strings.TrimPrefix(dir, "/"); dir == "" {
				dir = "."
			}
			to, _ := entry(dir)
			if !allowed[to] || strings.HasPrefix(to, "dev/") && !strings.HasPrefix(from, "dev/") {
				findings = append(findings, s.name+": "+s.dir()+" must not import "+dir)
			}
		}
	}
	return findings
}

func TestOrder(t *testing.T) {
	report(t, disorder(sources(t)))

	reject(t, disorder, "internal/arch/llama/llama.go", `package llama; import _ "github.com/karat-run/karat/internal/backend"`)
	reject(t, disorder, "internal/backend/cpu/cpu.go", `package cpu; import _ "github.com/karat-run/karat/internal/arch/llama"`)
	reject(t, disorder, "internal/engine/engine.go", `package engine; import _ "github.com/karat-run/karat"`)
	reject(t, disorder, "internal/quant/quant.go", `package quant; import _ "github.com/karat-run/karat/internal/dev/golden"`)
	reject(t, disorder, "cmd/karat/lab.go", `package main; import _ "github.com/karat-run/karat/internal/dev/parity"`)
	reject(t, disorder, "internal/utils/utils.go", `package utils`)
	reject(t, disorder, "internal/backend/webgpu/run.go", `package webgpu; import _ "github.com/gogpu/wgpu"`)
}

func TestOrderTable(t *testing.T) {
	for name, list := range below {
		for _, next := range strings.Fields(list) {
			if _, ok := below[next]; !ok && !strings.HasSuffix(next, "/*") {
				t.Errorf("%s: unknown package %s", name, next)
			}
		}
		if reachable(name)[name] {
			t.Errorf("%s may import itself", name)
		}
		for _, n := range never {
			for to := range reachable(name) {
				if matches(n.from, name) && matches(n.to, to) {
					t.Errorf("%s may import %s", name, to)
				}
			}
		}
	}
}

// matches reports whether a name is one that a pattern of never stands for.
func matches(pattern, name string) bool {
	ok, _ := path.Match(pattern, name) // the patterns are well formed
	return ok
}
