package grammar

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// TestBytes: what a grammar says that it takes is about what it takes, before texts are held to it and after.
func TestBytes(t *testing.T) {
	v := vocabulary(3000)
	held := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	var properties strings.Builder
	for i := range 1500 {
		fmt.Fprintf(&properties, `,"p%d":{"type":"string","pattern":"^[a-f]{%d}x"}`, i, i%40+1)
	}
	for name, make := range map[string]func() (*Grammar, error){
		"properties": func() (*Grammar, error) {
			return JSONSchema([]byte(`{"type":"object","properties":{` + properties.String()[1:] + `}}`))
		},
		"counts": func() (*Grammar, error) { return Regexp(`([a-z]{1,9} ?(x|y){0,30}){3,30}\.`) },
		"rules": func() (*Grammar, error) {
			return GBNF("root ::= a*\na ::= \"(\" (a | [^()]{0,30}) \")\" | \"[\" a \"]\" | \"{\" a a \"}\"")
		},
	} {
		before := held()
		g, err := make()
		if err != nil {
			t.Fatal(err)
		}
		for _, steps := range []int{0, 300} {
			for seed := range uint64(min(steps, 8)) {
				walk(t, g, v, seed, steps, nil)
			}
			took, said := held()-before, g.Bytes()
			v.mu.Lock()
			for _, f := range v.young {
				took -= f.bytes()
			}
			v.mu.Unlock()
			t.Logf("%s, %d steps: %d bytes, %d said", name, steps, took, said)
			if took > 2*said+1<<16 || said > 3*took+1<<16 {
				t.Errorf("%s, after %d tokens: it takes %d bytes, and says %d", name, steps, took, said)
			}
		}
		runtime.KeepAlive(g)
		v.young = map[key]*candidates{}
		v.bytes = 0
	}
}
