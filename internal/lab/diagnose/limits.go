package diagnose

// float32Step is the largest relative error of one rounding to float32, the least any engine makes.
const float32Step = 0x1p-24

// Bounds between rounding and faults, in floors. A floor is the worst of several arms of rounding, so 3 leaves room
// for a rounding that is worse than all arms. Up to borderline the floor is measured again, by more arms. The KL
// divergence of logits grows with the square of a distance. Logits themselves round to leastKL.
const (
	excess     = 3
	borderline = 4 * excess
	spread     = excess * excess
	leastKL    = 1e-13
)

// sensitive is the KL divergence in nats from which on right but rounded logits are called sensitive: one token in
// a hundred or so is another. A golden record may lie goldenFloors times its float32 distance from the reference,
// as for lab compare. Taps of one value agree up to sameTwice, the error of binary16, in which one of them may have
// been stored.
const (
	sensitive    = 5e-3
	goldenFloors = 4
	sameTwice    = 1e-3
)

// Bounds of the rows that are measured. Of a prompt so many have floors of their own, and scan adds at most maxOff.
// scanWork is the most products of a weight and a value that scan may take in all, some minutes; smaller models,
// such as all tiny ones, are looked at row by row. maxTokens bounds the prompts the reference runs freely.
const (
	maxRows   = 48
	maxOff    = 16
	scanWork  = 2e11
	maxTokens = 1024
)

// How a class is told: from so many rows of an equation, from so many layers of a deep model, since all round alike,
// in so many rounds over its parts. A later class has to be nearer by a base-2 logarithm of nearer, in the mean over
// operations; or as near there, and by muchNearer in the equations that tell the two apart. Logits nearer than tooNear
// floors to a class's emulation are not of that class. small is the most nodes of an equation that tells one class, or
// one cause, from another: the errors of more run into each other.
const (
	maxSites   = 12
	maxJudged  = 6
	maxRounds  = 4
	nearer     = 0.25
	muchNearer = 3
	tooNear    = 0.1
	small      = 12
)

// The breadth of the search: faults in one equation, incomplete attempts that are built upon (so many times more
// where nothing explains an equation), attempts verified,
// equations looked at below their floors, biases that are each left out from the start.
const (
	maxDepth  = 3
	beam      = 5
	wide      = 4
	maxFit    = 24
	maxBelow  = 24
	maxBiases = 3
)

// How attempts compare, as base-2 logarithms. An attempt comes nearer by progress to be built upon. An unusual
// number costs crooked, and a round number may be worse by roundNumber. No number is sought above huge.
const (
	progress    = 0.4
	crooked     = 0.3
	roundNumber = 0.25
	huge        = 1e38
)

// A cause below the floors leaves at most the share clearly of the error's square; two that differ by equally count as
// equal. A change has to have so many standard deviations of rounding to be visible; less than the share nearly of the
// square is no rounding, however small the change is. An error points at a change if it is within pointing of it.
const (
	clearly  = 0.5
	equally  = 0.02
	visible  = 24
	nearly   = 0.1
	pointing = 0.3
)

// Rows that nothing shows may have other experts. Exchanges are found one by one among near ties, while each leaves at
// most the share exchanged of the distance.
const (
	maxExchanged = 6
	maxTies      = 16
	exchanged    = 0.9
)

// An epsilon that turns the engine's bits leaves at most the share exact of the error's square. It has to turn bits
// in leastTurned rows, and to change a norm by leastChange of its values. Float32's own rounding is a tenth of that
// change: of ten values that such an epsilon turns, float32 would turn one as well, to either side.
const (
	exact       = 0.02
	leastTurned = 6
	leastChange = 0x1p-19
)

// Bounds of the search for an unnamed cause: experts that are all run to find the experts asked, equations searched for
// speeds in vain, and pairs of a head whose speeds are searched.
const (
	maxExperts = 64
	maxVain    = 3
	maxPairs   = 64
)

// Speeds are not far off from the share nearEnough of the values on. Where values are differences of sums, the
// share little of a residual may be left.
const (
	nearEnough = 1e-2
	little     = 0.01
)

// clearFloor is the rounding up to which a permutation is told from other values of the same distribution.
const clearFloor = 1e-3

// What tells a broken dump: so many kinds of values of another width are another model's, where fewer are a probe
// of a part or joined values; so many taps may be the same in two prompts by chance; a first tap shows other ids in
// so many rows, of which at least leastRows are needed; so many taps lie between the first in another form and the
// first value in the right one (a projection, a norm and attention). Where manyProducts hold for no weight, all
// weights are others.
const (
	fewMisfits   = 3
	fewTaps      = 3
	fewRows      = 8
	leastRows    = 3
	depthOfForms = 3
	manyProducts = 8
)
