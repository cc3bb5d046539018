package server

import (
	"bytes"
	"encoding/json"
	"testing"
)

// FuzzElements: the parts of a list or an object are those that Go's decoder finds, and they are counted right.
func FuzzElements(f *testing.F) {
	for _, x := range []string{`[]`, "[ \n]", `{}`, `[1 , "a\"]",[2,{"x":"}"}] ,null,-1e5,true]`, "{ \"a\" :\t1 ,\"\\u0062,\":{\"c\":[\"\\\\\"]}, \"\":[]}", `[[[]],[{}],""]`, `{"a":1,"a":2}`} {
		f.Add([]byte(x))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if text = bytes.TrimSpace(text); !json.Valid(text) || text[0] != '[' && text[0] != '{' {
			return
		}
		d := json.NewDecoder(bytes.NewReader(text))
		d.Token()
		n := 0
		elements(text, func(name, value json.RawMessage) bool {
			if text[0] == '{' {
				want, _ := d.Token()
				if got, ok := decodeAs[string](name); !ok || got != want {
					t.Fatalf("%q: name %q, want %q", text, name, want)
				}
			}
			var want json.RawMessage
			if err := d.Decode(&want); err != nil || !bytes.Equal(want, value) {
				t.Fatalf("%q: element %d is %q, want %q, %v", text, n, value, want, err)
			}
			n++
			return true
		})
		if c := countValues(text); d.More() || n != count(text) || c.values < n || c.depth < 1 {
			t.Fatalf("%q: %d elements of %d, %+v", text, n, count(text), c)
		}
	})
}
