package karat_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/golden"
)

// seer is a model of shared/goldens/vision with a tokenizer, whose chat template writes the record's second prompt
// around two pictures: token i is <ti> but for the names given.
func seer(t *testing.T, name string, names map[int]string, image string) (dir string, record prompt) {
	t.Helper()
	from := golden.Shared(t, "goldens/vision/"+name)
	dir = golden.Seeded(t, from)
	var all struct{ Prompts []prompt }
	b, err := os.ReadFile(filepath.Join(from, "golden.json"))
	if err = errors.Join(err, json.Unmarshal(b, &all)); err != nil {
		t.Fatal(err)
	}
	record = all.Prompts[1]
	var pieces []string // between the pictures
	var piece strings.Builder
	for _, id := range record.IDs {
		switch {
		case id >= 512 && id != 514:
		case id != 514 && names[id] == "":
			fmt.Fprintf(&piece, "<t%d>", id)
		case id == 514 && (piece.Len() > 0 || len(pieces) == 0):
			pieces = append(pieces, piece.String())
			piece.Reset()
		}
	}
	pieces = append(pieces, piece.String())
	if len(pieces) != 3 {
		t.Fatalf("%d pieces of text", len(pieces))
	}
	golden.Tokenizer(t, dir, names, fmt.Sprintf(`{{ '%s' }}{%% for x in messages[0].content %%}`+
		`{%% if x.type == 'image' %%}%s{{ ['%s', '%s'][loop.index0] }}{%% endif %%}{%% endfor %%}`, pieces[0], image, pieces[1], pieces[2]))
	return dir, record
}

// marked adds the marks of tiles, by rows of so many columns, to the names of tokens from first on.
func marked(names map[int]string, first, columns int, form string) map[int]string {
	for i := first; i < 540; i++ {
		names[i] = fmt.Sprintf(form, (i-first)/columns+1, (i-first)%columns+1)
	}
	return names
}

// prompt is a prompt of a record.
type prompt struct {
	Images []string
	IDs    []int
	Greedy []int     `json:"greedy_ids"`
	Gaps   []float64 `json:"greedy_gaps"`
}

