// Package diagnose finds the operation of an engine that differs from its model, the layers, and the cause, from a
// record of the engine's taps.
//
// The method is pull isolation: each tapped value is recomputed from the engine's own values at the taps before, so
// that an error shows where the engine makes the error, and nowhere else. The effect of rounding alone on each such
// equation is measured, not assumed. A cause is named only if the reference with the cause computes the engine's
// numbers.
//
// A diagnosis goes through stages, and each stage makes a value of the values before. The files, from the last stage
// down to the first:
//
//   - run.go goes through the stages. verdict.go, verdict_next.go, verdict_findings.go and verdict_coverage.go make the
//     verdict. expect.go computes the values that a tap should have.
//   - search_again.go and close.go ask whether the findings explain the logits.
//   - search.go names causes, with search_kinds.go, search_epsilon.go, search_below.go, search_extend.go,
//     search_turns.go, search_fit.go and search_attempt.go; suspect.go, suspect_values.go and relation.go find the
//     place of an unknown cause.
//   - probe.go, probe_prompts.go and probe_print.go leave out broken taps.
//   - infer.go finds the engine's class of rounding. propose.go and steps.go ask the table what engines may do instead.
//   - measure.go, equation.go and engine.go measure how far equations lie off.
//   - picture.go finds how the engine prepared pictures.
//   - place.go, activation.go, input.go and asked.go make a dump of a record.
//   - floor.go measures classes without a dump. class.go, dump.go, result.go and limits.go have the types
//     and thresholds of all stages.
package diagnose
