package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Integers have 64 bits. A result that needs more is an error.

// A number is a bool, an int or a float for arithmetic.
type number struct {
	isFloat bool
	i       int64
	f       float64
}

// numberOf returns v as a number, and whether v is a number.
func numberOf(v Value) (number, bool) {
	switch v := v.(type) {
	case integer:
		return number{i: int64(v)}, true
	case boolean:
		if v {
			return number{i: 1}, true
		}
		return number{}, true
	case float:
		return number{isFloat: true, f: float64(v)}, true
	}
	return number{}, false
}

// intOf returns v as an int, bools included.
func intOf(v Value) (int64, bool) {
	n, ok := numberOf(v)
	return n.i, ok && !n.isFloat
}

// toInt returns v as a Go int, where Python wants an integer.
func toInt(v Value) int {
	i, ok := intOf(v)
	if !ok {
		panic(typeError("'%s' object cannot be interpreted as an integer", v.kind()))
	}
	return int(i)
}

func (n number) float() float64 {
	if n.isFloat {
		return n.f
	}
	return float64(n.i)
}

// overflow makes the error of an integer that does not fit.
func overflow() *Error { return unsupported("an integer of more than 64 bits") }

// binary returns a op b for + - * / // % **.
func binary(r *rendering, op string, a, b Value) Value {
	x, ok1 := numberOf(a)
	y, ok2 := numberOf(b)
	if ok1 && ok2 {
		switch {
		case op == "/":
			return divide(x, y)
		case op == "**":
			return power(r, x, y)
		case x.isFloat || y.isFloat:
			return floatArith(op, x.float(), y.float())
		}
		return intArith(op, x.i, y.i)
	}
	if s, ok := a.(str); ok && op == "%" {
		return percent(r, s, b)
	}
	need(a, b)
	switch op {
	case "+":
		return add(r, a, b)
	case "*":
		if n, ok := intOf(b); ok {
			return repeat(r, a, n)
		}
		if n, ok := intOf(a); ok {
			return repeat(r, b, n)
		}
	case "**":
		op = "** or pow()"
	}
	panic(misfit(op, a, b))
}

func misfit(op string, a, b Value) *Error {
	return typeError("unsupported operand type(s) for %s: '%s' and '%s'", op, a.kind(), b.kind())
}

func intArith(op string, x, y int64) Value {
	switch op {
	case "+":
		if z := x + y; (z > x) == (y > 0) {
			return integer(z)
		}
		panic(overflow())
	case "-":
		if z := x - y; (z < x) == (y > 0) {
			return integer(z)
		}
		panic(overflow())
	case "*":
		return integer(multiply(x, y))
	}
	if y == 0 {
		panic(valueError("integer division or modulo by zero"))
	}
	if x == math.MinInt64 && y == -1 {
		panic(overflow())
	}
	quo, mod := x/y, x%y
	if mod != 0 && (mod < 0) != (y < 0) {
		quo, mod = quo-1, mod+y
	}
	if op == "%" {
		return integer(mod)
	}
	return integer(quo)
}

func multiply(x, y int64) int64 {
	z := x * y
	if x != 0 && (z/x != y || x == -1 && y == math.MinInt64) {
		panic(overflow())
	}
	return z
}

func floatArith(op string, x, y float64) Value {
	switch op {
	case "+":
		return float(x + y)
	case "-":
		return float(x - y)
	case "*":
		return float(x * y)
	}
	if y == 0 {
		panic(valueError("float floor division by zero"))
	}
	quo, mod := floatDivmod(x, y)
	if op == "//" {
		return float(quo)
	}
	return float(mod)
}

// floatDivmod returns Python's divmod of two floats: the remainder has the sign of y.
func floatDivmod(x, y float64) (quo, mod float64) {
	mod = math.Mod(x, y)
	quo = (x - mod) / y
	if mod == 0 {
		mod = math.Copysign(0, y)
	} else if (y < 0) != (mod < 0) {
		mod += y
		quo--
	}
	if quo == 0 {
		return math.Copysign(0, x/y), mod
	}
	floor := math.Floor(quo)
	if quo-floor > 0.5 {
		floor++
	}
	return floor, mod
}

// divide returns a / b, always a float: of two integers the nearest to the quotient.
func divide(a, b number) Value {
	if a.isFloat || b.isFloat {
		if b.float() == 0 {
			panic(valueError("float division by zero"))
		}
		return float(a.float() / b.float())
	}
	if b.i == 0 {
		panic(valueError("division by zero"))
	}
	f, _ := new(big.Rat).SetFrac(big.NewInt(a.i), big.NewInt(b.i)).Float64()
	if a.i == 0 && b.i < 0 {
		f = math.Copysign(0, -1)
	}
	return float(f)
}