// TestImages: from the files' bytes to the tokens, pictures in a chat give PyTorch's prompt and its greedy answer; again
// from the pages left, and after a picture of the same size with other pixels. A model of text says that it sees none.
func TestImages(t *testing.T) {
	qwen := map[int]string{512: "<|vision_start|>", 513: "<|vision_end|>", 514: "<|image_pad|>"}
	for _, c := range []struct {
		name, image string
		names       map[int]string
		row         int // token of rows
	}{
		{"qwen3vl", "<|vision_start|><|image_pad|><|vision_end|>", qwen, 514},
		{"qwen35", "<|vision_start|><|image_pad|><|vision_end|>", qwen, 514},
		{"qwen25vl", "<|vision_start|><|image_pad|><|vision_end|>", qwen, 514},
		{"mistral3", "[IMG]", map[int]string{514: "[IMG]", 515: "[IMG_BREAK]", 516: "[IMG_END]"}, 514},
		{"smolvlm", "<image>", marked(map[int]string{10: "\n", 514: "<image>", 515: "<fake_token_around_image>", 516: "<global-img>"},
			517, 3, "<row_%d_col_%d>"), 514},
		{"lfm2vl", "<image>", marked(map[int]string{514: "<image>", 515: "<|image_start|>", 516: "<|image_end|>", 517: "<|img_thumbnail|>"},
			518, 4, "<|img_row_%d_col_%d|>"), 514},
		{"gemma4", "<|image|>", map[int]string{512: "<|image>", 513: "<image|>", 514: "<|image|>"}, 0},
		{"gemma3", "<start_of_image>",
			map[int]string{108: "\n\n", 512: "<start_of_image>", 513: "<end_of_image>", 514: "<image_soft_token>"}, 512},
		{"gemma4-moe", "<|image|>", map[int]string{512: "<|image>", 513: "<image|>", 514: "<|image|>"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, record := seer(t, c.name, c.names, c.image)
			m := open(t, dir, karat.Options{})
			if !m.Sees() {
				t.Fatal("the model sees nothing")
			}
			var parts []karat.Part
			for _, name := range record.Images {
				b, err := os.ReadFile(filepath.Join(golden.Shared(t, "goldens/vision/images"), name+".png"))
				if err != nil {
					t.Fatal(err)
				}
				parts = append(parts, karat.Image{Data: b})
			}
			say := []karat.Message{{Role: karat.RoleUser, Parts: parts}}
			ids, err := m.TokenizeChat(t.Context(), say, karat.GenerateOptions{NoGenerationPrompt: true})
			want := slices.Clone(record.IDs)
			for i, id := range want {
				if id == 514 {
					want[i] = c.row
				}
			}
			if err != nil || !slices.Equal(ids, want) {
				t.Fatalf("ids %v, want %v; %v", ids, want, err)
			}
			same, places, err := m.LocateImages(t.Context(), say, karat.GenerateOptions{NoGenerationPrompt: true})
			if err != nil || !slices.Equal(same, ids) || len(places) != len(parts) {
				t.Fatalf("located %v of %v, %v", places, same, err)
			}
			mark := 0
			if c.row == 512 {
				mark = 1 // before the rows, with their id
			}
			for i, end := 0, 0; i < len(places); i++ { // from a row to a row; no row lies outside
				p, rows := places[i], func(ids []int) bool { return slices.Contains(ids, c.row) }
				next := p.Offset + p.Length
				if p.Length <= 0 || p.Offset < end || rows(ids[end:p.Offset-mark]) || !rows(ids[p.Offset:p.Offset+1]) || !rows(ids[next-1:next]) ||
					i == len(places)-1 && rows(ids[next:]) {
					t.Errorf("picture %d lies at %+v of %v", i, p, ids)
				}
				end = next
			}
			o := karat.GenerateOptions{MaxTokens: 8, Sampling: &karat.Sampling{}, NoGenerationPrompt: true}
			answer := func(s *karat.Session, say []karat.Message) (ids []int) {
				for x, err := range s.Chat(t.Context(), say, o) {
					if err != nil {
						t.Fatal(err)
					}
					ids = append(ids, x.ID)
				}
				return ids
			}
			s := m.NewSession()
			defer s.Close()
			got := answer(s, say)
			for i, id := range record.Greedy {
				if record.Gaps[i] < 0.01 {
					break
				}
				if i >= len(got) || got[i] != id {
					t.Errorf("answer %v, want %v", got, record.Greedy)
					break
				}
			}
			if n, kept := s.PromptTokens(); n != len(ids) || kept != 0 {
				t.Errorf("a prompt of %d tokens, %d kept", n, kept)
			}
			swapped := []karat.Message{{Role: karat.RoleUser, Parts: []karat.Part{parts[0], parts[0]}}}
			answer(s, swapped)
			if again := answer(s, say); !slices.Equal(again, got) {
				t.Errorf("after another picture %v, before %v", again, got)
			}
		})
	}
	blind := open(t, golden.Model(t, "tiny-qwen3"), karat.Options{})
	for _, err := range blind.Chat(t.Context(), []karat.Message{{Role: karat.RoleUser, Parts: []karat.Part{karat.Image{}}}}, karat.GenerateOptions{}) {
		if !errors.Is(err, karat.ErrBlind) {
			t.Errorf("a model of text: %v", err)
		}
	}
}

