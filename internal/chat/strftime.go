package chat

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxDate bounds a formatted date in bytes.
const maxDate = 1 << 16

// strftime formats a time as Python's datetime.strftime does for a time without
// a zone, in the C locale of a system with the GNU C library: its flags - _ 0 ^
// # and widths are understood, and %Z and %z are empty. A directive that is
// unknown stays as it is.
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

// A directive is what follows a percent sign.
type directive struct {
	flag       byte // - _ 0, or 0
	upper      bool // ^
	swap       bool // #
	width      int
	conversion byte // 0 at the end of the format
}

// parseDirective reads a directive and gives its length.
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

// format is the text of the directive, which is spelt in the format as spelt.
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
	if n, digits, pad, ok := number(t, d.conversion); ok {
		return d.number(n, digits, pad)
	}
	s, ok := name(t, d.conversion)
	if !ok {
		return spelt
	}
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

// number gives the value of a numeric conversion, its digits and its padding.
func number(t time.Time, conversion byte) (n, digits int, pad string, ok bool) {
	isoYear, isoWeek := t.ISOWeek()
	hour12 := (t.Hour()+11)%12 + 1
	weekday, monday := int(t.Weekday()), (int(t.Weekday())+6)%7
	digits, pad = 2, "0"
	switch conversion {
	case 'C':
		n = t.Year() / 100
	case 'd':
		n = t.Day()
	case 'e':
		n, pad = t.Day(), " "
	case 'g':
		n = isoYear % 100
	case 'G':
		n, digits = isoYear, 1
	case 'H':
		n = t.Hour()
	case 'I':
		n = hour12
	case 'j':
		n, digits = t.YearDay(), 3
	case 'k':
		n, pad = t.Hour(), " "
	case 'l':
		n, pad = hour12, " "
	case 'm':
		n = int(t.Month())
	case 'M':
		n = t.Minute()
	case 's':
		n, digits = int(t.Unix()), 1
	case 'S':
		n = t.Second()
	case 'u':
		n, digits = monday+1, 1
	case 'U':
		n = (t.YearDay() + 6 - weekday) / 7
	case 'V':
		n = isoWeek
	case 'w':
		n, digits = weekday, 1
	case 'W':
		n = (t.YearDay() + 6 - monday) / 7
	case 'y':
		n = t.Year() % 100
	case 'Y':
		n, digits = t.Year(), 1
	default:
		return 0, 0, "", false
	}
	return n, digits, pad, true
}

// name gives the text of a conversion that is none or several numbers.
func name(t time.Time, conversion byte) (string, bool) {
	layouts := map[byte]string{
		'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January",
		'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'D': "01/02/06", 'X': "15:04:05", 'T': "15:04:05",
		'F': "2006-01-02", 'R': "15:04", 'r': "03:04:05 PM", 'p': "PM", 'P': "pm",
	}
	layout, ok := layouts[conversion]
	return t.Format(layout), ok
}
