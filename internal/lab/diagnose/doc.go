// Package diagnose says which operation of an engine computes something else than
// its model, in which layers, and what: from a record of what passed its taps.
//
// The method is pull isolation: each tapped value is recomputed from the engine's
// own values at the taps before it, so that an error shows where it is made and
// nowhere else. What rounding alone makes of each such equation is measured, not
// assumed, and a cause is named only if building it into the reference makes the
// engine's numbers.
package diagnose
