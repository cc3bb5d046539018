package diagnose_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/backendtest"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/lab"
	. "github.com/karat-run/karat/internal/lab/diagnose"
	"github.com/karat-run/karat/internal/round"
	"github.com/karat-run/karat/internal/tensor"
)

// TestInput wants other tokens than the text's named as what they are, by the
// tokenizer and by a golden record, and the engine found right on what it was given.
func TestInput(t *testing.T) {
	m := tiny(t, "gemma2")
	right := m.texts(t, mixed)[0].IDs
	chat := lab.Chat{{Role: "user", Content: "Hello there"}}
	for _, c := range []struct {
		what, cause string
		change      func(p *lab.Prompt)
	}{
		{"no BOS", "input_bos", func(p *lab.Prompt) { p.IDs = right[1:] }},
		{"two BOS", "input_bos", func(p *lab.Prompt) { p.IDs = append([]int32{right[0]}, right...) }},
		{"another token", "input_ids", func(p *lab.Prompt) { p.IDs = slices.Clone(right); p.IDs[5]++ }},
		{"one token less", "input_ids", func(p *lab.Prompt) { p.IDs = slices.Delete(slices.Clone(right), 7, 8) }},
		{"a chat without its template", "input_template", func(p *lab.Prompt) {
			p.Input, p.Text, p.IDs = lab.Input{Chat: chat}, "", encode(m, "Hello there")
		}},
		{"as it should be", "", func(p *lab.Prompt) {}},
	} {
		if !golden.Slow() && (c.what == "another token" || c.what == "no BOS" || c.cause == "") {
			continue
		}
		t.Run(c.what, func(t *testing.T) {
			p := m.texts(t, mixed)
			c.change(p[0])
			dump, _ := m.record(t, "activations=f32", "", p)
			d := m.diagnose(t, dump, nil)
			if c.cause == "" {
				if !good(d.Verdict) {
					t.Error(say(d))
				}
				return
			}
			if d.Verdict != Input || len(suspicions(d)) != 1 || !has(d, c.cause) || d.Findings[0].Cause != c.cause {
				t.Error(say(d))
			}
			// Without the text it takes a golden record to tell.
			q := *dump.Prompts[0]
			q.Input, q.Text = lab.Input{}, ""
			silent := &lab.Record{Names: lab.NamesHF, Prompts: []*lab.Prompt{&q}}
			if d := m.diagnose(t, silent, nil); !good(d.Verdict) {
				t.Errorf("nothing says what was asked for: %s", say(d))
			}
			if c.cause != "input_template" {
				gold := &lab.Record{Prompts: []*lab.Prompt{{Index: 0, IDs: right}}}
				if d := m.diagnose(t, silent, gold); d.Verdict != Input || !has(d, c.cause) {
					t.Errorf("with a golden record: %s", say(d))
				}
			}
		})
	}
}

// TestTemplateAround renders the raw text that the dump asked for as a chat.
func TestTemplateAround(t *testing.T) {
	m := tiny(t, "tiny-qwen3")
	p := m.texts(t, "Hello there")
	p[0].IDs = nil
	for _, id := range m.asked.Tokenizer.Encode("<|im_start|>user\nHello there<|im_end|>\n<|im_start|>assistant\n", parseSpecial) {
		p[0].IDs = append(p[0].IDs, int32(id))
	}
	dump, _ := m.record(t, "", "", p)
	if d := m.diagnose(t, dump, nil); d.Verdict != Input || !has(d, "input_template") {
		t.Error(say(d))
	}
}

// TestInputBefore wants the input accused before an operation, and both said.
func TestInputBefore(t *testing.T) {
	m := tiny(t, "tiny-gemma3")
	p := m.texts(t, mixed)
	p[0].IDs = p[0].IDs[1:]
	dump, _ := m.record(t, "", "norm_missing:post_ffw_norm@2", p)
	d := m.diagnose(t, dump, nil)
	if d.Verdict != Input || !has(d, "input_bos") || !slices.Equal(layers(d, "norm_missing"), []int{2}) || d.Findings[0].Cause != "input_bos" {
		t.Error(say(d))
	}
}

