package chat

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxDate bounds a formatted date in bytes.
const maxDate = 1 << 16

// strftime formats a time as Python's datetime.strftime does for a time without a zone, in the C locale of a system
// with the GNU C library: with its flags - _ 0 ^ # and widths, and with %Z and %z empty. An unknown directive stays as
// written.
func strftime(t time.Time, format string) (string, error) {
	var b strings.Builder
	for {
		text, rest, ok := strings.Cut(format, "%")
		b.WriteString(text)
		if !ok {
			return b.String(), nil
		}
		d, n := parseDirective(rest)
		b.WriteString(d.format(t, "%"+rest[:n]))
		format = rest[n:]
		if b.Len()+d.width > maxDate {
			return "", fmt.Errorf("strftime_now: a date of more than %d bytes", maxDate)
		}
	}
}

// A directive is the text after a percent sign.
type directive struct {
	flag       byte // - _ 0, or 0
	upper      bool // ^
	swap       bool // #
	width      int
	conversion byte // 0 at the end of the format
}

// parseDirective reads a directive and returns its length.
func parseDirective(s string) (d directive, n int) {
	for ; n < len(s) && strings.IndexByte("-_0^#", s[n]) >= 0; n++ {
		switch s[n] {
		case '^':
			d.upper = true
		case '#':
			d.swap = true
		default:
			d.flag = s[n]
		}
	}
	for ; n < len(s) && s[n] >= '0' && s[n] <= '9'; n++ {
		d.width = min(d.width*10+int(s[n]-'0'), maxDate)
	}
	if n < len(s) && (s[n] == 'E' || s[n] == 'O') {
		n++
	}
	if n < len(s) {
		d.conversion = s[n]
		n++
	}
	return d, n
}

// format returns the text of the directive, spelt in the format as spelt.
func (d directive) format(t time.Time, spelt string) string {
	switch d.conversion {
	case '%':
		return "%"
	case 'n':
		return "\n"
	case 't':
		return "\t"
	case 'z', 'Z':
		return ""
	case 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1000)
	}
	if k, ok := numbers[d.conversion]; ok {
		return d.number(k.of(t), k.digits, k.pad)
	}
	layout, ok := layouts[d.conversion]
	if !ok {
		return spelt
	}
	s := t.Format(layout)
	switch {
	case d.swap && d.conversion == 'p':
		s = strings.ToLower(s)
	case d.upper || d.swap:
		s = strings.ToUpper(s)
	}
	fill := " "
	if d.flag == '0' {
		fill = "0"
	}
	return strings.Repeat(fill, max(0, d.width-len(s))) + s
}

// number formats a number of so many digits.
func (d directive) number(n, digits int, pad string) string {
	switch d.flag {
	case '-':
		pad, digits = "", 0
	case '_':
		pad = " "
	case '0':
		pad = "0"
	}
	if d.width > 0 && d.flag != '-' {
		digits = d.width
	}
	s := strconv.Itoa(n)
	return strings.Repeat(pad, max(0, digits-len(s))) + s
}

// numbers are the numeric conversions: their digits, their padding and their value.
var numbers = map[byte]struct {
	digits int
	pad    string
	of     func(t time.Time) int
}{
	'C': {2, "0", func(t time.Time) int { return t.Year() / 100 }},
	'd': {2, "0", time.Time.Day},
	'e': {2, " ", time.Time.Day},
	'g': {2, "0", func(t time.Time) int { return isoYear(t) % 100 }},
	'G': {1, "0", isoYear},
	'H': {2, "0", time.Time.Hour},
	'I': {2, "0", hour12},
	'j': {3, "0", time.Time.YearDay},
	'k': {2, " ", time.Time.Hour},
	'l': {2, " ", hour12},
	'm': {2, "0", func(t time.Time) int { return int(t.Month()) }},
	'M': {2, "0", time.Time.Minute},
	's': {1, "0", func(t time.Time) int { return int(t.Unix()) }},
	'S': {2, "0", time.Time.Second},
	'u': {1, "0", func(t time.Time) int { return monday(t) + 1 }},
	'U': {2, "0", func(t time.Time) int { return (t.YearDay() + 6 - int(t.Weekday())) / 7 }},
	'V': {2, "0", func(t time.Time) int { _, week := t.ISOWeek(); return week }},
	'w': {1, "0", func(t time.Time) int { return int(t.Weekday()) }},
	'W': {2, "0", func(t time.Time) int { return (t.YearDay() + 6 - monday(t)) / 7 }},
	'y': {2, "0", func(t time.Time) int { return t.Year() % 100 }},
	'Y': {1, "0", time.Time.Year},
}

func isoYear(t time.Time) int { year, _ := t.ISOWeek(); return year }

func hour12(t time.Time) int { return (t.Hour()+11)%12 + 1 }

// monday returns the days since Monday.
func monday(t time.Time) int { return (int(t.Weekday()) + 6) % 7 }

// layouts are the conversions to text, or to several numbers.
var layouts = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January",
	'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'D': "01/02/06", 'X': "15:04:05", 'T': "15:04:05",
	'F': "2006-01-02", 'R': "15:04", 'r': "03:04:05 PM", 'p': "PM", 'P': "pm",
}