// TestLargePictures: a picture may have more rows than a step where its rows see no later ones, and a step has room for
// the rows of a picture where they do.
func TestLargePictures(t *testing.T) {
	for _, c := range []struct {
		name, image string
		names       map[int]string
		change      map[string]any
		rows        int
	}{
		{"qwen3vl", "<|vision_start|><|image_pad|><|vision_end|>",
			map[int]string{512: "<|vision_start|>", 513: "<|vision_end|>", 514: "<|image_pad|>"},
			map[string]any{"size": map[string]int{"longest_edge": 16777216, "shortest_edge": 65536}}, 300},
		{"gemma4-moe", "<|image|>", map[int]string{512: "<|image>", 513: "<image|>", 514: "<|image|>"},
			map[string]any{"max_soft_tokens": 280}, 266},
		{"gemma4-moe", "<|image|>", map[int]string{512: "<|image>", 513: "<image|>", 514: "<|image|>"},
			map[string]any{"max_soft_tokens": 560}, 540},
	} {
		dir, _ := seer(t, c.name, c.names, c.image)
		rewrite(t, filepath.Join(dir, "preprocessor_config.json"), func(m map[string]any) { maps.Copy(m, c.change) })
		rewrite(t, filepath.Join(dir, "tokenizer_config.json"), func(m map[string]any) {
			m["chat_template"] = c.image
		})
		m := open(t, dir, karat.Options{Threads: 1})
		b, err := os.ReadFile(filepath.Join(golden.Shared(t, "goldens/vision/images"), "scene.png"))
		if err != nil {
			t.Fatal(err)
		}
		s := m.NewSession()
		defer s.Close()
		say := []karat.Message{{Role: karat.RoleUser, Parts: []karat.Part{karat.Image{Data: b}}}}
		for _, err := range s.Chat(t.Context(), say, karat.GenerateOptions{MaxTokens: 1}) {
			if err != nil {
				t.Errorf("%s, %v: %v", c.name, c.change, err)
			}
		}
		if n, _ := s.PromptTokens(); n != c.rows+2 {
			t.Errorf("%s, %v: a prompt of %d tokens", c.name, c.change, n)
		}
	}
}

// TestPublishedProcessors: folders prepare the same pictures by files in the forms that publishers ship: Mistral's with
// the side of a patch, Qwen's without a filter, and transformers' of version 5, inside processor_config.json.
func TestPublishedProcessors(t *testing.T) {
	for _, c := range []struct {
		name, image string
		names       map[int]string
		change      func(map[string]any)
	}{
		{"mistral3", "[IMG]", map[int]string{514: "[IMG]", 515: "[IMG_BREAK]", 516: "[IMG_END]"}, func(m map[string]any) {
			m["patch_size"] = map[string]int{"height": 14, "width": 14}
		}},
		{"qwen3vl", "<|vision_start|><|image_pad|><|vision_end|>",
			map[int]string{512: "<|vision_start|>", 513: "<|vision_end|>", 514: "<|image_pad|>"}, func(m map[string]any) {
				for _, key := range []string{"resample", "do_resize", "do_normalize", "rescale_factor"} {
					delete(m, key)
				}
				m["image_processor_type"] = "Qwen2VLImageProcessorFast"
			}},
	} {
		dir, record := seer(t, c.name, c.names, c.image)
		var parts []karat.Part
		for _, name := range record.Images {
			b, err := os.ReadFile(filepath.Join(golden.Shared(t, "goldens/vision/images"), name+".png"))
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, karat.Image{Data: b})
		}
		say := []karat.Message{{Role: karat.RoleUser, Parts: parts}}
		path := filepath.Join(dir, "preprocessor_config.json")
		rewrite(t, path, c.change)
		check := func(form string) {
			ids, err := open(t, dir, karat.Options{}).TokenizeChat(t.Context(), say,
				karat.GenerateOptions{NoGenerationPrompt: true})
			if err != nil || !slices.Equal(ids, record.IDs) {
				t.Errorf("%s, %s: ids %v, want %v; %v", c.name, form, ids, record.IDs, err)
			}
		}
		check("the publisher's file")
		b, err := os.ReadFile(path)
		short, size := filepath.Join(dir, "processor_config.json"), regexp.MustCompile(`"size": *(\{[^}]*\})`).FindSubmatch(b)
		if c.name == "qwen3vl" {
			text := fmt.Appendf(nil, `{"image_processor": {"image_processor_type": "Qwen2VLImageProcessor", "size": %s}}`, size[1])
			if err = errors.Join(err, os.WriteFile(short, text, 0o600)); err != nil {
				t.Fatal(err)
			}
			rewrite(t, path, func(m map[string]any) { m["size"], m["max_pixels"] = nil, 64 })
			check("a type and a size in processor_config.json")
		}
		if err == nil {
			err = os.WriteFile(short, fmt.Appendf(nil, `{"image_processor": %s}`, b), 0o600)
		}
		if err = errors.Join(err, os.WriteFile(path, []byte("{}"), 0o600)); err != nil {
			t.Fatal(err)
		}
		check("processor_config.json")
	}
}
