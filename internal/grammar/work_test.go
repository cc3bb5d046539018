package grammar

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
)

// list returns n texts with a separator.
func list(n int, separator string, text func(i int) string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = text(i)
	}
	return strings.Join(all, separator)
}

// numbered returns n texts of a format with their numbers.
func numbered(n int, format string) string {
	return list(n, ",", func(i int) string { return fmt.Sprintf(format, i) })
}

// heavy are sources whose size grows with n, made so that a careless algorithm takes the square of it or more. Where
// place is not empty, the large one is refused as too complex there.
var heavy = []struct {
	name, place string
	n           int
	make        func(n int) Form
}{
	{"types", "", 30, func(n int) Form {
		return schemaForm(`{"allOf":[` + list(6, ",", func(i int) string { return `{"type":[` + list(n+i, ",", func(int) string { return `"string"` }) + `]}` }) + `]}`)
	}},
	{"pairs of oneOf", "", 40, func(n int) Form {
		return schemaForm(`{"oneOf":[` + list(n, ",", func(i int) string { return `{"enum":[` + numbered(20, fmt.Sprint(i)+`.%d5`) + `]}` }) + `]}`)
	}},
	{"allOf of properties", "", 1200, func(n int) Form { return schemaForm(`{"allOf":[` + numbered(n, `{"properties":{"a%d":true}}`) + `]}`) }},
	{"allOf of required", "", 1200, func(n int) Form { return schemaForm(`{"allOf":[` + numbered(n, `{"required":["a%d"]}`) + `]}`) }},
	{"required twice", "", 1200, func(n int) Form {
		return schemaForm(`{"allOf":[{"required":[` + numbered(n, `"a%d"`) + `]},{"required":[` + numbered(n, `"b%d"`) + `]}]}`)
	}},
	{"propertyNames", "", 1200, func(n int) Form {
		return schemaForm(`{"propertyNames":{"pattern":"^(a|b)*[a-c]{1,9}[0-9]*$"},"properties":{` + numbered(n, `"ab%d":true`) + `},"required":[` + numbered(n, `"bc%d"`) + `]}`)
	}},
	{"patternProperties", "", 1200, func(n int) Form {
		return schemaForm(`{"patternProperties":{"^a.*[0-9]":true,"b":{"type":"null"}},"properties":{` + numbered(n, `"a%d":true`) + `}}`)
	}},
	{"patterns", "#/patternProperties", 400, func(n int) Form { return schemaForm(`{"patternProperties":{` + numbered(n, `"a%d":true`) + `}}`) }},
	{"merges of merges", "#", 40, func(n int) Form {
		return schemaForm(`{"$ref":"#/$defs/a0","$defs":{` + list(n, ",", func(i int) string {
			return fmt.Sprintf(`"a%d":{"allOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]}`, i, i+1, i+1)
		}) + fmt.Sprintf(`,"a%d":{"properties":{%s}}}}`, n, numbered(500, `"p%d":true`)))
	}},
	{"equal enums", "", 2000, func(n int) Form {
		return schemaForm(`{"$defs":{"e":{"enum":[` + numbered(4000, `%d`) + `]}},"allOf":[` + numbered(n, `{"title":"%d","$ref":"#/$defs/e"}`) + `]}`)
	}},
	{"enums in turn", "#/", 2000, func(n int) Form {
		return schemaForm(`{"$defs":{"e0":{"enum":[` + numbered(4000, `%d`) + `]},"e1":{"enum":[` + numbered(4001, `%d`) + `]}},"allOf":[` + list(n, ",", func(i int) string { return fmt.Sprintf(`{"$ref":"#/$defs/e%d"}`, i%2) }) + `]}`)
	}},
	{"patterns with lengths", "#/prefixItems/", 400, func(n int) Form {
		return schemaForm(`{"prefixItems":[` + list(n, ",", func(i int) string {
			return fmt.Sprintf(`{"type":"string","pattern":"^(a|b)*a(a|b){%d}x","maxLength":%d}`, i%20, 2*i+30)
		}) + `]}`)
	}},
	{"a long constant", "#", 300000, func(n int) Form { return schemaForm(`{"const":"` + strings.Repeat("x", n) + `"}`) }},
	{"comments of Lark", "", 50000, func(n int) Form { return Form{Lark: "start: \"a\"\n" + strings.Repeat("//\n", n)} }},
	{"imports of Lark", "", 4000, func(n int) Form {
		return Form{Lark: list(n, "\n", func(i int) string { return fmt.Sprintf("%%import common.NUMBER -> A%d", i) }) + "\nstart: " + list(n, "|", func(i int) string { return fmt.Sprintf("A%d", i) })}
	}},
	{"rules of GBNF", "", 2000, func(n int) Form {
		return Form{GBNF: "root ::= " + list(n, " ", func(i int) string { return fmt.Sprintf("r%d", i) }) + list(n, "", func(i int) string { return fmt.Sprintf("\nr%d ::= [a-z]", i) })}
	}},
	{"groups of GBNF", "", 30000, func(n int) Form { return Form{GBNF: "root ::= " + strings.Repeat(`("a" | [b-é]) `, n/2)} }},
	{"Unicode classes", "the source", 5000, func(n int) Form { return Form{Pattern: strings.Repeat(`\pL\d`, n)} }},
	{"ranges in any case", "the source", 400, func(n int) Form { return Form{Pattern: strings.Repeat("(?i:[a-\U0001ffff])", n)} }},
	{"classes of a text", "", 2000, func(n int) Form { return Form{Pattern: strings.Repeat(`[^\d\s]x`, n)} }},
}

