package syntax

import "strings"

// reading is the result of examining the beginning of a text.
type reading int

const (
	no    reading = iota // something else
	short                // the text ends before a decision
	yes
)

// reader reads calls at the beginning of an incomplete text. A decision about a text also holds for every longer text.
type reader struct {
	y       *Style
	marks   Marks
	tools   Tools
	s       string
	control map[int]int // lengths of the control tokens in s, by their beginnings
	at      int
	final   bool     // nothing follows
	begun   bool     // a first mark was there, or a head that only calls have
	alone   bool     // a call without marks may end the answer
	loose   bool     // a value ends at the first possible mark, whatever calls lie within the value
	first   bool     // s is short
	stops   []string // marks that may follow calls whose last mark is missing
	calls   []Call
}

// next reports whether a mark comes next, without advancing.
func (r *reader) next(mark string) reading {
	at := r.at
	defer func() { r.at = at }()
	return r.mark(mark)
}

// plain returns a piece of the text without its control tokens.
func (r *reader) plain(from, to int) string {
	if len(r.control) == 0 {
		return r.s[from:to]
	}
	var b strings.Builder
	for from < to {
		if n := r.control[from]; n > 0 {
			from += n
			continue
		}
		b.WriteByte(r.s[from])
		from++
	}
	return b.String()
}

// end reads the end of calls: the last mark, or, if missing, text that may follow.
func (r *reader) end() reading {
	if r.marks.End != "" {
		if x := r.mark(r.marks.End); x != no {
			return x
		}
	}
	if r.begun && (r.marks.End == "" || r.marks.Last) {
		return yes
	}
	at := r.at
	if r.space(); r.at == len(r.s) {
		r.at = at
		// arguments may be missing
		if r.final && (!r.begun && !r.alone || !r.loose && r.y.Form == Tagged && r.y.After == "") {
			return no
		}
		if r.final {
			return yes
		}
		return short
	}
	x := no
	for _, m := range r.stops {
		x = max(x, r.next(m))
	}
	r.at = at
	if x == yes && !r.begun {
		return no
	}
	return x
}

// maxBegin bounds the text before the arguments of a call.
const maxBegin = 1 << 8