// TestGoldenIDs takes the ids that a dump lacks from a golden record.
func TestGoldenIDs(t *testing.T) {
	m := tiny(t, "smollm3")
	dump, _ := m.record(t, "", "", m.texts(t, "Hello world"))
	p := *dump.Prompts[0]
	gold := &lab.Record{Prompts: []*lab.Prompt{{Index: 0, IDs: p.IDs}}}
	p.IDs, p.Input, p.Text = nil, lab.Input{}, ""
	bare := &lab.Record{Path: "bare", Names: lab.NamesHF, Prompts: []*lab.Prompt{&p}}
	d := m.diagnose(t, bare, gold)
	if d.Verdict != Clean || !slices.ContainsFunc(d.Inferred, func(s string) bool { return strings.Contains(s, "golden record") }) {
		t.Errorf("%s; %v", say(d), d.Inferred)
	}
	if _, err := Run(t.Context(), Options{Graph: m.graph, Dump: bare, Asked: m.asked}); !errors.Is(err, ErrUnusable) {
		t.Errorf("without ids: %v", err)
	}
}

// TestGoldenIDsOfOthers: what a dump without ids says of its tokens must be of as many as the golden record has.
func TestGoldenIDsOfOthers(t *testing.T) {
	m := &model{name: "attributes", graph: backendtest.Attributes(t, 2)}
	ids := []int32{1, 2, 3, 4, 5, 6}
	for what, spoil := range map[string]func(*lab.Prompt){
		"position_parts of 3 tokens, want 6": func(p *lab.Prompt) { p.Parts = make([][3]int32, 3) },
		"decode 7, want 0 to its 6 tokens":   func(p *lab.Prompt) { p.Decode = 7 },
	} {
		dump, _ := m.record(t, "", "", []*lab.Prompt{{IDs: ids}, {Index: 1, IDs: ids}})
		for _, p := range dump.Prompts {
			p.IDs = nil
		}
		spoil(dump.Prompts[1])
		d := m.diagnose(t, dump, &lab.Record{Prompts: []*lab.Prompt{{IDs: ids}, {Index: 1, IDs: ids}}})
		if !good(d.Verdict) || d.Coverage.Prompts != 1 || !slices.ContainsFunc(d.Inferred, func(s string) bool { return strings.Contains(s, "prompt 1: "+what) && strings.Contains(s, "left out") }) {
			t.Errorf("%s; inferred %q", say(d), d.Inferred)
		}
	}
}

// TestPyTorch diagnoses PyTorch's own records, whose taps are of float64 passes.
func TestPyTorch(t *testing.T) {
	for _, name := range golden.Models(t) {
		if !golden.Slow() && name != "tiny-gemma4" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			m := tiny(t, name)
			r, err := lab.ReadRecord(golden.Record(t, name).Tensors(t))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { r.Close() })
			short := &lab.Record{Path: name, Prompts: slices.DeleteFunc(slices.Clone(r.Prompts), func(p *lab.Prompt) bool { return len(p.IDs) > 24 })}
			if d := m.diagnose(t, short, nil); d.Verdict != Clean {
				t.Error(say(d))
			}
		})
	}
}

// TestUnusable wants ErrUnusable, and no verdict, where there is nothing to judge.
func TestUnusable(t *testing.T) {
	m := tiny(t, "smollm3")
	full, _ := m.record(t, "", "", m.texts(t, "Hello world"))
	ids := full.Prompts[0].IDs
	for what, prompts := range map[string][]*lab.Prompt{
		"no prompts":            nil,
		"ids alone":             {{IDs: ids}},
		"logits without ids":    {{Logits: full.Prompts[0].Logits}},
		"taps of another model": {{IDs: ids, Taps: map[string]*tensor.Tensor{"encoder.block.0": full.Prompts[0].Taps["model.norm.out"]}}},
	} {
		_, err := Run(t.Context(), Options{Graph: m.graph, Dump: &lab.Record{Path: "x.safetensors", Prompts: prompts}})
		if !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), "x.safetensors") || strings.Contains(err.Error(), "--golden") != (what == "logits without ids") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestNothingWritten: taps or logits that were never written are the instrument's fault, and the engine is not accused.
