package grammar

import (
	"cmp"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// maxDigits bounds the digits of a number in a schema.
const maxDigits = 40

// Maximal digits of numbers written, so that every reader can hold them: whole numbers fit 64 bits, and others a
// float64.
const (
	wholeDigits    = 18
	fractionDigits = 16
)

// decimal is a number: its digits before and after the point, without zeros at the outer ends.
type decimal struct {
	negative        bool
	whole, fraction string
}

// decimalOf reads a number of JSON.
func decimalOf(text string) (d decimal, err error) {
	r, err := ratOf(text)
	if err != nil {
		return d, err
	}
	s := strings.TrimPrefix(r.FloatString(200), "-")
	d.whole, d.fraction, _ = strings.Cut(s, ".")
	d.whole, d.fraction = strings.TrimLeft(d.whole, "0"), strings.TrimRight(d.fraction, "0")
	d.negative = r.Sign() < 0
	if len(d.whole)+len(d.fraction) > maxDigits {
		return d, errLong
	}
	return d, nil
}

var errLong = fmt.Errorf("the number has more than %d digits", maxDigits)

// canonicalNumber writes a number of JSON as its digits, without zeros at both ends, and a power of ten.
func canonicalNumber(text string) string {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	mantissa, negative := strings.CutPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	power, err := strconv.ParseInt("0"+strings.TrimPrefix(exponent, "+"), 10, 32)
	if strings.HasPrefix(exponent, "-") {
		power, err = strconv.ParseInt(exponent, 10, 32)
	}
	digits := strings.TrimLeft(whole+fraction, "0")
	if err != nil { // a number that nothing is equal to but itself
		return text
	}
	short := strings.TrimRight(digits, "0")
	if short == "" {
		return "0"
	}
	power += int64(len(digits) - len(short) - len(fraction))
	if negative {
		short = "-" + short
	}
	return short + "e" + strconv.FormatInt(power, 10)
}

// ratOf reads a number of JSON, which must not be long.
func ratOf(text string) (*big.Rat, error) {
	if _, exponent, ok := strings.Cut(strings.ToLower(text), "e"); len(text) > 64 || ok &&
		len(strings.TrimLeft(exponent, "+-0")) > 2 {
		return nil, errLong
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil, errors.New("it is no number")
	}
	return r, nil
}

// numbers makes terms of numbers.
type numbers struct {
	t       *termTable
	integer bool
}

func (n *numbers) digits(lo, hi byte) *term {
	if lo > hi {
		return n.t.none
	}
	return n.t.class(span(lo, hi))
}

func (n *numbers) digit() *term { return n.digits('0', '9') }

// all returns every number, in JSON's spelling.
func (n *numbers) all() *term {
	t := n.t
	x := t.cat(t.opt(t.byte('-')), n.magnitude())
	if n.integer {
		return x
	}
	exponent := t.seq(t.or(t.byte('e'), t.byte('E')), t.opt(t.or(t.byte('+'), t.byte('-'))), t.repeat(n.digit(), 1, 2))
	return t.cat(x, t.opt(exponent))
}

// magnitude returns every number that is not negative, without an exponent.
func (n *numbers) magnitude() *term {
	t := n.t
	x := t.or(t.byte('0'), t.cat(n.digits('1', '9'), t.repeat(n.digit(), 0, wholeDigits-1)))
	if n.integer {
		return x
	}
	return t.cat(x, t.opt(t.cat(t.byte('.'), t.repeat(n.digit(), 1, fractionDigits))))
}

// anyDigits returns the possible digits after a whole part.
func (n *numbers) anyDigits() *term {
	if n.integer {
		return n.t.unit
	}
	return n.t.opt(n.t.seq(n.t.byte('.'), n.digit(), n.t.star(n.digit())))
}

// magnitudesAbove returns the magnitudes of at least d, or if strict of more than d, among other texts that are no
// magnitudes.
func (n *numbers) magnitudesAbove(d *decimal, strict bool) *term {
	return n.t.not(n.magnitudesBelow(d, !strict))
}

// magnitudesBelow returns the magnitudes of at most d, or if strict of less.
func (n *numbers) magnitudesBelow(d *decimal, strict bool) *term {
	t := n.t
	whole := cmp.Or(d.whole, "0")
	return t.or(t.cat(n.wholeBelow(whole), n.anyDigits()), t.cat(t.text(whole), n.fraction(d.fraction, strict)))
}

// wholeBelow returns the whole numbers below the given whole number.
func (n *numbers) wholeBelow(whole string) *term {
	t := n.t
	if whole == "0" {
		return t.none
	}
	list := []*term{t.byte('0')}
	if len(whole) > 1 {
		list = append(list, t.cat(n.digits('1', '9'), t.repeat(n.digit(), 0, int32(len(whole)-2))))
	}
	for i := range len(whole) {
		least := byte('0')
		if i == 0 {
			least = '1'
		}
		if whole[i] > least {
			rest := int32(len(whole) - i - 1)
			list = append(list, t.seq(t.text(whole[:i]), n.digits(least, whole[i]-1), t.repeat(n.digit(), rest, rest)))
		}
	}
	return t.or(list...)
}

// fraction returns the point and digits of at most f, or if strict of less.
func (n *numbers) fraction(f string, strict bool) *term {
	t := n.t
	switch {
	case strict && f == "":
		return t.none
	case n.integer: // 0 after the point
		return t.unit
	}
	rest, x := t.star(n.digit()), t.none // possible rest once all digits are equal
	if !strict {
		x = t.star(t.byte('0'))
	}
	for i := len(f) - 1; i >= 0; i-- {
		less := t.none
		if f[i] > '0' {
			less = n.digits('0', f[i]-1)
		}
		x = t.or(t.unit, t.cat(less, rest), t.cat(t.byte(f[i]), x))
	}
	return t.opt(t.cat(t.byte('.'), t.and(t.cat(n.digit(), rest), x)))
}

// bounds holds a schema's bounds of a number; nil for none.
type bounds struct {
	low, high             *decimal
	strictLow, strictHigh bool
}

// between returns the numbers within bounds, without exponents.
func (n *numbers) between(b *bounds) *term {
	t := n.t
	positive, negative := n.magnitude(), t.and(n.magnitude(), n.magnitudesAbove(&decimal{}, true))
	if d := b.low; d != nil {
		if d.negative {
			negative = t.and(negative, n.magnitudesBelow(d, b.strictLow))
		} else {
			positive, negative = t.and(positive, n.magnitudesAbove(d, b.strictLow)), t.none
		}
	}
	if d := b.high; d != nil {
		switch {
		case d.negative:
			positive, negative = t.none, t.and(negative, n.magnitudesAbove(d, b.strictHigh))
		default:
			positive = t.and(positive, n.magnitudesBelow(d, b.strictHigh))
		}
	}
	return t.or(positive, t.cat(t.byte('-'), negative))
}

// multipleOf returns the numbers that are multiples of d, without exponents.
func (n *numbers) multipleOf(d *decimal) (*term, error) {
	t, digits, places := n.t, d.whole+d.fraction, len(d.fraction)
	if n.integer && places > 0 {
		// a whole number is a multiple of a/10^p exactly if it is a multiple of a/gcd(a, 10^p)
		a, _ := new(big.Int).SetString(digits, 10)
		ten := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(places)), nil)
		digits, places = a.Div(a, new(big.Int).GCD(nil, nil, a, ten)).String(), 0
	}
	digits = strings.TrimLeft(digits, "0")
	if d.negative || digits == "" || len(digits) > 7 || places > 9 {
		return nil, errors.New("want a number above 0 of at most 7 digits")
	}
	m := int32(0)
	for _, c := range []byte(digits) {
		m = m*10 + int32(c-'0')
	}
	list := []*term{}
	for p := 0; p <= places; p++ {
		shape := t.seq(n.digit(), t.star(n.digit()))
		if p > 0 {
			shape = t.seq(shape, t.byte('.'), t.repeat(n.digit(), int32(p), int32(p)))
		}
		left := int64(1)
		for range places - p {
			left = left * 10 % int64(m)
		}
		list = append(list, t.and(shape, t.multiple(m, 0, int32(left))))
	}
	return t.cat(t.opt(t.byte('-')), t.and(n.magnitude(), t.or(list...))), nil
}
