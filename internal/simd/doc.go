// Package simd holds the inner loops of the CPU backend, and of products in float64 elsewhere: leaf kernels over
// slices, without tensors, graphs or goroutines. Kernels allocate nothing, except the generic twins of AddRow and
// WidenPlanes, called by tests alone.
//
// Each function's comment is a contract that fixes its result to the bit: the order of accumulation and every rounding.
// The generic twins state the contract in Go; a version in assembly must equal them, so that a model's logits are the
// same on every instruction set. In the contracts
//
//   - an operation on float32 is rounded to nearest even, subnormals included,
//     and fma(a, b, c) is a*b+c rounded once;
//   - sums run in order of increasing index, or as 16 partial sums: element k
//     goes to sum k mod 16, all starting at +0, in order of k; then sum i takes
//     sum i+8 for i < 8, i+4 for i < 4, i+2 for i < 2, and 0 takes 1;
//   - any NaN equals any NaN, with either sign and any payload.
//
// Lengths are the caller's duty: a slice whose capacity is less than stated panics, and nothing beyond is touched. dst
// may be an input where the comment allows it, but not overlap an input otherwise.
//
// The files in reading order: narrow.go (attention to panels); panel.go, row.go, rows.go, grid.go, weave.go,
// panel_amx.go, panel_generic.go, quantize.go (panels of quantized weights and their activations); scan.go,
// attention.go, gate.go, act.go (layers); record.go (threads of wasm); blocks.go, exp.go, fit.go, closest.go (writing
// blocks); vec.go, double.go, dot.go with eights.go (whole vectors); limits.go (a core's speed); fma.go; tier.go with
// tier_*.go and amx_*.go (the machine's instructions), kernels.go (the kernels in assembly).
package simd

//go:generate go run ../dev/simdgen