func TestNothingWritten(t *testing.T) {
	m := tiny(t, "smollm3")
	for what, c := range map[string]struct {
		logits bool
		value  uint32
	}{"zeros": {false, 0}, "NaN": {false, 0x7fc00000}, "logits": {true, 0}} {
		dump, _ := m.record(t, "", "", m.texts(t, mixed))
		p := dump.Prompts[0]
		p.Hidden = nil
		fill := func(x *tensor.Tensor) *tensor.Tensor {
			y := *x
			y.DType, y.Data = tensor.F32, make([]byte, 4*x.Shape.Size())
			for i := 0; i < len(y.Data); i += 4 {
				binary.LittleEndian.PutUint32(y.Data[i:], c.value)
			}
			return &y
		}
		if c.logits {
			p.Logits = fill(p.Logits)
			delete(p.Taps, "lm_head.out")
		} else {
			for name, x := range p.Taps {
				p.Taps[name] = fill(x)
			}
			delete(p.Taps, "lm_head.out")
		}
		d := m.diagnose(t, dump, nil)
		if d.Verdict != Instrument || len(d.Findings) != 1 || d.Next[0].Do != DoMendProbe {
			t.Errorf("%s: %s, %+v", what, say(d), d.Next)
		}
	}
}

// TestPadded gives all taps a row more than the prompt has positions: it says that they were not seen.
func TestPadded(t *testing.T) {
	m := tiny(t, "smollm3")
	full, _ := m.record(t, "", "", m.texts(t, "Hello world"))
	for name, x := range full.Prompts[0].Taps {
		y := *x
		y.Shape = append(tensor.Shape{x.Shape[0] + 1}, x.Shape[1:]...)
		y.Data = append(slices.Clip(x.Data), make([]byte, len(x.Data)/x.Shape[0])...)
		full.Prompts[0].Taps[name] = &y
	}
	d := m.diagnose(t, full, nil)
	if !slices.ContainsFunc(d.Errors, func(s string) bool { return strings.Contains(s, "most of the dump's taps") }) {
		t.Errorf("%s; errors %q", say(d), d.Errors)
	}
}

// TestUnseen: a tap without rows, which nothing else shows, is an error at the top; a dump without logits is asked for
// them.
func TestUnseen(t *testing.T) {
	m := tiny(t, "smollm3")
	dump, _ := m.record(t, "", "", m.texts(t, mixed))
	x := dump.Prompts[0].Taps["model.layers.1.out"]
	x.Shape = tensor.Shape{x.Shape.Size()}
	asked := func(d *Diagnosis) bool {
		return slices.ContainsFunc(d.Next, func(s Step) bool { return slices.Equal(s.Taps, []string{"logits"}) })
	}
	d := m.diagnose(t, dump, nil)
	if !good(d.Verdict) || len(d.Errors) != 1 || !strings.Contains(d.Errors[0], "as model.layers.1.out: rows of ") || asked(d) {
		t.Errorf("%s: %q, %+v", say(d), d.Errors, d.Next)
	}
	dump.Prompts[0].Logits = nil
	delete(dump.Prompts[0].Taps, "lm_head.out")
	if d = m.diagnose(t, dump, nil); !good(d.Verdict) || !asked(d) {
		t.Errorf("%s: %+v", say(d), d.Next)
	}
}

// TestOutside gives ids that the model does not have.
func TestOutside(t *testing.T) {
	m := tiny(t, "smollm3")
	full, _ := m.record(t, "", "", m.texts(t, "Hello world"))
	for _, id := range []int32{-1, 1 << 30} {
		p := *full.Prompts[0]
		p.Input, p.Text = lab.Input{}, ""
		p.IDs = slices.Clone(p.IDs)
		p.IDs[1] = id
		if d, err := Run(t.Context(), Options{Graph: m.graph, Dump: &lab.Record{Prompts: []*lab.Prompt{&p}}}); !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), fmt.Sprintf("position 1: token %d", id)) {
			t.Errorf("id %d: %v, %v", id, err, d)
		}
	}
}

