package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// maxIntBits bounds integers: Python's have no bound, and those of templates no
// need of one. maxIntDigits is Python's own limit for integers that become text.
const (
	maxIntBits   = 1 << 16
	maxIntDigits = 4300
)

// A number is a bool, an int or a float for arithmetic.
type number struct {
	isFloat bool
	i       integer
	f       float64
}

// numberOf gives the number that v is, and whether it is one.
func numberOf(v Value) (number, bool) {
	switch v := v.(type) {
	case integer:
		return number{i: v}, true
	case boolean:
		if v {
			return number{i: integer{small: 1}}, true
		}
		return number{}, true
	case float:
		return number{isFloat: true, f: float64(v)}, true
	}
	return number{}, false
}

// intOf gives the int that v is, bools included.
func intOf(v Value) (integer, bool) {
	n, ok := numberOf(v)
	return n.i, ok && !n.isFloat
}

// indexOf is v as a Go int, clamped, where Python wants an integer.
func indexOf(v Value) (int, error) {
	i, ok := intOf(v)
	if !ok {
		return 0, typeError("'%s' object cannot be interpreted as an integer", v.kind())
	}
	if i.big != nil {
		if i.big.Sign() < 0 {
			return math.MinInt, nil
		}
		return math.MaxInt, nil
	}
	return int(i.small), nil
}

// normal makes an integer, small where it fits.
func normal(b *big.Int) integer {
	if b.IsInt64() {
		return integer{small: b.Int64()}
	}
	return integer{big: b}
}

func (i integer) wide() *big.Int {
	if i.big != nil {
		return i.big
	}
	return big.NewInt(i.small)
}

func (i integer) sign() int { return i.wide().Sign() }

func (i integer) bits() int { return i.wide().BitLen() }

// float is i as the nearest float.
func (i integer) float() (float64, error) {
	if i.big == nil {
		return float64(i.small), nil
	}
	f, _ := new(big.Float).SetInt(i.big).Float64()
	if math.IsInf(f, 0) {
		return 0, valueError("int too large to convert to float")
	}
	return f, nil
}

// text is i in decimal.
func (i integer) text() (string, error) {
	if i.big == nil {
		return strconv.FormatInt(i.small, 10), nil
	}
	if i.big.BitLen() > maxIntDigits*10/3 {
		return "", valueError("Exceeds the limit (%d digits) for integer string conversion", maxIntDigits)
	}
	s := i.big.String()
	if len(strings.TrimPrefix(s, "-")) > maxIntDigits {
		return "", valueError("Exceeds the limit (%d digits) for integer string conversion", maxIntDigits)
	}
	return s, nil
}

func (n number) float() (float64, error) {
	if n.isFloat {
		return n.f, nil
	}
	return n.i.float()
}

// formatFloat is Python's repr of a float: the shortest digits that lead back
// to it, with an exponent below 1e-4 and from 1e16 on.
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

// arith computes a + b, a - b, a * b, a // b, a % b of two numbers.
func (m *machine) arith(op string, a, b number) (Value, error) {
	if !a.isFloat && !b.isFloat {
		return m.intArith(op, a.i, b.i)
	}
	x, err := a.float()
	if err != nil {
		return nil, err
	}
	y, err := b.float()
	if err != nil {
		return nil, err
	}
	switch op {
	case "+":
		return float(x + y), nil
	case "-":
		return float(x - y), nil
	case "*":
		return float(x * y), nil
	}
	if y == 0 {
		return nil, valueError("float floor division by zero")
	}
	quo, mod := floatDivmod(x, y)
	if op == "//" {
		return float(quo), nil
	}
	return float(mod), nil
}

