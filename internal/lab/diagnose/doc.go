// Package diagnose finds the operation of an engine that differs from its model, the
// layers, and the cause, from a record of the engine's taps.
//
// The method is pull isolation: each tapped value is recomputed from the engine's
// own values at the taps before it, so that an error shows where it is made and
// nowhere else. The effect of rounding alone on each such equation is measured, not
// assumed. A cause is named only if the reference with that cause computes the
// engine's numbers.
//
// A diagnosis goes through stages, and a file's name begins with its stage's: place*.go finds
// the nodes of the dump's taps, measure*.go the distance of each equation and what rounding
// makes of it, class*.go how the engine rounds, probe*.go which taps are broken, search*.go
// what the engine computes instead, of the hypotheses in hyp*.go, close.go whether that
// explains the logits, and verdict*.go says so.
package diagnose
