package webgpu

import (
	"embed"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
)

//go:embed shaders/*.wgsl
var sources embed.FS

// shaders are the templates, by file.
var shaders = sync.OnceValue(func() templates {
	t, err := parseTemplates(shaderTexts())
	if err != nil {
		panic(err) // of an embedded file
	}
	return t
})

func shaderTexts() map[string]string {
	texts := map[string]string{}
	files, err := sources.ReadDir("shaders")
	for _, f := range files {
		var b []byte
		if b, err = sources.ReadFile("shaders/" + f.Name()); err != nil {
			break
		}
		texts[f.Name()] = string(b)
	}
	if err != nil {
		panic(err) // of an embedded file
	}
	return texts
}

// variantMethods are the variants' methods called by templates.
var variantMethods = map[string]func(v reflect.Value) reflect.Value{
	"Columns":   func(v reflect.Value) reflect.Value { return v.MethodByName("Columns") },
	"Halves":    func(v reflect.Value) reflect.Value { return v.MethodByName("Halves") },
	"Memory":    func(v reflect.Value) reflect.Value { return v.MethodByName("Memory") },
	"Results":   func(v reflect.Value) reflect.Value { return v.MethodByName("Results") },
	"Rows":      func(v reflect.Value) reflect.Value { return v.MethodByName("Rows") },
	"Size":      func(v reflect.Value) reflect.Value { return v.MethodByName("Size") },
	"Spots":     func(v reflect.Value) reflect.Value { return v.MethodByName("Spots") },
	"Subgroups": func(v reflect.Value) reflect.Value { return v.MethodByName("Subgroups") },
	"Threads":   func(v reflect.Value) reflect.Value { return v.MethodByName("Threads") },
	"Vectors":   func(v reflect.Value) reflect.Value { return v.MethodByName("Vectors") },
	"WM":        func(v reflect.Value) reflect.Value { return v.MethodByName("WM") },
	"Weights":   func(v reflect.Value) reflect.Value { return v.MethodByName("Weights") },
}

// places describes the places in a word of four codes of a number of bits: codes of bytes take two words, since a
// mantissa has 23 bits.
func places(bits int, what string) string {
	var list [4]string
	for i := range list {
		at := bits * i
		if bits == 8 {
			at = bits * (i % 2)
		}
		switch what {
		case "masks":
			list[i] = fmt.Sprintf("%#xu", (1<<bits-1)<<at)
		case "high1":
			list[i] = fmt.Sprintf("%#xu", 1<<(at+bits))
		case "high2":
			list[i] = fmt.Sprintf("%#xu", 3<<(at+bits))
		case "worth":
			list[i] = fmt.Sprintf("%d.0", 1<<at)
		case "inverse":
			list[i] = fmt.Sprintf("%v", 1/float64(int(1)<<at))
		}
	}
	kind := "vec4f"
	if what == "masks" || strings.HasPrefix(what, "high") {
		kind = "vec4u"
	}
	return kind + "(" + strings.Join(list[:], ", ") + ")"
}

// kernel is a shader's text and its declarations.
type kernel struct {
	name   string // map{Is:a + b Binary:true}
	wgsl   string
	access []gpu.Access
	fields []field // of its Params
}

// field is a member of a shader's Params: 4 bytes.
type field struct {
	name  string
	float bool
}

var (
	bindingLine = regexp.MustCompile(`@group\(0\) @binding\((\d+)\) var<([a-z_, ]+)> (\w+):`)
	unsetLine   = regexp.MustCompile(`(?m)^\s+var (\w+): [^=;]*;`)
	nameLine    = regexp.MustCompile(`\b(?:let|var(?:<[^>]*>)?|const|fn|struct)\s+(\w+)`)
	paramsBlock = regexp.MustCompile(`(?s)struct Params \{(.*?)\n\}`)
	paramsLine  = regexp.MustCompile(`(?m)^\s*(\w+): (u32|f32),`)
)

// reserved are words refused as names by browsers, unlike the native compiler: words reserved by the WGSL
// specification, and access modes and address spaces, which a function of the same name would hide.
var reserved = strings.Fields(`
	NULL Self abstract active alignas alignof as asm asm_fragment async attribute auto await become binding_array
	cast catch class co_await co_return co_yield coherent column_major common compile compile_fragment concept
	const_cast consteval constexpr constinit crate debugger decltype delete demote demote_to_helper do dynamic_cast
	enum explicit export extends extern external fallthrough filter final finally friend from fxgroup get goto
	groupshared highp impl implements import inline instanceof interface layout lowp macro macro_rules match mediump
	meta mod module move mut mutable namespace new nil noexcept noinline nointerpolation non_coherent noncoherent
	noperspective null nullptr of operator package packoffset partial pass patch pixelfragment precise precision
	premerge priv protected pub public readonly ref regardless register reinterpret_cast require resource restrict
	self set shared sizeof smooth snorm static static_assert static_cast std subroutine super target template this
	thread_local throw trait try type typedef typeid typename typeof union unless unorm unsafe unsized use using
	varying virtual volatile wgsl where with writeonly yield read write read_write function private workgroup
	uniform storage`)

// extensions are shaders' needs beyond the standard.
var extensions = map[string]string{"matrix": units, "flash": units}

// units lets a shader use matrix units.
const units = `enable f16;
enable subgroups;
enable chromium_experimental_subgroup_matrix;
requires buffer_view;
diagnostic(off, chromium.subgroup_matrix_uniformity);
`