// TestDamaged breaks values of a right engine's dump: no panic, no good verdict, and
// each damaged tap said.
func TestDamaged(t *testing.T) {
	m := tiny(t, "smollm3")
	full, _ := m.record(t, "", "", m.texts(t, "Hello world, hello"))
	const tap = "model.layers.2.mlp.gate_proj.out"
	damage := func(name string, change func(x *tensor.Tensor)) *lab.Record {
		p := *full.Prompts[0]
		p.Taps = maps.Clone(p.Taps)
		x := *p.Taps[tap]
		if name == "logits" {
			x = *p.Logits
		}
		x.Shape, x.Data = slices.Clone(x.Shape), slices.Clone(x.Data)
		change(&x)
		if name == "logits" {
			p.Logits = &x
			delete(p.Taps, "lm_head.out")
		} else {
			p.Taps[tap] = &x
		}
		return &lab.Record{Names: lab.NamesHF, Prompts: []*lab.Prompt{&p}}
	}
	put := func(v float64) func(x *tensor.Tensor) {
		return func(x *tensor.Tensor) { binary.LittleEndian.PutUint32(x.Data[40:], math.Float32bits(float32(v))) }
	}
	cut := func(x *tensor.Tensor) { x.Shape[0]--; x.Data = x.Data[:len(x.Data)-4*x.Shape.Last()] }
	for _, c := range []struct {
		what, name string
		change     func(x *tensor.Tensor)
	}{
		{"NaN", tap, put(math.NaN())},
		{"Inf", tap, put(math.Inf(1))},
		{"all NaN", tap, func(x *tensor.Tensor) {
			for i := range x.Data {
				x.Data[i] = 0xff
			}
		}},
		{"all zero", tap, func(x *tensor.Tensor) { clear(x.Data) }},
		{"a row less", tap, cut},
		{"half as wide", tap, func(x *tensor.Tensor) { x.Shape[1] /= 2; x.Data = x.Data[:len(x.Data)/2] }},
		{"NaN logits", "logits", put(math.NaN())},
		{"Inf logits", "logits", put(math.Inf(-1))},
		{"a row of logits less", "logits", cut},
	} {
		if !golden.Slow() && (c.what == "Inf" || c.what == "Inf logits" || c.what == "all zero") {
			continue
		}
		t.Run(c.what, func(t *testing.T) {
			d := m.diagnose(t, damage(c.name, c.change), nil)
			if good(d.Verdict) || c.name == tap && d.Verdict != Instrument {
				t.Error(say(d))
			}
			if c.name == tap && !slices.ContainsFunc(d.Findings, func(f Finding) bool { return f.Tap == tap && kindly(f) }) {
				t.Errorf("the tap is not accused: %s", say(d))
			}
		})
	}
}

// TestOnePosition spoils one row of a long prompt: it is found where it is, not where
// later positions read it.
func TestOnePosition(t *testing.T) {
	m := tiny(t, "smollm3")
	p := m.texts(t, "Hello")
	for i := range 90 {
		p[0].IDs = append(p[0].IDs, int32(20+i*i%100))
	}
	p[0].Input, p[0].Text = lab.Input{}, ""
	full, _ := m.record(t, "", "", p)
	const tap, row = "model.layers.1.self_attn.v_proj.out", 43
	x := full.Prompts[0].Taps[tap]
	w := 4 * x.Shape.Last()
	for i := row * w; i < (row+1)*w; i += 4 {
		v := math.Float32frombits(binary.LittleEndian.Uint32(x.Data[i:]))
		binary.LittleEndian.PutUint32(x.Data[i:], math.Float32bits(1.5*v))
	}
	d := m.diagnose(t, full, nil)
	if d.Verdict != Instrument || len(d.Findings) != 1 || d.Findings[0].Tap != tap {
		t.Error(say(d))
	}
}

// TestLastRows leaves of all taps the last rows, as engines do that prune what they do
// not need, and of each prompt other taps: faults are found where they are.
func TestLastRows(t *testing.T) {
	m := tiny(t, "smollm3")
	full, _ := m.record(t, "activations=f32", "norm_missing:ffn_norm@2; attention_scale@1; x_value_signs@3", m.texts(t, mixed, "Hello world"))
	for _, kept := range []int{1, 3} {
		var cut []*lab.Prompt
		for i, p := range full.Prompts {
			q := *p
			q.Taps = map[string]*tensor.Tensor{}
			for name, x := range p.Taps {
				if i == 1 && strings.Contains(name, "layers.0.") {
					continue
				}
				last := *x
				w := 4 * x.Shape.Size() / x.Shape[0]
				last.Shape = append(tensor.Shape{kept}, x.Shape[1:]...)
				last.Data = x.Data[len(x.Data)-kept*w:]
				q.Taps[name] = &last
			}
			cut = append(cut, &q)
		}
		d := m.diagnose(t, &lab.Record{Names: lab.NamesHF, Prompts: cut}, nil)
		if len(suspicions(d)) != 3 || !slices.Equal(layers(d, "norm_missing"), []int{2}) || !slices.Equal(layers(d, "attention_scale"), []int{1}) || !slices.Equal(layers(d, "unknown"), []int{3}) {
			t.Errorf("the last %d rows: %s", kept, say(d))
		}
		for i, l := range d.Logits { // the positions are the prompt's, not the dump's rows
			n := len(full.Prompts[i].IDs)
			if k := len(l.ByPosition); len(l.Positions) != k || l.Positions[0] != n-k || l.Positions[k-1] != n-1 || i == 0 && k == n {
				t.Errorf("logits of the last %d of %d rows: at %v", k, n, l.Positions)
			}
		}
	}
}

