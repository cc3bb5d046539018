package diagnose_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
	. "github.com/karat-run/karat/internal/lab/diagnose"
	"github.com/karat-run/karat/internal/lab/mistake"
	"github.com/karat-run/karat/internal/round"
)

// model is what an engine runs.
type model struct {
	name  string
	graph *graph.Graph
	asked *Asked
	edits reference.Edits // of a right engine
}

func load(t testing.TB, path string) *model {
	t.Helper()
	m, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	g, _, err := arch.Load(m)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := m.Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	return &model{name: path, graph: g, asked: &Asked{Tokenizer: tok, Template: m.Template()}}
}

func tiny(t testing.TB, name string) *model { return load(t, golden.Model(t, name)) }

// texts are prompts with the given texts, tokenized as the model does.
func (m *model) texts(t testing.TB, texts ...string) []*lab.Prompt {
	t.Helper()
	var all []*lab.Prompt
	for i, text := range texts {
		p := &lab.Prompt{Index: i, Input: lab.Input{Text: &text}, Text: text, IDs: encode(m, text)}
		if len(p.IDs) == 0 {
			t.Fatalf("%q has no tokens", text)
		}
		all = append(all, p)
	}
	return all
}

// record runs the prompts with all taps in an engine of that class with those faults.
func (m *model) record(t testing.TB, class, faults string, prompts []*lab.Prompt) (*lab.Record, []mistake.Injected) {
	t.Helper()
	r, done, err := m.take(class, faults, prompts)
	if err != nil {
		t.Fatalf("%s: %v", faults, err)
	}
	return r, done
}

func (m *model) take(class, faults string, prompts []*lab.Prompt) (*lab.Record, []mistake.Injected, error) {
	b, g := reference.Backend{Edits: m.edits}, m.graph
	var err error
	if class != "" {
		if b.Class, err = round.Parse(class); err != nil {
			return nil, nil, err
		}
	}
	var done []mistake.Injected
	var probe []mistake.Fault
	if faults != "" {
		list, err := mistake.Parse(faults)
		if err != nil {
			return nil, nil, err
		}
		var engine []mistake.Fault
		engine, _, probe, _ = mistake.Split(list)
		if len(engine) > 0 {
			if g, b.Edits, done, err = mistake.Inject(m.graph, engine); err != nil {
				return nil, nil, err
			}
		}
	}
	longest := 0
	for _, p := range prompts {
		longest = max(longest, len(p.IDs))
	}
	r, err := lab.NewRecorder(context.Background(), g, b, longest, 8)
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	for _, p := range prompts {
		if err := r.Record(context.Background(), p, true); err != nil {
			return nil, nil, err
		}
	}
	if len(probe) > 0 {
		if done, err = mistake.Probe(g, prompts, probe); err != nil {
			return nil, nil, err
		}
	}
	return &lab.Record{Path: "dump.safetensors", Names: lab.NamesHF, Prompts: prompts}, done, nil
}

