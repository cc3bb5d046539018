// Flags of a row: its page is the sequence's first; the page before ends here, and that is the first; the page is the
// last of the sequence in the step.
const FIRST = 1u;
const ENDS = 2u;
const SECOND = 4u;
const LAST = 8u;
