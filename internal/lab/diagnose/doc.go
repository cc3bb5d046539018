// Package diagnose finds the operation of an engine that differs from its model, the
// layers, and the cause, from a record of the engine's taps.
//
// The method is pull isolation: each tapped value is recomputed from the engine's
// own values at the taps before it, so that an error shows where it is made and
// nowhere else. The effect of rounding alone on each such equation is measured, not
// assumed. A cause is named only if the reference with that cause computes the
// engine's numbers.
//
// A diagnosis goes through stages, each of which makes a value of the values before it:
//
//   - limits.go, matrix.go and class.go have the thresholds, least squares, and the ways in which engines round;
//     floor.go measures these ways without a dump.
//   - dump.go has the first value, the known values by node. place.go makes it, with activation.go, asked.go and
//     input.go.
//   - engine.go, equation.go and measure.go have the second: what the engine computes if it is right, and how far
//     each equation lies off.
//   - hypothesis.go, hyp*.go and infer.go say what engines may do instead, and how this one rounds.
//   - result.go has the last value. probe*.go leaves out broken taps.
//   - search*.go and suspect.go name what the engine does instead.
//   - close.go asks whether that explains the logits, verdict*.go says so, and run.go goes through the stages.
package diagnose
