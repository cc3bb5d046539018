package simd

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// A level is a set of instructions for kernels: an index of the architecture's levels, the list of names. A level
// without a kernel of its own for some function uses the kernel of the level below.
type level uint8

const (
	generic level = 0
	never   level = 255 // of a level of other architectures
)

// levelNames are all names of KARAT_SIMD, on any machine.
var levelNames = []string{"generic", "avx2", "avx512", "amx", "neon", "sdot", "wasm"}

// tier is the level in use. Only tests change it later.
var tier, tierErr = choose(os.Getenv("KARAT_SIMD"), levels, hasLevel)

// choose returns the level of a name, and the machine's best if the name is empty or wrong. It asks only for levels
// needed for the answer, since asking for tiles makes Linux save them.
func choose(name string, levels []string, has func(level) bool) (level, error) {
	if i := slices.Index(levels, name); i >= 0 && has(level(i)) {
		return level(i), nil
	}
	best := findBest(levels, has)
	if name == "" {
		return best, nil
	}
	if slices.Contains(levelNames, name) {
		there := strings.Join(levels[:best+1], ", ")
		return best, fmt.Errorf("KARAT_SIMD: this machine has no %s, only %s", name, there)
	}
	return best, fmt.Errorf("KARAT_SIMD: %q is none of %s", name, strings.Join(levelNames, ", "))
}

// findBest returns the best of levels that the machine has.
func findBest(levels []string, has func(level) bool) level {
	l := level(len(levels) - 1)
	for !has(l) {
		l--
	}
	return l
}

// bestLevel returns the best level of the machine.
func bestLevel() level { return findBest(levels, hasLevel) }

// Tier returns the name of the instruction set in use: the best allowed by CPU and operating system, or the name in the
// environment variable KARAT_SIMD.
func Tier() string { return levels[tier] }

// Tiers returns the names of the machine's instruction sets with kernels, from "generic" to the best.
func Tiers() []string { return levels[:bestLevel()+1] }

// Err returns an error if KARAT_SIMD names an instruction set unknown or missing on this machine. A program should
// report it and end.
func Err() error { return tierErr }
