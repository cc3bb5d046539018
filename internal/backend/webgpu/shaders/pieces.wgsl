// Flags of a row: the page before ends here; the page is the last of the sequence in the step.
const ENDS = 1u;
const LAST = 2u;
