package hub

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestPullUsual takes Q4_K_M of several files, says so, and finds the model by the reference without a tag.
func TestPullUsual(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		h := tiny(w)
		o := w.options()
		var notes []string
		o.Note = func(text string) { notes = append(notes, text) }
		m, err := w.store().Pull(t.Context(), "org/tiny-GGUF", o)
		if err != nil {
			t.Fatal(err)
		}
		path, err := w.store().Path(m)
		if err != nil || !strings.Contains(path, "Q4_K_M") || m.Name != "tiny" {
			t.Errorf("%s at %s: %v", m.Name, path, err)
		}
		if len(notes) != 1 || !strings.HasPrefix(notes[0], "Q4_K_M of ") || !strings.Contains(notes[0], "Q8_0") {
			t.Errorf("notes: %q", notes)
		}
		if f, err := findIn(w.store(), "hf:org/tiny-GGUF"); err != nil || f.Path != path {
			t.Errorf("%+v: %v", f, err)
		}
		h.files["other.Q4_K_M.gguf"] = file{data: noise(10, 6)}
		if tag, note := usualTagOf([]entry{{Path: "a.Q4_K_M.gguf"}, {Path: "b/a.Q4_K_M.gguf"}, {Path: "c.Q8_0.gguf"}}); tag != "" || note != "" {
			t.Errorf("of two of that type %q is taken", tag)
		}
	})
}

// TestPullUnreachable tells of each new try, once for all connections, and tries a name that nobody knows only once.
func TestPullUnreachable(t *testing.T) {
	for _, c := range []struct {
		err   error
		tries int
		want  string
	}{
		{&net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 443}, Err: errors.New("connection refused")}, attempts, "cannot reach 192.0.2.1:443, trying again (2 of 6)"},
		{&net.DNSError{Name: "hub.example.com", Err: "server misbehaving", IsTemporary: true}, attempts, "cannot reach hub.example.com, trying again (2 of 6)"},
		{&net.DNSError{Name: "hub.example.com", Err: "no such host", IsNotFound: true}, 1, "cannot reach hub.example.com: no host of that name is known, or there is no network"},
	} {
		bubble(t, func(t *testing.T, w *world) {
			o, tries := w.options(), 0
			o.adjust = func(x *http.Transport) {
				w.adjust(x)
				x.DialContext = func(context.Context, string, string) (net.Conn, error) { tries++; return nil, c.err }
			}
			var said []string
			o.Note = func(text string) { said = append(said, text) }
			start := time.Now()
			_, err := w.store().Pull(t.Context(), "org/tiny-GGUF", o)
			if err == nil || tries != c.tries || len(said) != c.tries-1 || c.tries == 1 && time.Since(start) > 0 {
				t.Fatalf("%d tries, %d notes, %v: %v", tries, len(said), time.Since(start), err)
			}
			if said = append(said, err.Error()); !slices.ContainsFunc(said, func(s string) bool { return strings.HasSuffix(s, c.want) }) {
				t.Errorf("no %q in %q", c.want, said)
			}
		})
	}
}

// TestReferenceHints names the right reference for one of another program's.
func TestReferenceHints(t *testing.T) {
	for _, s := range []string{"qwen3:0.6b", "gemma3:1b-it-qat"} {
		if _, err := ParseReference(s); err == nil || !strings.Contains(err.Error(), "oci://registry.ollama.ai/library/"+s) {
			t.Errorf("%s: %v", s, err)
		}
	}
}

// TestSharing names the other models that keep a model's files.
func TestSharing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		tiny(w)
		m, err := w.pull(reference)
		if err != nil {
			t.Fatal(err)
		}
		s := w.store()
		if names := s.Sharing(m); len(names) > 0 {
			t.Errorf("%q share with the only model", names)
		}
		if err := s.Copy(t.Context(), m.Name, "copy"); err != nil {
			t.Fatal(err)
		}
		if names := s.Sharing(m); !slices.Equal(names, []string{"copy"}) {
			t.Errorf("%q", names)
		}
	})
}
