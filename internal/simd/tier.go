package simd

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// A level is a set of instructions that kernels are written for: an index of
// the architecture's levels, which lists their names. A level without a kernel
// of its own for some function uses that of the level below.
type level uint8

const generic level = 0

// known are the names that KARAT_SIMD may have on some machine.
var known = []string{"generic", "avx2", "avx512", "amx", "neon", "sdot"}

// tier is the level in use. Only tests change it later.
var tier, tierErr = choose(os.Getenv("KARAT_SIMD"), Tiers())

// choose returns the level of a name, and the best one if the name is empty or
// wrong. have are the machine's names.
func choose(name string, have []string) (level, error) {
	best := level(len(have) - 1)
	if name == "" {
		return best, nil
	}
	if i := slices.Index(have, name); i >= 0 {
		return level(i), nil
	}
	if slices.Contains(known, name) {
		return best, fmt.Errorf("simd: KARAT_SIMD: this machine has no %s, only %s", name, strings.Join(have, ", "))
	}
	return best, fmt.Errorf("simd: KARAT_SIMD: %q is none of %s", name, strings.Join(known, ", "))
}

// Tier returns the name of the instruction set that the kernels use: the best
// that CPU and operating system allow, or that which the environment variable
// KARAT_SIMD names.
func Tier() string { return levels[tier] }

// Tiers returns the names of the instruction sets that this machine has kernels
// for, from "generic" to the best.
func Tiers() []string { return levels[:best()+1] }

// Err returns an error if KARAT_SIMD names an instruction set that is unknown
// or that this machine has not. A program should report it and end.
func Err() error { return tierErr }