// floatDivmod is Python's divmod of two floats: the remainder has the sign of y.
func floatDivmod(x, y float64) (quo, mod float64) {
	mod = math.Mod(x, y)
	quo = (x - mod) / y
	if mod != 0 {
		if (y < 0) != (mod < 0) {
			mod += y
			quo--
		}
	} else {
		mod = math.Copysign(0, y)
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

func (m *machine) intArith(op string, a, b integer) (Value, error) {
	if v, ok := smallArith(op, a, b); ok {
		return integer{small: v}, nil
	}
	x, y := a.wide(), b.wide()
	if err := m.step((x.BitLen()/64 + 1) * (y.BitLen()/64 + 1)); err != nil {
		return nil, err
	}
	z := new(big.Int)
	switch op {
	case "+":
		z.Add(x, y)
	case "-":
		z.Sub(x, y)
	case "*":
		z.Mul(x, y)
	default:
		if y.Sign() == 0 {
			return nil, valueError("integer division or modulo by zero")
		}
		mod := new(big.Int)
		z.QuoRem(x, y, mod)
		if mod.Sign() != 0 && (mod.Sign() < 0) != (y.Sign() < 0) {
			z.Sub(z, big.NewInt(1))
			mod.Add(mod, y)
		}
		if op == "%" {
			z = mod
		}
	}
	return m.bounded(z)
}

// bounded is an integer that is not too big to go on with.
func (m *machine) bounded(z *big.Int) (Value, error) {
	if z.BitLen() > maxIntBits {
		return nil, limitError("integer of more than %d bits", maxIntBits)
	}
	return normal(z), m.alloc(z.BitLen() / 8)
}

// smallArith does without big integers, if nothing overflows.
func smallArith(op string, a, b integer) (int64, bool) {
	if a.big != nil || b.big != nil {
		return 0, false
	}
	x, y := a.small, b.small
	switch op {
	case "+":
		z := x + y
		return z, (z > x) == (y > 0)
	case "-":
		z := x - y
		return z, (z < x) == (y > 0)
	case "*":
		if x == int64(int32(x)) && y == int64(int32(y)) {
			return x * y, true
		}
		return 0, false
	}
	if y == 0 || x == math.MinInt64 {
		return 0, false
	}
	quo, mod := x/y, x%y
	if mod != 0 && (mod < 0) != (y < 0) {
		quo, mod = quo-1, mod+y
	}
	if op == "%" {
		return mod, true
	}
	return quo, true
}

// divide is a / b, always a float.
func divide(a, b number) (Value, error) {
	if !a.isFloat && !b.isFloat {
		if b.i.sign() == 0 {
			return nil, valueError("division by zero")
		}
		f, _ := new(big.Rat).SetFrac(a.i.wide(), b.i.wide()).Float64()
		if a.i.sign() == 0 && b.i.sign() < 0 {
			f = math.Copysign(0, -1)
		}
		if math.IsInf(f, 0) {
			return nil, valueError("integer division result too large for a float")
		}
		return float(f), nil
	}
	x, err := a.float()
	if err != nil {
		return nil, err
	}
	y, err := b.float()
	if err != nil {
		return nil, err
	}
	if y == 0 {
		return nil, valueError("float division by zero")
	}
	return float(x / y), nil
}

// power is a ** b.
func (m *machine) power(a, b number) (Value, error) {
	if !a.isFloat && !b.isFloat && b.i.sign() >= 0 {
		exp := b.i
		if bits := a.i.bits(); bits > 1 {
			if exp.big != nil || exp.small > maxIntBits || int(exp.small)*(bits-1) > maxIntBits {
				return nil, limitError("integer of more than %d bits", maxIntBits)
			}
			if err := m.step(int(exp.small) * bits); err != nil {
				return nil, err
			}
		} else if exp.sign() > 0 { // 0, 1 and -1 only depend on the parity
			exp = integer{small: 2 - int64(exp.wide().Bit(0))}
		}
		return m.bounded(new(big.Int).Exp(a.i.wide(), exp.wide(), nil))
	}
	x, err := a.float()
	if err != nil {
		return nil, err
	}
	y, err := b.float()
	if err != nil {
		return nil, err
	}
	if err := m.step(powerSteps); err != nil {
		return nil, err
	}
	return floatPower(x, y)
}

func floatPower(x, y float64) (Value, error) {
	if x == 0 && y < 0 {
		return nil, valueError("0.0 cannot be raised to a negative power")
	}
	if x < 0 && !math.IsInf(x, 0) && y != math.Trunc(y) && !math.IsNaN(y) {
		return nil, typeError("complex numbers are not supported")
	}
	z := math.Pow(x, y)
	if a := math.Abs(y); a <= 400 && (a >= 0x1p-20 || a == 0) && z != 0 && !math.IsInf(z, 0) && !math.IsNaN(z) {
		z = exactPower(x, y)
	}
	if math.IsInf(z, 0) && !math.IsInf(x, 0) && !math.IsInf(y, 0) {
		return nil, valueError("(34, 'Numerical result out of range')")
	}
	return float(z), nil
}

// powerSteps is what a power of floats costs: up to 72 roots.
const powerSteps = 2000

// exactPower is x ** y as the nearest float, which math.Pow may miss by a bit. The
// bits of y below one stand for roots of roots of x.
func exactPower(x, y float64) float64 {
	const precision = 200
	one := new(big.Float).SetPrec(precision).SetInt64(1)
	z := new(big.Float).Copy(one)
	whole, part := math.Modf(math.Abs(y))
	base := new(big.Float).SetPrec(precision).SetFloat64(x)
	root := new(big.Float).Copy(base)
	for k := int(whole); k > 0; k >>= 1 {
		if k&1 == 1 {
			z.Mul(z, base)
		}
		base.Mul(base, base)
	}
	for ; part > 0; part -= math.Trunc(part) {
		root.Sqrt(root)
		if part *= 2; part >= 1 {
			z.Mul(z, root)
		}
	}
	if y < 0 {
		z.Quo(one, z)
	}
	f, _ := z.Float64()
	return f
}

// truncate is int(f).
func truncate(f float64) (integer, error) {
	if math.IsNaN(f) {
		return integer{}, valueError("cannot convert float NaN to integer")
	}
	if math.IsInf(f, 0) {
		return integer{}, valueError("cannot convert float infinity to integer")
	}
	i, _ := big.NewFloat(f).Int(nil)
	return normal(i), nil
}
