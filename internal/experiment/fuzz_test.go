package experiment

import "testing"

// FuzzSpec: no text makes a spec, a question, positions or cells panic; what is taken holds what check wants.
func FuzzSpec(f *testing.F) {
	f.Add("sites = [\"blk.*.out\"]\n[[stimuli]]\nclean = \"a\"\ncorrupted = \"b\"\ntarget = \"c\"")
	f.Add("{\"context\": \"a\", \"choices\": [\" b\"]}")
	f.Add("1-3,last,text:a+")
	f.Add("{\"model_fingerprint\":\"a\"}\n{\"pair\":0,\"node\":\"x\",\"kl\":\"NaN\"}")
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := ParseSpec(text); err == nil && (s.check() != nil || len(s.Sites) == 0 || s.Hash() == "") {
			t.Errorf("%+v", s)
		}
		if q, err := ParseQuestion([]byte(text)); err == nil && q.Text == "" && q.Continuation == "" && len(q.Choices) == 0 {
			t.Errorf("%+v", q)
		}
		if p, err := ParsePositions(text); err == nil {
			if at, _, err := p.Of(&Prompt{IDs: []int{1, 2, 3}, Tokens: []string{"a", "b", "c"}}); err == nil && len(at) > 3 {
				t.Errorf("%q: %v", text, at)
			}
		}
		_, _, _ = parseCells([]byte(text))
	})
}
