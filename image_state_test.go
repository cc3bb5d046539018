package karat_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/golden"
)

// looking returns a model that sees, and a conversation with the pictures of its record.
func looking(t *testing.T, name, image string, names map[int]string, o karat.Options) (*karat.Model, []karat.Message) {
	t.Helper()
	dir, record := seer(t, name, names, image)
	var parts []karat.Part
	for _, name := range record.Images {
		b, err := os.ReadFile(filepath.Join(golden.Shared(t, "goldens/vision/images"), name+".png"))
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, karat.Image{Data: b})
	}
	return open(t, dir, o), []karat.Message{{Role: karat.RoleUser, Parts: parts}}
}

// TestImageDrafts: an answer about pictures has the same tokens with drafts and without, with keys and values of 8 bits
// as well.
func TestImageDrafts(t *testing.T) {
	for _, c := range []struct{ name, image string }{{"gemma4-moe", "<|image|>"}, {"qwen3vl", "<|image_pad|>"}, {"qwen35", "<|image_pad|>"}} {
		names := map[int]string{512: "<|image>", 513: "<image|>", 514: "<|image|>"}
		if c.image == "<|image_pad|>" {
			names = map[int]string{512: "<|vision_start|>", 513: "<|vision_end|>", 514: "<|image_pad|>"}
			c.image = "<|vision_start|><|image_pad|><|vision_end|>"
		}
		for _, kv := range []karat.KVType{karat.KVF16, karat.KVQ8Forced} {
			m, say := looking(t, c.name, c.image, names, karat.Options{KV: kv})
			var want []int
			drafted := 0
			for _, draft := range []karat.Draft{karat.DraftOff, karat.DraftNgram} {
				s := m.NewSession()
				o := karat.GenerateOptions{MaxTokens: 64, Sampling: &karat.Sampling{}, NoGenerationPrompt: true, Draft: draft}
				var got []int
				for x, err := range s.Chat(t.Context(), say, o) {
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, x.ID)
				}
				if want == nil {
					want = got
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s, %s, %s: %v, without drafts %v", c.name, kv, draft, got, want)
				}
				for _, n := range s.Drafts() {
					drafted += n.Accepted + n.Rejected
				}
				s.Close()
			}
			if drafted == 0 && c.name != "qwen35" { // whose answer repeats nothing
				t.Errorf("%s, %s: nothing was drafted", c.name, kv)
			}
		}
	}
}

// TestImageStates: what holds a prompt's tokens alone says that pictures are not in it.
func TestImageStates(t *testing.T) {
	for _, c := range []struct {
		name, image string
		names       map[int]string
	}{
		{"qwen3vl", "<|vision_start|><|image_pad|><|vision_end|>", map[int]string{512: "<|vision_start|>", 513: "<|vision_end|>", 514: "<|image_pad|>"}},
		{"gemma4", "<|image|>", map[int]string{512: "<|image>", 513: "<image|>", 514: "<|image|>"}},
	} {
		m, say := looking(t, c.name, c.image, c.names, karat.Options{})
		ids, err := m.TokenizeChat(t.Context(), say, karat.GenerateOptions{NoGenerationPrompt: true})
		if err != nil {
			t.Fatal(err)
		}
		err = m.ExportState(t.Context(), io.Discard, ids)
		if err == nil || !strings.Contains(err.Error(), "a picture's") {
			t.Errorf("%s: a state: %v", c.name, err)
		}
		if err := m.ExportState(t.Context(), io.Discard, []int{5, 6, 7}); err != nil {
			t.Errorf("%s: a state of text: %v", c.name, err)
		}
		for _, err := range m.GenerateIDs(t.Context(), ids, karat.GenerateOptions{MaxTokens: 1}) {
			if err == nil || !strings.Contains(err.Error(), "a picture's") {
				t.Errorf("%s: an answer to ids: %v", c.name, err)
			}
		}
		for _, err := range m.Chat(t.Context(), say, karat.GenerateOptions{NoGenerationPrompt: true, Receipt: m.NewReceipt()}) {
			if err == nil || !strings.Contains(err.Error(), "a receipt of an answer about pictures") {
				t.Errorf("%s: a receipt: %v", c.name, err)
			}
			break
		}
	}
}

// TestPlainTemplates: a template that takes texts alone has the text around a picture of the model's own, and what a
// message says in its words is text.
func TestPlainTemplates(t *testing.T) {
	for _, c := range []struct {
		name, image string
		names       map[int]string
	}{
		{"qwen3vl", "<|vision_start|><|image_pad|><|vision_end|>", map[int]string{512: "<|vision_start|>", 513: "<|vision_end|>", 514: "<|image_pad|>"}},
		{"mistral3", "[IMG]", map[int]string{514: "[IMG]", 515: "[IMG_BREAK]", 516: "[IMG_END]"}},
	} {
		m, say := looking(t, c.name, c.image, c.names, karat.Options{})
		said := say[0].Parts
		say[0].Parts = []karat.Part{karat.Text("ab"), said[0], karat.Text("b" + c.image), said[1]}
		var want []int
		for _, template := range []string{
			`{{ '<t3>' }}{% for x in messages[0].content %}{% if x.type == 'image' %}` + c.image + `{% else %}{{ x.text }}{% endif %}{% endfor %}{{ '<t4>' }}`,
			`{{ '<t3>' + messages[0].content + '<t4>' }}`, `{{ '<t3>' }}{{ messages[0].content }}{{ '<t4>' }}`,
			`{{ '<t3>' }}{{ messages[0].content | trim }}{{ '<t4>' }}`,
		} {
			ids, err := m.TokenizeChat(t.Context(), say, karat.GenerateOptions{Template: template})
			if want == nil {
				want = ids
			}
			if err != nil || len(ids) < 20 || !slices.Equal(ids, want) {
				t.Errorf("%s: %s: %v, want %v; %v", c.name, template, ids, want, err)
			}
		}
		_, err := m.TokenizeChat(t.Context(), say, karat.GenerateOptions{Template: `{{ 'no content' }}`})
		if err == nil || !strings.Contains(err.Error(), "template") {
			t.Errorf("%s: a template without the content: %v", c.name, err)
		}
	}
}