func schemaForm(text string) Form { return Form{Schema: []byte(text)} }

// TestCompileIsBounded: twice the source takes at most some three times the steps, or is refused as too complex, by an
// error that names the place. What is allocated for it is bounded as well.
func TestCompileIsBounded(t *testing.T) {
	for _, x := range heavy {
		steps := func(n int) (int, error) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			f := x.make(n)
			g, err := f.Compile(t.Context(), nil)
			runtime.ReadMemStats(&after)
			if n := after.TotalAlloc - before.TotalAlloc; n > 400<<20 {
				t.Errorf("%s: %d bytes were allocated", x.name, n)
			}
			if err != nil {
				return maxCompile, err
			}
			return maxCompile - g.terms.fuel, nil
		}
		once, err := steps(x.n)
		if err != nil && x.place == "" {
			t.Errorf("%s: %v", x.name, err)
			continue
		}
		twice, err := steps(2 * x.n)
		_, tooMuch := errors.AsType[errTooMuch](err)
		switch {
		case x.place == "" && (err != nil || twice > 3*once && (x.name != "pairs of oneOf" || twice > 5*once)):
			t.Errorf("%s: %d steps, of twice as much %d, %v", x.name, once, twice, err)
		case x.place != "" && !strings.Contains(fmt.Sprint(err), x.place), x.place != "" && !tooMuch && !strings.Contains(err.Error(), "more than"):
			t.Errorf("%s: %.200v, want too complex at %s", x.name, err, x.place)
		}
	}
}

