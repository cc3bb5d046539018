package round

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Class is an engine's arithmetic, as in a record's JSON file. An empty field is float64, or for KV the format of
// Activations.
type Class struct {
	Activations Format `json:"activations,omitempty"` // one of Activations
	KV          Format `json:"kv,omitempty"`          // one of KV
	GELU        GELU   `json:"gelu,omitempty"`
	// Partial sums of a float32 product, element k going to k mod Lanes; 0 is 1.
	Lanes int `json:"lanes,omitempty"`
}

// GELU is a way to compute the tanh form of GELU. The zero value is exactly.
type GELU string

// The ways of GELU.
const (
	Exact    GELU = "exact"
	F16Table GELU = "f16-table" // llama.cpp's: a table over all binary16 numbers, between -10 and 10
)

// At returns GELU of x.
func (g GELU) At(x float64) float64 {
	if g != F16Table {
		return x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
	}
	if x <= -10 || x >= 10 {
		return max(x, 0)
	}
	x = F16.To(x)
	return F16.To(x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*x*(1+0.044715*x*x))))
}

// maxLanes bounds Class.Lanes.
const maxLanes = 64

// Check returns an error for an impossible value of c. The error lists the possible values.
func (c Class) Check() error {
	switch {
	case c.Activations != "" && !slices.Contains(Activations, c.Activations):
		return impossible("activations", c.Activations, Activations)
	case c.KV != "" && !slices.Contains(KV, c.KV):
		return impossible("kv", c.KV, KV)
	case c.GELU != "" && c.GELU != Exact && c.GELU != F16Table:
		return impossible("gelu", c.GELU, []GELU{Exact, F16Table})
	case c.Lanes < 0 || c.Lanes > maxLanes || c.Lanes&(c.Lanes-1) != 0:
		return fmt.Errorf("lanes %d, want a power of two up to %d", c.Lanes, maxLanes)
	}
	return nil
}

func impossible[T ~string](what string, value T, possible []T) error {
	var names []string
	for _, p := range possible {
		names = append(names, string(p))
	}
	return fmt.Errorf("%s %q, want %s", what, value, strings.Join(names, ", "))
}

// Parse reads a class in the form of String.
func Parse(s string) (Class, error) {
	var c Class
	seen := map[string]bool{}
	for _, part := range strings.Split(s, ",") {
		key, value, ok := strings.Cut(part, "=")
		switch {
		case !ok || value == "":
			return c, fmt.Errorf("%q is not KEY=VALUE, want activations, kv, gelu or lanes", part)
		case seen[key]:
			return c, fmt.Errorf("%s a second time", key)
		}
		seen[key] = true
		var err error
		switch key {
		case "activations":
			err = c.Activations.UnmarshalText([]byte(value))
		case "kv":
			err = c.KV.UnmarshalText([]byte(value))
		case "gelu":
			c.GELU = GELU(value)
		case "lanes":
			if c.Lanes, err = strconv.Atoi(value); err != nil || c.Lanes == 0 {
				err = fmt.Errorf("lanes %q, want a power of two up to %d", value, maxLanes)
			}
		default:
			err = fmt.Errorf("%q, want activations, kv, gelu or lanes", key)
		}
		if err != nil {
			return c, err
		}
	}
	return c, c.Check()
}

// String returns c in words: activations=bf16,kv=f16.
func (c Class) String() string {
	var parts []string
	for _, p := range []struct{ key, value string }{
		{"activations", string(c.Activations)}, {"kv", string(c.KV)}, {"gelu", string(c.GELU)},
	} {
		if p.value != "" {
			parts = append(parts, p.key+"="+p.value)
		}
	}
	if c.Lanes != 0 {
		parts = append(parts, "lanes="+strconv.Itoa(c.Lanes))
	}
	return strings.Join(parts, ",")
}
