package syntax

import (
	_ "embed"
	"encoding/json"
	"sync"
)

// knownJSON lists how the models of a template write calls and reasoning, by the marks in the template. The first row
// all of whose marks are there counts.
//
//go:embed known.json
var knownJSON []byte

// knownSyntaxes are the rows of knownJSON.
type knownSyntaxes struct {
	Styles map[string]Style // that several rows have
	Calls  []struct {
		If     []string // marks in the template
		As     string   // one of Styles, in place of the syntax's own
		Syntax Syntax
	}
	Reasoning []struct {
		If          string // a mark in the template
		Open, Close string
		Frame       []string
	}
}

var known = sync.OnceValue(func() (k knownSyntaxes) {
	if err := json.Unmarshal(knownJSON, &k); err != nil {
		panic(err) // a mistake in known.json
	}
	for i := range k.Calls {
		if c := &k.Calls[i]; c.As != "" {
			c.Syntax.Style = k.Styles[c.As]
		}
	}
	return k
})