// power returns a ** b of integers, b not negative. Python leaves other powers to C, whose last bit nothing fixes.
func power(r *rendering, a, b number) Value {
	if a.isFloat || b.isFloat || b.i < 0 {
		panic(unsupported("a power of floats, or with a negative exponent"))
	}
	z := int64(1)
	switch {
	case a.i == 0 || a.i == 1:
		if b.i > 0 {
			z = a.i
		}
		return integer(z)
	case a.i == -1:
		return integer(1 - 2*(b.i&1))
	case b.i > 64:
		panic(overflow())
	}
	for range b.i {
		z = multiply(z, a.i)
	}
	return integer(z)
}

// truncate returns int(f).
func truncate(f float64) Value {
	switch {
	case math.IsNaN(f):
		panic(valueError("cannot convert float NaN to integer"))
	case math.IsInf(f, 0):
		panic(valueError("cannot convert float infinity to integer"))
	case f >= 1<<63 || f < -1<<63:
		panic(overflow())
	}
	return integer(int64(f))
}

// formatFloat returns Python's repr of a float: the shortest digits that lead back to the float, with an exponent below
// 1e-4 and from 1e16 on.
func formatFloat(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	}
	s := strconv.FormatFloat(f, 'e', -1, 64)
	_, e, _ := strings.Cut(s, "e")
	if exp, _ := strconv.Atoi(e); exp < -4 || exp >= 16 {
		return s
	}
	s = strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// asciiDigits spells the decimal digits of any script in ASCII.
func asciiDigits(s string) string {
	if isASCII(s) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf || !unicode.Is(unicode.Nd, r) {
			return r
		}
		for _, t := range unicode.Nd.R16 {
			if r >= rune(t.Lo) && r <= rune(t.Hi) {
				return '0' + (r-rune(t.Lo))%10
			}
		}
		for _, t := range unicode.Nd.R32 {
			if r >= rune(t.Lo) && r <= rune(t.Hi) {
				return '0' + (r-rune(t.Lo))%10
			}
		}
		return r
	}, s)
}

// joinDigits takes out single underscores between digits, and reports whether there are no others.
func joinDigits(s string) (string, bool) {
	for i := range len(s) {
		if s[i] == '_' && (i == 0 || i == len(s)-1 || !isAlnum(rune(s[i-1])) || !isAlnum(rune(s[i+1]))) {
			return "", false
		}
	}
	return strings.ReplaceAll(s, "_", ""), true
}

// parseInt returns int(s, base), and whether s is an integer.
func parseInt(s string, base int) (int64, bool) {
	digits := asciiDigits(strings.TrimFunc(s, isSpace))
	sign := ""
	if digits != "" && (digits[0] == '-' || digits[0] == '+') {
		sign, digits = digits[:1], digits[1:]
	}
	prefixes := map[int]string{2: "0b", 8: "0o", 16: "0x"}
	if p := prefixes[base]; p != "" && len(digits) > 2 && strings.EqualFold(digits[:2], p) {
		digits = strings.TrimPrefix(digits[2:], "_")
	}
	digits, ok := joinDigits(digits)
	if !ok || digits == "" || digits[0] == '-' || digits[0] == '+' {
		return 0, false
	}
	i, err := strconv.ParseInt(sign+digits, base, 64)
	if err != nil && err.(*strconv.NumError).Err == strconv.ErrRange {
		panic(overflow())
	}
	return i, err == nil
}

// parseFloat returns float(s), and whether s is a float.
func parseFloat(s string) (float64, bool) {
	s = asciiDigits(strings.TrimFunc(s, isSpace))
	body, sign := s, 1
	if s != "" && (s[0] == '-' || s[0] == '+') {
		body = s[1:]
		if s[0] == '-' {
			sign = -1
		}
	}
	switch strings.ToLower(body) {
	case "inf", "infinity":
		return math.Inf(sign), true
	case "nan":
		return math.NaN(), true
	}
	if body == "" || strings.Trim(body, "0123456789_.eE+-") != "" || body[0] == '-' || body[0] == '+' {
		return 0, false
	}
	digits, ok := joinDigits(s)
	if !ok || strings.ContainsAny(s, "_") && !isDigits(strings.ReplaceAll(digits, ".", "")) {
		return 0, false
	}
	f, err := strconv.ParseFloat(digits, 64)
	return f, err == nil || math.IsInf(f, 0) // too big is infinite
}

// isDigits reports whether s has ASCII digits alone.
func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