// TestCompileEnds: work ends with its context, and the same source takes the same steps.
func TestCompileEnds(t *testing.T) {
	f := schemaForm(`{"patternProperties":{` + numbered(60, `"^a%d":true`) + `}}`)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := f.Compile(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	var fuel [2]int
	for i := range fuel {
		g, err := f.Compile(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		fuel[i] = g.terms.fuel
	}
	if fuel[0] != fuel[1] {
		t.Errorf("%d and %d steps are left", fuel[0], fuel[1])
	}
}

// TestRoomHolds: the bytes of a room are a bound while texts are held to grammars, not only when they begin. What was
// forgotten goes on, and is counted as long as somebody has it.
func TestRoomHolds(t *testing.T) {
	const most = 48 << 20
	v, room := vocabulary(1000), NewRoom(most)
	var all []*Matcher
	for i := range 3 {
		f := Form{Pattern: fmt.Sprintf(`(.*[ab%d].{90}){1,9}|(.*[b-d].{91}){1,9}|(.*[c-f].{92}){1,9}`, i)}
		g, err := f.Compile(t.Context(), room.Share("a"))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, matched(t, g, v), matched(t, g, v))
	}
	r := rand.New(rand.NewPCG(1, 2))
	forgot, tokens := 0, 0
	for range 150 {
		for i, m := range all {
			gen := m.g.gen.Load()
			mask, err := m.Mask()
			if id := 'a' + r.IntN(4); err == nil && mask.Has(id) { // its bytes are the first tokens
				err = m.Accept(id)
			}
			if m.g.gen.Load() != gen {
				forgot++
			}
			if err != nil && !errors.Is(err, ErrGrammar) {
				t.Fatalf("matcher %d: %v", i, err)
			}
			tokens++
			if used := room.Used(); used > most {
				t.Fatalf("after %d tokens: %d bytes of %d", tokens, used, most)
			}
		}
	}
	if forgot == 0 {
		t.Error("nothing was forgotten: the test shows nothing")
	}
	if m := all[0]; m.Steps() == 0 || m.Steps() != 0 {
		t.Error("the work of texts is not counted, or twice")
	}
	for _, m := range all {
		m.g.Free()
	}
	runtime.KeepAlive(all)
	if room.Used() != 0 {
		t.Errorf("%d bytes are used when all is given back", room.Used())
	}
}

// TestRoomKeys: the half of a room that is shared out is so by keys, however many grammars a key has.
func TestRoomKeys(t *testing.T) {
	room := NewRoom(1000)
	var many []*Share
	for range 9 {
		many = append(many, room.Share("a"))
		many[len(many)-1].hold(55)
	}
	one := room.Share("b")
	one.hold(240)
	if one.crowded(1) || !many[0].crowded(1) {
		t.Errorf("the one of b is crowded: %v, one of nine of a: %v", one.crowded(1), many[0].crowded(1))
	}
	for _, s := range append(many, one) {
		s.Free()
	}
	if room.Used() != 0 || len(room.shares) != 0 {
		t.Errorf("%d bytes and %d keys are left", room.Used(), len(room.shares))
	}
}

// TestTurnsForget: of callers that went while they waited nothing is left.
func TestTurnsForget(t *testing.T) {
	x := turns{free: 1}
	if err := x.enter(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	gone, stop := context.WithCancel(t.Context())
	stop()
	for range 9 {
		if err := x.enter(gone, "b"); err == nil {
			t.Fatal("the turn of another was given away")
		}
	}
	if len(x.order) != 0 || len(x.waiting) != 0 {
		t.Errorf("%d places in the order, %d keys", len(x.order), len(x.waiting))
	}
	if x.leave("a"); x.enter(t.Context(), "b") != nil || x.free != 0 {
		t.Error("the turn did not come back")
	}
}

// TestForgottenGoesOn: a text is held to its grammar as before when all that it has built is forgotten after each byte.
func TestForgottenGoesOn(t *testing.T) {
	for _, x := range features {
		g, err := JSONSchema([]byte(x.schema))
		if err != nil || x.fits == "" {
			continue
		}
		for _, fit := range []bool{true, false} {
			texts := x.fits
			if !fit {
				texts = x.not
			}
			for _, text := range blanks(texts) {
				s := g.start.Load()
				for i := range len(text) {
					g.mu.Lock()
					g.terms.fuel = maxCompile
					g.forget()
					g.mu.Unlock()
					if s, err = g.read(t.Context(), s, []byte{text[i]}); err != nil {
						t.Fatal(err)
					}
				}
				if s.accept != fit {
					t.Errorf("%s: %s: fits %v", x.schema, text, s.accept)
				}
			}
		}
	}
}

// TestTurns: who asks for much waits for himself. Another key's work comes next, whatever waits before it.
func TestTurns(t *testing.T) {
	u := turns{free: 1}
	var order []string
	if err := u.enter(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	done := make(chan string)
	queue := func(key string, ctx context.Context) {
		u.mu.Lock()
		n := len(u.waiting[key])
		u.mu.Unlock()
		go func() {
			if u.enter(ctx, key) == nil {
				done <- key
				return
			}
			done <- "gone"
		}()
		for waits := n; waits == n; runtime.Gosched() {
			u.mu.Lock()
			waits = len(u.waiting[key])
			u.mu.Unlock()
		}
	}
	for range 3 {
		queue("a", t.Context())
	}
	gone, leave := context.WithCancel(t.Context())
	queue("c", gone)
	queue("b", t.Context())
	leave()
	if key := <-done; key != "gone" {
		t.Errorf("%s has a turn that nobody gave", key)
	}
	u.leave("a")
	for range 4 {
		key := <-done
		order = append(order, key)
		u.leave(key)
	}
	if got := strings.Join(order, ""); got != "abaa" && got != "baaa" {
		t.Errorf("the turns are %s, want b among the first two", got)
	}
	if u.free != 1 || len(u.busy)+len(u.waiting)+len(u.order) > 0 {
		t.Errorf("%+v is left", &u)
	}
}
