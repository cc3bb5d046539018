package syntax

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// written returns a call of the tool f with the argument x as a model writes it, without its first mark, and that mark.
func (s *Syntax) written(x string) (begin, call string) {
	y := &s.Style
	quoted, _ := json.Marshal(x)
	single := "'" + strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(x) + "'"
	arguments := map[Form]string{Object: `{"x": ` + string(quoted) + `}`, Quoted: "{x:" + Quote + x + Quote + "}", Python: "x=" + single,
		Tagged: y.Key + "x" + y.Value + x + y.End, Nested: y.Key + "x>" + x + y.End + "x>"}
	arguments[Keyed], arguments[Named] = arguments[Object], arguments[Object]
	m := Marks{}
	if len(s.Calls) > 0 {
		m = s.Calls[0]
	}
	if y.Each {
		return y.First + m.Begin, y.Name + "f" + y.Then + arguments[y.Form] + y.After + m.End + y.Last
	}
	return m.Begin, y.First + y.Name + "f" + y.Then + arguments[y.Form] + y.After + y.Last + m.End
}

// readAll reads an answer in pieces of a size.
func readAll(s Syntax, answer string, size int, opened, cut bool) (text, reasoning, called string) {
	p := s.NewParser(Tools{"f": {"x": {"string"}}, "function": {"a": {"string"}}}, opened)
	var all []Event
	for rest := answer; rest != ""; {
		n := min(size, len(rest))
		all = append(all, p.Write(rest[:n])...)
		rest = rest[n:]
	}
	if cut {
		all = append(all, p.Cut()...)
	} else {
		all = append(all, p.End()...)
	}
	for _, e := range all {
		text, reasoning = text+e.Text, reasoning+e.Reasoning
		for _, c := range e.Calls {
			called += c.Name + c.Arguments
		}
	}
	return text, reasoning, called
}

// TestAnswers: in each syntax a whole call is found wherever it stands and whatever its value holds, and a cut leaves
// no mark.
func TestAnswers(t *testing.T) {
	for _, k := range known().Calls {
		s := k.Syntax
		y := &s.Style
		for _, r := range known().Reasoning {
			if s.Open == "" && r.Open == "<think>" {
				s.Open, s.Close = r.Open, r.Close
			}
		}
		end := ""
		if len(s.Calls) > 0 {
			end = s.Calls[0].End
		}
		whole := func(x string) string {
			b, _ := json.Marshal(map[string]string{"x": x})
			return "f" + string(b)
		}
		begin, call := s.written("a")
		before := "Ok. "
		if y.Alone || s.Bare {
			before = ""
		}
		type row struct{ name, answer, text, reasoning, called string }
		rows := []row{{"a call", before + begin + call, strings.TrimSpace(before), "", whole("a")}}
		if begin != "" && !strings.HasPrefix(begin, ">>>") {
			rows = append(rows, row{"a call in reasoning", s.Open + "Hm.\n" + begin + call, "", "Hm.", whole("a")},
				row{"and its end", s.Open + "Hm.\n" + begin + call + "\n" + s.Close + "\n\n", "", "Hm.", whole("a")},
				row{"no end of the call", before + begin + strings.TrimSuffix(call, end), strings.TrimSpace(before), "", whole("a")},
				row{"a mark in reasoning", s.Open + "Write " + begin + " first." + s.Close + "Ok.", "Ok.", "Write " + begin + " first.", ""})
		}
		if begin != "" && begin != "<function=" && s.Header == "" && !strings.HasPrefix(begin, ">>>") {
			rows = append(rows, row{"no opener", before + call, strings.TrimSpace(before), "", whole("a")})
		}
		for _, x := range []string{end, strings.TrimSpace(y.End), strings.TrimSpace(y.After), "one\n" + strings.TrimSpace(y.End) + "\ntwo", "A call ends with " + end + " on its own.",
			begin + call, "See:\n" + begin + call + "\nand more.", strings.TrimSpace(begin) + " begins it", end + "\n" + end} {
			if y.Form == Nested && x != end || strings.TrimSpace(x) == "" || x == "}" || strings.Contains(x, "'") || y.Form == Quoted && strings.Contains(x, Quote) {
				continue // which nobody can tell from the end of a value
			}
			_, call := s.written(x)
			rows = append(rows, row{fmt.Sprintf("a value %q", x), before + begin + call, strings.TrimSpace(before), "", whole(x)})
		}
		for _, r := range rows {
			answer := strings.TrimPrefix(r.answer, s.Lead)
			for _, size := range []int{1, 7, len(answer)} {
				text, reasoning, called := readAll(s, answer, size, false, false)
				if r.name == "a mark in reasoning" {
					reasoning, r.reasoning = "", ""
				}
				if text != r.text || reasoning != r.reasoning || called != r.called {
					t.Errorf("%v: %s, in pieces of %d: %q: text %q, reasoning %q, calls %s, want %q, %q, %s", k.If, r.name, size, answer, text, reasoning, called, r.text, r.reasoning, r.called)
					break
				}
			}
			if strings.Contains(r.name, "reasoning") {
				continue
			}
			for n := range len(answer) + 1 {
				text, reasoning, called := readAll(s, answer[:n], 3, false, true)
				text2, reasoning2, called2 := readAll(s, answer[:n], len(answer), false, true)
				if text != text2 || reasoning != reasoning2 || called != called2 {
					t.Errorf("%v: %s, %q in pieces: %q, %q, %s; whole %q, %q, %s", k.If, r.name, answer[:n], text, reasoning, called, text2, reasoning2, called2)
				}
				if !strings.HasPrefix(before, strings.TrimSpace(text)) || called != "" && called != r.called {
					t.Errorf("%v: %s, cut at %q: text %q, calls %s", k.If, r.name, answer[:n], text, called)
					break
				}
			}
		}
	}
}
