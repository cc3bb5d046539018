package chat

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/jinja"
)

// frozen is the clock of the recorded cases.
func frozen() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// A conversation is an entry of conversations.json.
type conversation struct {
	Name      string          `json:"name"`
	Messages  json.RawMessage `json:"messages"`
	Tools     json.RawMessage `json:"tools"`
	Documents json.RawMessage `json:"documents"`
	Generate  bool            `json:"add_generation_prompt"`
	BOS       string          `json:"bos_token"`
	EOS       string          `json:"eos_token"`
	Extra     json.RawMessage `json:"extra"`
}

// A recorded case is what transformers made of a template and a conversation.
type recorded struct {
	Template     string  `json:"template"`
	Conversation string  `json:"conversation"`
	Render       *string `json:"render"`
	Error        *string `json:"error"`
	Fails        bool    `json:"fails"`
}

func decode(t testing.TB, data []byte) jinja.Value {
	t.Helper()
	v, err := jinja.DecodeJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func decodeList(t testing.TB, data []byte) []jinja.Value {
	t.Helper()
	if data == nil {
		return nil
	}
	items, ok := jinja.Items(decode(t, data))
	if !ok {
		t.Fatalf("not a list: %s", data)
	}
	return items
}

func (c *conversation) input(t testing.TB) Input {
	t.Helper()
	messages, err := parseMessages(c.Messages)
	if err != nil {
		t.Fatal(err)
	}
	in := Input{
		Messages: messages, Tools: decodeList(t, c.Tools), Documents: decodeList(t, c.Documents),
		AddGenerationPrompt: c.Generate, BOSToken: c.BOS, EOSToken: c.EOS, Now: frozen,
	}
	if c.Extra != nil {
		in.Args = decode(t, c.Extra).(*jinja.Dict)
	}
	return in
}

// read reads a file, unpacking it if it ends in .gz.
func read(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(path, ".gz") {
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if b, err = io.ReadAll(z); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func readLines[T any](t testing.TB, path string) []T {
	t.Helper()
	var all []T
	sc := bufio.NewScanner(bytes.NewReader(read(t, path)))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var x T
		if err := json.Unmarshal(sc.Bytes(), &x); err != nil {
			t.Fatal(err)
		}
		all = append(all, x)
	}
	return all
}

func conversations(t testing.TB, path string) map[string]Input {
	t.Helper()
	var all []conversation
	if err := json.Unmarshal(read(t, path), &all); err != nil {
		t.Fatal(err)
	}
	inputs := map[string]Input{}
	for _, c := range all {
		inputs[c.Name] = c.input(t)
	}
	return inputs
}

// templates gives each template of a folder, as the function of a name.
func templates(t testing.TB, dir string) func(name string) (*Template, error) {
	cache := map[string]*Template{}
	failed := map[string]error{}
	return func(name string) (*Template, error) {
		if cache[name] == nil && failed[name] == nil {
			cache[name], failed[name] = Parse(string(read(t, filepath.Join(dir, name))), Limits{})
		}
		return cache[name], failed[name]
	}
}

// A tally counts the cases that are equal to their record.
type tally struct{ rendered, raised, failed, wrong int }

func (n *tally) check(t *testing.T, c recorded, got string, err error) {
	t.Helper()
	var e *jinja.Error
	known := errors.As(err, &e)
	switch {
	case err != nil && !known:
		t.Errorf("%s, %s: an error of another type: %v", c.Template, c.Conversation, err)
	case c.Render != nil && err == nil && got == *c.Render:
		n.rendered++
	case c.Error != nil && known && e.Kind == jinja.KindRaised && e.Message == *c.Error:
		n.raised++
	case c.Fails && known && e.Kind != jinja.KindRaised:
		n.failed++
	default:
		n.wrong++
		if n.wrong < 20 {
			want, _ := json.Marshal(c)
			t.Errorf("got %q, %v\nwant %s", got, err, want)
		}
	}
}

func checkCases(t *testing.T, cases []recorded, inputs map[string]Input, template func(string) (*Template, error)) tally {
	t.Helper()
	var n tally
	for _, c := range cases {
		in, ok := inputs[c.Conversation]
		if !ok {
			t.Fatalf("no conversation %q", c.Conversation)
		}
		tmpl, err := template(c.Template)
		text := ""
		if err == nil {
			text, err = tmpl.Render(context.Background(), in)
		}
		n.check(t, c, text, err)
	}
	return n
}

// TestOwnCases renders the templates that are ours to publish.
func TestOwnCases(t *testing.T) {
	cases := readLines[recorded](t, "testdata/cases.jsonl.gz")
	n := checkCases(t, cases, conversations(t, "testdata/conversations.json"), templates(t, "testdata/templates"))
	if want := (tally{rendered: 453, raised: 19, failed: 74}); n != want {
		t.Errorf("equal: %+v, want %+v", n, want)
	}
}

// TestCases renders all published templates with all conversations, as
// transformers did.
func TestCases(t *testing.T) {
	cases := readLines[recorded](t, golden.Shared(t, "chat/cases.jsonl"))
	inputs := conversations(t, golden.Shared(t, "chat/conversations.json"))
	n := checkCases(t, cases, inputs, templates(t, golden.Shared(t, "chat/templates")))
	if want := (tally{rendered: 1807, raised: 83, failed: 333}); n != want {
		t.Errorf("equal: %+v, want %+v", n, want)
	}
	t.Logf("%d cases: %d rendered, %d raised, %d failed, all as recorded", len(cases), n.rendered, n.raised, n.failed)
}

// parseMessages makes turns of a JSON array of objects, whose keys keep their
// order and whose numbers keep their spelling.
func parseMessages(data []byte) ([]*jinja.Dict, error) {
	v, err := jinja.DecodeJSON(data)
	if err != nil {
		return nil, fmt.Errorf("chat: messages: %w", err)
	}
	items, ok := jinja.Items(v)
	if !ok {
		return nil, errors.New("messages: not an array")
	}
	messages := make([]*jinja.Dict, len(items))
	for i, x := range items {
		if messages[i], ok = x.(*jinja.Dict); !ok {
			return nil, fmt.Errorf("chat: messages: %d: not an object", i)
		}
	}
	return messages, nil
}