// kernelName names a variant of a shader.
func kernelName(shader string, variant any) string {
	if variant == nil {
		return shader
	}
	return shader + strings.TrimPrefix(fmt.Sprintf("%+v", variant), "map")
}

// newKernel fills in a template.
func newKernel(shader string, variant any) (*kernel, error) {
	k := &kernel{name: kernelName(shader, variant)}
	var b strings.Builder
	b.WriteString(extensions[shader])
	for _, file := range []string{"prelude", shader} {
		if err := shaders().fill(&b, file+".wgsl", variant); err != nil {
			return nil, fmt.Errorf("kernel %s: %w", k.name, err)
		}
	}
	k.wgsl = b.String()
	return k, k.declarations()
}

// declarations reads the declarations in k's text. Unused bindings, which a compiler would drop, are an error, and so
// are variables without a value: in a loop the native compiler sets such variables only once.
func (k *kernel) declarations() error {
	k.access, k.fields = nil, nil
	for i, m := range bindingLine.FindAllStringSubmatch(k.wgsl, -1) {
		a, ok := map[string]gpu.Access{"uniform": gpu.Uniform, "storage, read": gpu.Read,
			"storage, read_write": gpu.ReadWrite}[m[2]]
		if m[1] != fmt.Sprint(i) || !ok {
			return fmt.Errorf("kernel %s: binding %s is number %d, or of an unknown kind: %s", k.name, m[1], i, m[2])
		}
		if !regexp.MustCompile(`\b` + m[3] + `\b[\[.]`).MatchString(k.wgsl) {
			return fmt.Errorf("kernel %s: binding %s (%s) is declared and not used", k.name, m[1], m[3])
		}
		k.access = append(k.access, a)
	}
	for _, m := range nameLine.FindAllStringSubmatch(k.wgsl, -1) {
		if slices.Contains(reserved, m[1]) {
			return fmt.Errorf("kernel %s: %s is a word that WGSL keeps for itself", k.name, m[1])
		}
	}
	if m := unsetLine.FindStringSubmatch(k.wgsl); m != nil {
		return fmt.Errorf("kernel %s: variable %s has no value", k.name, m[1])
	}
	if m := paramsBlock.FindStringSubmatch(k.wgsl); m != nil {
		for _, f := range paramsLine.FindAllStringSubmatch(m[1], -1) {
			k.fields = append(k.fields, field{f[1], f[2] == "f32"})
		}
	}
	return nil
}

// params are the numbers of a shader's Params, int or float32, by their names there.
type params map[string]any

// with returns p and more.
func (p params) with(more params) params {
	all := maps.Clone(p)
	maps.Copy(all, more)
	return all
}

// pack returns the bytes of the shader's Params; the names of v must be equal.
func (k *kernel) pack(v params) ([]byte, error) {
	var b []byte
	for _, f := range k.fields {
		x, ok := v[f.name]
		if !ok {
			return nil, fmt.Errorf("kernel %s: Params has no %s", k.name, f.name)
		}
		switch x := x.(type) {
		case float32:
			if f.float {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
				continue
			}
		case int:
			if !f.float && x >= 0 && x <= math.MaxUint32 {
				b = binary.LittleEndian.AppendUint32(b, uint32(x))
				continue
			}
		}
		return nil, fmt.Errorf("kernel %s: %s is %v", k.name, f.name, x)
	}
	if len(v) != len(k.fields) {
		return nil, fmt.Errorf("kernel %s: Params has %d fields, the shader %d", k.name, len(v), len(k.fields))
	}
	return append(b, make([]byte, (16-len(b)%16)%16)...), nil
}

// pipe is a compiled kernel.
type pipe struct {
	*kernel
	gpu.Pipeline
}

// Device is a GPU and its compiled kernels.
type Device struct {
	gpu   gpu.Device
	pipes map[string]*pipe
}

// Open opens the n-th GPU of gpu.Adapters.
func Open(n int) (*Device, error) {
	d, err := gpu.Open(n)
	if err != nil {
		return nil, err
	}
	return newDevice(d), nil
}

// HasMatrices reports whether the n-th GPU of gpu.Adapters has matrix units known to Karat. A browser's GPU is
// not asked.
func HasMatrices(n int) bool {
	if !gpu.Reaches() {
		return false
	}
	all, err := gpu.Adapters()
	return err == nil && n >= 0 && n < len(all) && all[n].Kind != "cpu" && unitOf(all[n].Matrices) != nil
}

func newDevice(d gpu.Device) *Device { return &Device{gpu: d, pipes: map[string]*pipe{}} }

// Adapter describes the GPU.
func (d *Device) Adapter() gpu.Adapter { return d.gpu.Adapter() }

// Close frees the GPU.
func (d *Device) Close() error { return d.gpu.Close() }

// pipe returns a compiled kernel.
func (d *Device) pipe(shader string, variant any) (*pipe, error) {
	name := kernelName(shader, variant)
	if p := d.pipes[name]; p != nil {
		return p, nil
	}
	k, err := newKernel(shader, variant)
	if err != nil {
		return nil, err
	}
	if n, limit := len(k.access)-2, d.Adapter().Limits.Bindings; n > limit {
		return nil, fmt.Errorf("kernel %s: %d buffers, this GPU gives a shader at most %d", k.name, n, limit)
	}
	p, err := d.gpu.NewPipeline(k.name, k.wgsl, k.access)
	if err != nil {
		return nil, err
	}
	d.pipes[name] = &pipe{k, p}
	return d.pipes[name], nil
}
