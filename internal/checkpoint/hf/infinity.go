package hf

import "bytes"

// Finite makes strict JSON of Python's JSON: infinities and NaN become objects, as transformers 5 writes them.
// (Published files have "time_step_limit": [0.0, Infinity].)
func Finite(config []byte) []byte {
	var out []byte
	quoted := false
	for i := 0; i < len(config); i++ {
		switch c := config[i]; {
		case quoted && c == '\\' && i+1 < len(config):
			out = append(out, c)
			i++
		case c == '"':
			quoted = !quoted
		case !quoted:
			if word := notFinite(config[i:]); word != "" {
				out = append(out, `{"__float__":"`+word+`"}`...)
				i += len(word) - 1
				continue
			}
		}
		out = append(out, config[i])
	}
	return out
}

// notFinite returns the number of Python's JSON at the start of b, "" for none.
func notFinite(b []byte) string {
	for _, word := range []string{"-Infinity", "Infinity", "NaN"} {
		if bytes.HasPrefix(b, []byte(word)) {
			return word
		}
	}
	return ""
}