// qwenNames are the names of qwen3vl's tokens around pictures.
var qwenNames = map[int]string{512: "<|vision_start|>", 513: "<|vision_end|>", 514: "<|image_pad|>"}

// TestTowerSteps counts the steps of a tower: a picture is computed once for all turns of a conversation and all
// conversations, one that came before waits for no other's step, and two prompts at a time share a picture's rows.
func TestTowerSteps(t *testing.T) {
	m, say := looking(t, "qwen3vl", "<|vision_start|><|image_pad|><|vision_end|>", qwenNames, karat.Options{})
	var steps atomic.Int32
	var within func() // the step
	if err := m.WatchTower(func() {
		if m.Reading() == 0 {
			t.Error("a picture in the tower takes no place among those held")
		}
		if steps.Add(1); within != nil {
			within()
		}
	}); err != nil {
		t.Fatal(err)
	}
	tokens := func(parts ...karat.Part) (ids []int) {
		ids, err := m.TokenizeChat(t.Context(), []karat.Message{{Role: karat.RoleUser, Parts: parts}}, karat.GenerateOptions{})
		if err != nil {
			t.Error(err)
		}
		return ids
	}
	counts := func(want int32) {
		t.Helper()
		if n := steps.Swap(0); n != want {
			t.Errorf("%d steps of the tower, want %d", n, want)
		}
	}
	first, second := say[0].Parts[0], say[0].Parts[1]
	said := []karat.Message{{Role: karat.RoleUser, Parts: []karat.Part{first, first}}}
	n, err := m.CountChat(t.Context(), said, karat.GenerateOptions{})
	counts(0) // the sizes are enough
	if ids := tokens(first, first); err != nil || n != len(ids) {
		t.Errorf("%d tokens counted, want %d; %v", n, len(ids), err)
	}
	counts(1)
	if n := m.Tiles(); n != 0 {
		t.Errorf("%d tiles kept beside their rows", n)
	}
	within = func() { tokens(first, first) } // as another request would, while second is computed
	tokens(first, second)
	counts(1)
	within = nil

	s := m.NewSession()
	defer s.Close()
	o := karat.GenerateOptions{MaxTokens: 4, Sampling: &karat.Sampling{}, NoGenerationPrompt: true}
	for turn := range 2 {
		text := ""
		for x, err := range s.Chat(t.Context(), say, o) {
			if err != nil {
				t.Fatal(err)
			}
			text += x.Text
		}
		if n, kept := s.PromptTokens(); turn == 1 && kept < n-1 {
			t.Errorf("%d of %d tokens kept", kept, n)
		}
	}
	counts(0)

	defer karat.KeepRows(1)() // the latest prompt's are kept, and no others
	tokens(first, second)
	tokens(first, second)
	counts(0)
	tokens(first)
	tokens(first, second)
	counts(1)

	third := slices.Clone(first.(karat.Image).Data)
	var both sync.WaitGroup
	within = func() {
		within = nil
		both.Go(func() { tokens(karat.Image{Data: third}, karat.Image{Data: third}) })
	}
	third = append(third, 0) // behind the end of the file: another hash
	tokens(karat.Image{Data: third}, karat.Image{Data: third})
	both.Wait()
	counts(1)

	m.Close()
	_, err = m.TokenizeChat(t.Context(), say, o)
	if !errors.Is(err, karat.ErrClosed) {
		t.Errorf("a closed model: %v", err)
	}
}

// TestImagePlaces: a picture stands in a message of the user or in a tool's result, whatever the template takes.
func TestImagePlaces(t *testing.T) {
	m, say := looking(t, "qwen3vl", "<|vision_start|><|image_pad|><|vision_end|>", qwenNames, karat.Options{})
	for _, role := range []karat.Role{karat.RoleSystem, karat.RoleDeveloper, karat.RoleAssistant} {
		_, err := m.TokenizeChat(t.Context(), []karat.Message{{Role: role, Parts: say[0].Parts}}, karat.GenerateOptions{})
		var e *karat.MessageError
		if !errors.As(err, &e) || e.Message != 0 || !strings.Contains(err.Error(), "part 0: an Image is of RoleUser or in a ToolResult") {
			t.Errorf("%s: %v", role, err)
		}
	}
}
