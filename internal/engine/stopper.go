package engine

import "strings"

// stopper passes text on, except for a beginning of a stop string. The stop string that is complete first ends the
// text, of several the one that begins first, so it does not matter how the text is cut into tokens.
type stopper struct {
	stop  []string
	held  string
	found string // the stop string that ended the text
}

// add returns the text that is now certain, and whether a stop string ended it.
func (s *stopper) add(text string) (string, bool) {
	text = s.held + text
	first, end := -1, len(text)+1
	s.found = ""
	for _, stop := range s.stop {
		i := strings.Index(text, stop)
		if stop == "" || i < 0 {
			continue
		}
		if e := i + len(stop); e < end || e == end && i < first {
			first, end, s.found = i, e, stop
		}
	}
	if first >= 0 {
		s.held = ""
		return text[:first], true
	}
	n := 0
	for _, stop := range s.stop {
		for k := min(len(stop)-1, len(text)); k > n; k-- {
			if strings.HasSuffix(text, stop[:k]) {
				n = k
			}
		}
	}
	s.held = text[len(text)-n:]
	return text[:len(text)-n], false
}

// end returns the text held back, followed by the decoder's rest, up to a stop string, and whether there was one.
func (s *stopper) end(rest string) (string, bool) {
	text, stopped := s.add(rest)
	return text + s.held, stopped
}
