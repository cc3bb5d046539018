//go:build !js

package webgpu

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/dev/golden"
)

// compile compiles kernels in a page, pipelines with layouts that are said and not inferred, and
// tells what the browser has against them.
const compile = `(async () => {
	const kernels = %s;
	const adapter = await navigator.gpu?.requestAdapter();
	if (!adapter) return ['no adapter'];
	const device = await adapter.requestDevice(), problems = [];
	for (const k of kernels) {
		if (k.pipeline) device.pushErrorScope('validation');
		const module = device.createShaderModule({code: k.wgsl});
		for (const m of (await module.getCompilationInfo()).messages) problems.push(k.name + ': line ' + m.lineNum + ': ' + m.message);
		if (!k.pipeline) continue;
		const layout = device.createBindGroupLayout({entries: k.access.map((a, i) => ({binding: i, visibility: GPUShaderStage.COMPUTE,
			buffer: {type: ['uniform', 'read-only-storage', 'storage'][a]}}))});
		device.createComputePipeline({layout: device.createPipelineLayout({bindGroupLayouts: [layout]}), compute: {module, entryPoint: 'main'}});
		const error = await device.popErrorScope();
		if (error) problems.push(k.name + ': ' + error.message);
	}
	return [kernels.length + ' kernels', ...problems];
})()`

// TestBrowser: a browser reads all kernels, too, and has nothing to say about them; the
// shortest of each file's becomes a pipeline, for that takes seconds of a long one.
// It has a compiler of its own, which is strict about what may differ in a workgroup.
func TestBrowser(t *testing.T) {
	golden.SkipFast(t, "without a GPU this takes a browser")
	t.Parallel() // to TestConformance
	o := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.Flag("enable-unsafe-webgpu", true),
		chromedp.Flag("use-webgpu-adapter", "swiftshader"), chromedp.Flag("enable-features", "Vulkan"), chromedp.Flag("disable-gpu", false))
	if os.Geteuid() == 0 { // root has no sandbox there
		o = append(o, chromedp.NoSandbox)
	}
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), o...)
	defer cancel()
	ctx, cancel = chromedp.NewContext(ctx)
	defer cancel()
	page := filepath.Join(t.TempDir(), "page.html") // files are secure contexts, which WebGPU needs
	if err := os.WriteFile(page, []byte("<!doctype html>"), 0o666); err != nil {
		t.Fatal(err)
	}
	switch err := chromedp.Do(ctx, chromedp.Navigate("file://"+page)); {
	case errors.Is(err, exec.ErrNotFound):
		golden.Lacking(t, err)
	case err != nil:
		t.Fatal(err)
	}
	type shader struct {
		Name   string `json:"name"`
		WGSL   string `json:"wgsl"`
		Access []int  `json:"access"`
		Whole  bool   `json:"pipeline"` // layout included
	}
	check := func(list []shader) []string {
		data, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		wait := func(p *runtime.EvaluateParams) { p.AwaitPromise = new(true) }
		problems, err := chromedp.Run(ctx, chromedp.Evaluate[[]string](fmt.Sprintf(compile, data), wait))
		if err != nil {
			t.Fatal(err)
		}
		return problems
	}
	var list []shader
	shortest := map[string]int{} // in the list, by file
	for i, k := range variants(t) {
		s := shader{Name: k.name, WGSL: k.wgsl}
		for _, a := range k.access {
			s.Access = append(s.Access, int(a))
		}
		list = append(list, s)
		file := k.name[:strings.IndexAny(k.name+"{", "[{")]
		if j, ok := shortest[file]; !ok || len(k.wgsl) < len(list[j].WGSL) {
			shortest[file] = i
		}
	}
	for _, i := range shortest {
		list[i].Whole = true
	}
	problems := check(list)
	if problems[0] == "no adapter" {
		golden.Lacking(t, "the browser has no WebGPU")
	}
	for _, p := range problems[1:] {
		t.Error(p)
	}
	t.Log(problems[0])
	list[0].Whole = true
	list[0].Access = []int{int(gpu.Uniform), int(gpu.Uniform), int(gpu.Read), int(gpu.Read)} // its third is written
	if problems := check(list[:1]); len(problems) < 2 {
		t.Error("a wrong layout passes")
	}
}