// TestStoredIn16 stores the dumps of a float32 engine in 16 bits: a right one stays
// right, and a fault is found all the same.
func TestStoredIn16(t *testing.T) {
	m := tiny(t, "smollm3")
	for _, dtype := range golden.First(1, []tensor.DType{tensor.BF16, tensor.F16, tensor.F32}) {
		for faults, want := range map[string]string{"": "", "attention_scale@1": "attention_scale"} {
			full, _ := m.record(t, "activations=f32", faults, m.texts(t, mixed))
			p := full.Prompts[0]
			if dtype != tensor.F32 {
				p.Logits = in16(p.Logits, dtype)
			}
			for name, x := range p.Taps {
				p.Taps[name] = in16(x, dtype)
			}
			full.Declared = round.Class{}
			d := m.diagnose(t, full, nil)
			if want == "" && !good(d.Verdict) || want != "" && (len(suspicions(d)) != 1 || !has(d, want)) {
				t.Errorf("%v, %q: %s", dtype, faults, say(d))
			}
		}
	}
}

// in16 is x, of float32 values, in another type; in float32 it is what binary16 leaves of them.
func in16(x *tensor.Tensor, dtype tensor.DType) *tensor.Tensor {
	y := &tensor.Tensor{Name: x.Name, DType: dtype, Shape: x.Shape}
	for i := 0; i < len(x.Data); i += 4 {
		v := math.Float32frombits(binary.LittleEndian.Uint32(x.Data[i:]))
		bits := float16.ToF16(v)
		if dtype == tensor.F32 {
			y.Data = binary.LittleEndian.AppendUint32(y.Data, math.Float32bits(float16.F16(bits)))
			continue
		}
		if dtype == tensor.BF16 {
			bits = float16.ToBF16(v)
		}
		y.Data = binary.LittleEndian.AppendUint16(y.Data, bits)
	}
	return y
}

// kindly reports whether a finding accuses the probe.
func kindly(f Finding) bool {
	return strings.HasPrefix(f.Cause, "probe_") || strings.HasPrefix(f.Computed, "does nothing wrong")
}

// TestHostile gives taps hostile names and shapes: they have no place, and do no harm.
func TestHostile(t *testing.T) {
	m := tiny(t, "tiny-qwen3")
	full, _ := m.record(t, "", "", m.texts(t, "Hello world"))
	p := *full.Prompts[0]
	p.Taps = maps.Clone(p.Taps)
	some := p.Taps["model.norm.out"]
	for _, name := range []string{"model.layers.99999999999999999999.out", "model.layers.-1.mlp.out", "model.layers.0", "model.layers..self_attn.q_proj.out",
		strings.Repeat("a", 1<<16), "\x1b[31mred", "../../etc/passwd", "l_out-4294967296#0.ADD", "Qcur-#.", "#", ".in", "hidden.7", "logits", "blk.1.attn_q", "%s%n"} {
		p.Taps[name] = some
	}
	odd := *some
	odd.Shape = tensor.Shape{1, 1, 1, len(some.Data) / 4}
	p.Taps["model.layers.1.self_attn.q_proj.out"] = &odd
	for _, names := range []string{"", lab.NamesLlamaCpp, lab.NamesKarat} {
		if _, err := Run(t.Context(), Options{Graph: m.graph, Dump: &lab.Record{Prompts: []*lab.Prompt{&p}}, Names: names}); err != nil && !errors.Is(err, ErrUnusable) {
			t.Errorf("names %q: %v", names, err)
		}
	}
	if _, err := Run(t.Context(), Options{Graph: m.graph, Dump: full, Names: "other"}); err == nil {
		t.Error("names that there are not are taken")
	}
}

// TestCancel stops a diagnosis.
func TestCancel(t *testing.T) {
	m := tiny(t, "tiny-qwen3")
	full, _ := m.record(t, "", "attention_scale@all", m.texts(t, "Hello world"))
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	_, err := Run(ctx, Options{Graph: m.graph, Dump: full, Progress: func(string, int, int) {
		if calls++; calls == 6 {
			cancel()
		}
	}})
	if !errors.Is(err, ctx.Err()) || err == nil {
		t.Errorf("%v", err)
	}
}