func (m *model) diagnose(t testing.TB, dump, gold *lab.Record) *Diagnosis {
	t.Helper()
	d, err := Run(t.Context(), Options{Model: m.name, Graph: m.graph, Dump: dump, Golden: gold, Asked: m.asked})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// say is a diagnosis in short, for messages.
func say(d *Diagnosis) string {
	s := fmt.Sprintf("%s; KL %.3g, then %.3g, floor %.3g", d.Verdict, float64(d.Closure.Before), float64(d.Closure.After), float64(d.Closure.Floor))
	for _, f := range d.Findings {
		s += fmt.Sprintf("\n\t%s %s %v at %s, %v, %.3g of %.3g: %s", f.Cause, f.Op, f.Layers, f.Tap, f.Detail, float64(f.Residual), float64(f.Floor), f.Computed)
	}
	return s
}

// good reports whether a verdict is one of a right engine.
func good(v Verdict) bool { return v == Clean || v == Numeric || v == Sensitivity }

// suspicions are the findings but for those of rounding.
func suspicions(d *Diagnosis) []Finding {
	return slices.DeleteFunc(slices.Clone(d.Findings), func(f Finding) bool { return strings.HasPrefix(f.Cause, "numeric_") })
}

// layers joins the layers of all findings of a cause.
func layers(d *Diagnosis, cause string) []int {
	set := map[int]bool{}
	for _, f := range d.Findings {
		if f.Cause == cause {
			for _, l := range f.Layers {
				set[l] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(set))
}

func has(d *Diagnosis, cause string) bool {
	return slices.ContainsFunc(d.Findings, func(f Finding) bool { return f.Cause == cause })
}

// mixed is a text with many kinds of tokens.
const mixed = "x := 3.14 // naïve 東京"

// TestClean wants a good verdict, and nothing but rounding found, for engines without a
// fault, however they round and without their saying so.
func TestClean(t *testing.T) {
	classes := []string{"", "activations=f32,lanes=8", "activations=bf16", "activations=f16", "kv=f16", "activations=f32,kv=f16", "activations=q8_32", "activations=i16_32",
		"kv=q8_0", "kv=q4_0", "activations=f32,kv=q8_0_pages"}
	names := []string{"tiny-gemma4", "tiny-qwen3", "tiny-gemma3", "tiny-llama", "tiny-qwen2", "tiny-gemma4-moe"}
	for i, name := range names {
		m := tiny(t, name)
		for k, class := range classes {
			if i > 1 && k%len(names) != i || !golden.Slow() && k%4 != i%4 || !golden.Slow() && i > 3 {
				continue // in the long ring all of them with two models, some with the others
			}
			t.Run(name+"/"+cmp.Or(class, "f64"), func(t *testing.T) {
				dump, _ := m.record(t, class, "", m.texts(t, mixed))
				d := m.diagnose(t, dump, nil)
				if !good(d.Verdict) || len(suspicions(d)) > 0 {
					t.Error(say(d))
				}
				if class == "" && d.Verdict != Clean {
					t.Errorf("float64: %s", say(d))
				}
				if strings.Contains(class, "bf16") && d.Floors.Activations != "bf16" || class == "activations=f16" && d.Floors.Activations != "f16" {
					t.Errorf("%s is taken for %s", class, d.Floors.Activations)
				}
			})
		}
	}
}

// TestTableThroughLayers is an engine of float32 with a table of GELU that is seen through the layers' outputs: the table hides
// float32's sums in all equations but that of the logits, which tells them.
func TestTableThroughLayers(t *testing.T) {
	m := tiny(t, "tiny-gemma3")
	for faults, want := range map[string]map[string][]int{"": nil, "final_norm_missing": {"final_norm_missing": nil}} {
		dump, _ := m.record(t, "activations=f32,gelu=f16-table", faults, m.texts(t, mixed))
		if d := m.diagnose(t, outputs(dump), nil); want != nil {
			named(t, d, want)
		} else if d.Verdict != Numeric || len(suspicions(d)) > 0 || d.Floors.Activations != "f32" {
			t.Error(say(d))
		}
	}
}

// TestWindow is a clean engine's prompt that is longer than the window, whose last
// tokens were decoded one by one.
func TestWindow(t *testing.T) {
	m := tiny(t, "tiny-gemma3")
	p := m.texts(t, strings.Repeat("The color of the sky is blue. ", 11))
	if len(p[0].IDs) < 66 {
		t.Fatalf("%d tokens", len(p[0].IDs))
	}
	p[0].Decode = 3
	dump, _ := m.record(t, "activations=f32", "", p)
	d := m.diagnose(t, dump, nil)
	if !good(d.Verdict) || len(suspicions(d)) > 0 {
		t.Error(say(d))
	}
	if slices.ContainsFunc(d.Coverage.Blind, func(s string) bool { return strings.Contains(s, "window") || strings.Contains(s, "one by one") }) {
		t.Errorf("blind to what there was: %v", d.Coverage.Blind)
	}
}

// TestSame wants other forms of the same function found clean.
func TestSame(t *testing.T) {
	for name, faults := range map[string][]string{
		"tiny-qwen3":  {"same_rope_offset@all", "same_norm_folded:ffn_norm@all", "same_qk_order@all"},
		"tiny-gemma3": {"same_scale_on_queries@all", "same_logits_shifted"},

		"granitehybrid": {"same_logits_shifted"}, // whose logits are scaled behind the head
		"deepseek2":     {"same_rope_offset@all"},
		"glmdsa":        {"same_rope_offset@all"},
	} {
		m := tiny(t, name)
		for i, f := range faults {
			if i > 0 && !golden.Slow() {
				continue
			}
			t.Run(f, func(t *testing.T) {
				dump, _ := m.record(t, "", f, m.texts(t, mixed))
				if d := m.diagnose(t, dump, nil); !good(d.Verdict) || len(suspicions(d)) > 0 {
					t.Error(say(d))
				}
			})
		}
	}
}

// TestTurnedBeside wants positions that are off found in a model whose queries and keys have
// features that do not turn beside those that do.
func TestTurnedBeside(t *testing.T) {
	m := tiny(t, "deepseek2")
	for _, f := range []string{"rope_position@all", "rope_position:attn_k_rope=-1@2"} {
		dump, want := m.record(t, "", f, m.texts(t, mixed))
		d := m.diagnose(t, dump, nil)
		named(t, d, map[string][]int{"rope_position": want[0].Layers})
		if d.Verdict != Structural {
			t.Errorf("%s: %s", f, say(d))
		}
	}
}

func encode(m *model, text string) []int32 {
	var ids []int32
	for _, id := range m.asked.Tokenizer.Encode(text, addSpecial) {
		ids = append(ids, int32(id))
	}
	return ids
}
