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

const (
	generic level = 0
	never   level = 255 // of a level of other architectures
)

// known are the names that KARAT_SIMD may have on some machine.
var known = []string{"generic", "avx2", "avx512", "amx", "neon", "sdot"}

// tier is the level in use. Only tests change it later.
var tier, tierErr = choose(os.Getenv("KARAT_SIMD"), levels, has)

// choose returns the level of a name, and the best one that the machine has if
// the name is empty or wrong. It asks only for levels that may come of it, since
// asking for tiles is what makes Linux save them.
func choose(name string, levels []string, has func(level) bool) (level, error) {
	if i := slices.Index(levels, name); i >= 0 && has(level(i)) {
		return level(i), nil
	}
	best := highest(levels, has)
	if name == "" {
		return best, nil
	}
	if slices.Contains(known, name) {
		return best, fmt.Errorf("KARAT_SIMD: this machine has no %s, only %s", name, strings.Join(levels[:best+1], ", "))
	}
	return best, fmt.Errorf("KARAT_SIMD: %q is none of %s", name, strings.Join(known, ", "))
}

// highest is the best of levels that the machine has.
func highest(levels []string, has func(level) bool) level {
	l := level(len(levels) - 1)
	for !has(l) {
		l--
	}
	return l
}

// best is the best level that the machine has.
func best() level { return highest(levels, has) }

// Tier returns the name of the instruction set that the kernels use: the best
// that CPU and operating system allow, or the one that the environment variable
// KARAT_SIMD names.
func Tier() string { return levels[tier] }

// Tiers returns the names of the instruction sets that this machine has kernels
// for, from "generic" to the best.
func Tiers() []string { return levels[:best()+1] }

// Err returns an error if KARAT_SIMD names an instruction set that is unknown
// or that this machine has not. A program should report it and end.
func Err() error { return tierErr }
