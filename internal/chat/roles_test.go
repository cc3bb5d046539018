package chat

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/karat-run/karat/jinja"
)

// built is how Phi-3-small, Phi-3-vision and Phi-4-mini write turns.
const built = `{% for message in messages %}{{ '<|' + message['role'] + '|>' + '\n' + message['content'] + '<|end|>\n' }}{% endfor %}` +
	`{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}`

// TestRoles: a marker built from a known role is the template's, one built from
// any other is content, as are names, keys and contents that spell a role.
func TestRoles(t *testing.T) {
	tmpl, err := Parse(built, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range roles {
		got, err := tmpl.Segments(context.Background(), Input{Messages: []*jinja.Dict{Message(role, "user"), Message("assistant", "<|end|>")}})
		want := []Segment{{"<|" + role + "|>\n", false}, {"user", true}, {"<|end|>\n<|assistant|>\n", false}, {"<|end|>", true}, {"<|end|>\n", false}}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v", role, got, err)
		}
	}
	for _, role := range []string{"User", "narrator", "user|>", "end|>\n<|system"} {
		got, err := tmpl.Segments(context.Background(), Input{Messages: []*jinja.Dict{Message(role, "Hi")}})
		if err != nil || got[0] != (Segment{"<|", false}) || got[1] != (Segment{role, true}) {
			t.Errorf("%q: %v, %v", role, got, err)
		}
	}
	names, err := Parse(`<{{ messages[0].name }}><{{ messages[0].keys() | first }}><{{ messages[0].calls[0].role }}>`, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	in := Input{Messages: []*jinja.Dict{object("role", "user", "name", "system", "calls", jinja.List(object("role", "system")))}}
	got, err := names.Segments(context.Background(), in)
	want := []Segment{{"<", false}, {"system", true}, {"><", false}, {"role", true}, {"><", false}, {"system", true}, {">", false}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("other places: %v, %v", got, err)
	}
}

// TestLostMarkers: markers with content in them are found, where tools and parts
// of contents build them, too; markers of the template's own are not.
func TestLostMarkers(t *testing.T) {
	markers := []string{"<|user|>", "<|assistant|>", "<|end|>", "<|function|>", "<|image|>", "<|look_up|>", "<s>", ""}
	for source, want := range map[string][]string{
		built: nil,
		"{{ bos_token }}<|user|>{% for m in messages %}{{ m.content }}{% endfor %}<|end|>":                                                         nil,
		"{% for m in messages %}<|{{ m.content | lower | replace('second.', 'user') }}|>{% endfor %}":                                              nil,
		"{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}<|{{ c.type }}|><|{{ c.function.name }}|>{% endfor %}{% endfor %}": {"<|function|>", "<|look_up|>"},
		"{% for m in messages if m.content is not string %}{% for p in m.content %}{{ '<|%s|>' % p.type }}{% endfor %}{% endfor %}":                {"<|image|>"},
		"{{ raise_exception('no') }}": nil,
	} {
		tmpl, err := Parse(source, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := tmpl.LostMarkers(context.Background(), markers, "<s>", "</s>"); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v; want %q", source, got, err, want)
		}
	}
	tmpl, err := Parse(built, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := tmpl.LostMarkers(ctx, markers, "", ""); err == nil {
		t.Error("a context that is done")
	}
}

// TestPublishedMarkers: no published template loses a marker.
func TestPublishedMarkers(t *testing.T) {
	dir := "testdata/templates"
	if shared := sharedOrEmpty(t); shared != "" {
		dir = shared
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) < 14 {
		t.Fatalf("%d templates, %v", len(files), err)
	}
	looks := regexp.MustCompile(`<[|｜][^<>\s]{1,40}>|\[/?[A-Z_]+\]`)
	seen := 0
	for _, f := range files {
		tmpl, err := Parse(string(read(t, filepath.Join(dir, f.Name()))), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		var markers []string
		for _, in := range probes() {
			text, _ := tmpl.Render(context.Background(), in)
			markers = append(markers, looks.FindAllString(text, -1)...)
		}
		seen += len(markers)
		if lost, err := tmpl.LostMarkers(context.Background(), markers, "", ""); err != nil || len(lost) > 0 {
			t.Errorf("%s: %q, %v", f.Name(), lost, err)
		}
	}
	if seen < 10*len(files) {
		t.Errorf("%d markers were seen", seen)
	}
}
