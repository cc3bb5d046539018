//go:build !nogpu && ((linux && !android) || windows) && (amd64 || arm64)

package gpu

import (
	"slices"
	"strings"
	"testing"
)

// unitText multiplies two matrices of ones on matrix units of 8x8x8.
const unitText = `enable f16;
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<vec4u>;
var<workgroup> memory: array<vec4u, 16>;
@compute @workgroup_size(32)
fn main(@builtin(local_invocation_index) t: u32) {
	if (t < 8u) {
		memory[t] = vec4u(0x3c003c00u);
	}
	workgroupBarrier();
	var c = subgroup_matrix_result<f32, 8, 8>();
	let a = subgroupMatrixLoad<subgroup_matrix_left<f16, 8, 8>, row_major>(&x, 0u, 8u);
	let b = subgroupMatrixLoad<subgroup_matrix_right<f16, 8, 8>, col_major>(&memory, 0u, 8u);
	c = subgroupMatrixMultiplyAccumulate(a, b, c);
	workgroupBarrier();
	subgroupMatrixStore<row_major>(&memory, 0u, c, 8u);
	workgroupBarrier();
	out[t] = bitcast<f32>(memory[t >> 2u][t & 3u]);
}
`

// TestUnits: a shader's matrices become Vulkan's, and nothing of their stand-ins is left.
func TestUnits(t *testing.T) {
	words, err := spirv(unitText)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[uint32]int{}
	var names []string
	for at := 5; at < len(words); at += int(words[at] >> 16) {
		i := instruction(words[at : at+int(words[at]>>16)])
		seen[i.op()]++
		if i.op() == opMemberName {
			names = append(names, text(i[3:]))
		}
	}
	for op, want := range map[uint32]int{opTypeMatrix: 3, opMatrixLoad: 2, opMatrixStore: 1, opMatrixMultiply: 1} {
		if seen[op] != want {
			t.Errorf("instruction %d stands %d times, want %d", op, seen[op], want)
		}
	}
	if slices.ContainsFunc(names, func(s string) bool { return strings.HasPrefix(s, "Unit") }) {
		t.Errorf("members of %q are left", names)
	}
	if _, s := standIns(strings.ReplaceAll(unitText, multiplyCall, "f(")); s != (Shape{}) {
		t.Errorf("a text without products has matrices of %v", s)
	}
}

// TestDriver: the library's handles of Vulkan are found by their names.
func TestDriver(t *testing.T) {
	open(t)
	err := runStill(func() error {
		all, instances, err := enumerate()
		if err != nil {
			return err
		}
		defer destroy(instances)
		for _, f := range all {
			if d, ok := driverOf(f.exposed.Adapter); f.API == "Vulkan" && (!ok || d.command("createDevice") == nil ||
				d.command("getPhysicalDeviceCooperativeMatrixPropertiesKHR") == nil) {
				t.Errorf("%s: no handles", f.Name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
