package grammar

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// drawn returns a text of a grammar, byte by byte; false if it has not ended within some bytes. Bytes that end strings,
// lists and objects come more often than others.
func drawn(t *testing.T, g *Grammar, r *rand.Rand) (string, bool) {
	t.Helper()
	s := g.start.Load()
	var text []byte
	for len(text) < 400 {
		if s.accept && r.IntN(2) == 0 {
			return string(text), true
		}
		var all, ends []byte
		for b := range 256 {
			n, err := g.read(t.Context(), s, []byte{byte(b)})
			if err != nil {
				return "", false // too much work
			}
			if n.dead() {
				continue
			}
			if all = append(all, byte(b)); strings.IndexByte(`"]}:,0123456789`, byte(b)) >= 0 {
				ends = append(ends, byte(b))
			}
		}
		if len(all) == 0 {
			return string(text), s.accept
		}
		if len(ends) > 0 && r.IntN(4) > 0 {
			all = ends
		}
		b := all[r.IntN(len(all))]
		s, _ = g.read(t.Context(), s, []byte{b})
		text = append(text, b)
	}
	return "", false
}

// validatorOf compiles a schema, of the newest draft, or of the one in which items is an array.
func validatorOf(text string) (*jsonschema.Schema, error) {
	schema, err := jsonschema.UnmarshalJSON(strings.NewReader(strings.ReplaceAll(text, `\\u00e9`, "é"))) // Go's regexp has no \u
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if strings.Contains(text, `"items":[`) {
		c.DefaultDraft(jsonschema.Draft7)
	}
	if err := c.AddResource("schema.json", schema); err != nil {
		return nil, err
	}
	return c.Compile("schema.json")
}

// TestEveryTextValidates: what a grammar lets through is valid by a validator that knows nothing of grammars, for each
// feature of schemas.
func TestEveryTextValidates(t *testing.T) {
	checked := 0
	for i, x := range features {
		g, err := JSONSchema([]byte(x.schema))
		if err != nil || strings.Contains(x.schema, "nullable") { // no text fits, or the keyword is OpenAPI's alone
			continue
		}
		validator, err := validatorOf(x.schema)
		if err != nil {
			t.Errorf("%s: %v", x.schema, err)
			continue
		}
		r := rand.New(rand.NewPCG(uint64(i), 5))
		for range 12 {
			text, ok := drawn(t, g, r)
			if !ok {
				continue
			}
			value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
			if err == nil {
				err = validator.Validate(value)
			}
			if err != nil {
				t.Errorf("%s: %q: %v", x.schema, text, err)
			}
			checked++
		}
	}
	if checked < 4*len(features) {
		t.Errorf("only %d texts of %d schemas", checked, len(features))
	}
}
