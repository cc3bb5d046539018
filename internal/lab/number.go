package lab

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Number is a measured value. JSON has no NaN and no infinities; they are written as
// the strings "NaN", "Infinity" and "-Infinity", as in the JSON form of protocol buffers.
// null is read as NaN.
type Number float64

// MarshalJSON implements json.Marshaler.
func (n Number) MarshalJSON() ([]byte, error) {
	switch x := float64(n); {
	case math.IsNaN(x):
		return []byte(`"NaN"`), nil
	case math.IsInf(x, 1):
		return []byte(`"Infinity"`), nil
	case math.IsInf(x, -1):
		return []byte(`"-Infinity"`), nil
	default:
		return json.Marshal(x)
	}
}

// UnmarshalJSON implements json.Unmarshaler.
func (n *Number) UnmarshalJSON(b []byte) error {
	switch string(b) {
	case `"NaN"`, "null":
		*n = Number(math.NaN())
	case `"Infinity"`:
		*n = Number(math.Inf(1))
	case `"-Infinity"`:
		*n = Number(math.Inf(-1))
	default:
		var x float64
		if err := json.Unmarshal(b, &x); err != nil {
			return fmt.Errorf("number: %w", err)
		}
		*n = Number(x)
	}
	return nil
}

// Digits returns x with two digits, for people: 0.33, 970, 1.1e-7.
func Digits(x float64) string {
	switch {
	case math.IsNaN(x):
		return "NaN"
	case math.IsInf(x, 0):
		return strings.Replace(fmt.Sprint(x), "Inf", "∞", 1)
	}
	mantissa, exponent, scientific := strings.Cut(strconv.FormatFloat(x, 'g', 2, 64), "e")
	if !scientific {
		return mantissa
	}
	if size := math.Abs(x); 1 <= size && size < 1e4 {
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	n, _ := strconv.Atoi(exponent) // FormatFloat writes an integer there
	return mantissa + "e" + strconv.Itoa(n)
}

// Percent returns the probability of a logarithm, as text.
func Percent(logprob Number) string { return fmt.Sprintf("%.2f %%", 100*math.Exp(float64(logprob))) }
