// Package simd holds the inner loops of the CPU backend, and of products in float64
// elsewhere: leaf kernels over slices that know no tensors, graphs or goroutines and allocate nothing, but for the
// generic twins of AddRow and WidenPlanes, which only tests call.
//
// Each function's comment is a contract that fixes its result to the bit: the
// order of accumulation and every rounding. The generic twins state it in Go;
// a version in assembly must equal them, so that a model's logits are the same
// on every instruction set. In the contracts
//
//   - an operation on float32 is rounded to nearest even, subnormals included,
//     and fma(a, b, c) is a*b+c rounded once;
//   - sums run in order of increasing index, or as 16 partial sums: element k
//     goes to sum k mod 16, all starting at +0, in order of k; then sum i takes
//     sum i+8 for i < 8, i+4 for i < 4, i+2 for i < 2, and 0 takes 1;
//   - any NaN equals any NaN, with either sign and any payload.
//
// Lengths are the caller's duty: a slice whose capacity is less than stated panics,
// and nothing beyond it is touched. dst may be one of the inputs, but not overlap
// it otherwise, where the comment allows it.
//
// The files in reading order: attention.go, scan.go, gate.go with act.go, vec.go, exp.go, dot.go, double.go, fma.go
// (float32 and float64); panel.go with panel_generic.go and panel_amx.go, row.go, rows.go, quantize.go, weave.go
// (panels of quantized weights); fit.go and blocks.go (quantizing); limits.go; tier.go with tier_*.go and amx_*.go
// (what the machine has), kernels.go (which kernels have assembly).
package simd

//go:generate go run ../dev/simdgen
