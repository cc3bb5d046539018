// Package draft proposes the next tokens of a text, for a model to verify several in one step. A proposal is the text
// behind an earlier occurrence of the end: in the prompt, in the answer so far, or in a prediction of the answer; or a
// text that the answer's grammar forces.
//
// A Drafter learns at each token how often its proposals come true, also where nobody verifies a proposal. So the odds
// of a proposal are known before its rows cost anything.
//
// Files: suffix.go (the longest end found before), draft.go (Drafter).
package draft

import (
	"math/bits"
	"slices"
)

// Kind is the origin of a proposal.
type Kind uint8

// The kinds.
const (
	Ngram      Kind = iota // the text itself
	Prediction             // the caller's prediction of the answer
	Grammar                // the only text that the grammar allows
	MTP                    // the model's head: tokens that are yet to be made
	kinds
)

// String returns the kind's name in metrics.
func (k Kind) String() string { return [...]string{"ngram", "prediction", "grammar", "mtp"}[k] }

// Most is the maximum of tokens of a proposal.
const Most = 32

// Counts are tokens of proposals, by kind.
type Counts [kinds]struct {
	Accepted int // verified, and part of the text
	Rejected int // verified, and wrong or behind a wrong one
}

// leastOdds are the least odds of a proposed token: no row is so cheap.
const leastOdds = 0.04

// Drafter proposes tokens behind one text. A Drafter serves one goroutine at a time.
type Drafter struct {
	counts    Counts
	suffixes  *suffixes
	predicted int // tokens of the prediction, at the beginning of the suffixes' text
	length    int // of the text's end found before; 0 is none
	behind    int // the place of the proposal
	// length counts the tokens since an edit: the proposal goes on behind the edited place
	resumed bool
	forced  []int32 // tokens forced next
	kind    Kind    // of the last proposal
	guesses bool    // the model has a head

	restricted bool                    // found text is not proposed
	depth      int                     // tokens of the last proposal verified
	guess      [mostGuessed]luck       // of the head's tokens, by their place in a proposal
	silent     int                     // tokens since the head's last verified token
	luck       [kinds][2][classes]luck // of found ends, and of resumed ones
}

// separator stands between the prediction and the prompt. It is no token.
const separator = -1

// New returns a drafter of the text behind a prompt. The prediction may be nil.
func New(prompt, prediction []int32) *Drafter {
	d := &Drafter{suffixes: newSuffixes(len(prompt) + len(prediction) + 256), predicted: len(prediction)}
	for k := range d.luck {
		d.luck[k] = [2][classes]luck{priors, priors}
		if Kind(k) != Ngram {
			d.luck[k] = [2][classes]luck{predicted, predicted}
		}
	}
	for _, id := range prediction {
		d.suffixes.add(id)
	}
	d.suffixes.add(separator)
	for _, id := range prompt {
		d.length, d.behind = d.suffixes.add(id)
	}
	if len(prediction) > 0 { // the answer's beginning
		d.length, d.behind = 1<<(classes-1), 0
	}
	return d
}

// Guess says whether the model's head also makes proposals.
func (d *Drafter) Guess(on bool) {
	d.guesses = on
	for i := range d.guess {
		d.guess[i] = guessed
	}
}

// Restrict leaves only the head's proposals.
func (d *Drafter) Restrict() { d.restricted = true }

// Kind returns the kind of the last proposal.
func (d *Drafter) Kind() Kind { return d.kind }

// Force sets the tokens of the text that must come next. The text may be cut into other tokens.
func (d *Drafter) Force(ids []int32) { d.forced = ids }

// Forced reports whether tokens that Force set are still to come.
func (d *Drafter) Forced() bool { return len(d.forced) > 0 }

// luckOf returns the luck of the first of forced tokens. The last ones of a text are often one token with the text
// behind them.
func (d *Drafter) luckOf(forced []int32) *luck { return &d.luck[Grammar][0][classOf(len(forced))] }

// Add goes on with a token, and learns whether the proposal for its place was right.
func (d *Drafter) Add(id int32) {
	if d.silent++; d.guesses && d.silent == patience {
		d.Guess(true)
		d.silent = 0
	}
	if d.Forced() {
		right := d.forced[0] == id
		d.luckOf(d.forced).learn(right)
		if d.forced = d.forced[1:]; !right {
			d.forced = nil
		}
	}
	next := d.length > 0 && d.suffixes.text[d.behind] != separator
	right := next && d.suffixes.text[d.behind] == id
	if next {
		d.luckAt(d.length).learn(right)
	}
	length, behind := d.suffixes.add(id)
	switch {
	case right && (d.length+1 >= length || d.resumed && length < trusted): // the same occurrence goes on
		d.length, d.behind = d.length+1, d.behind+1
		d.resumed = d.resumed && d.length < trusted
	case next && !right && d.length >= trusted && length < trusted:
		d.length, d.behind, d.resumed = 1, d.behind+1, true // behind an edit that ends with id
		if text := d.suffixes.text; text[d.behind] == id && d.behind+1 < len(text) {
			d.behind++
		}
	default:
		d.length, d.behind, d.resumed = length, behind, false
	}
}

// trusted is the length of an end whose proposals go on behind an edit: a token in place of another, or a token left
// out.
const trusted = 4

// luckAt returns the luck of a proposal behind an end of so many tokens.
func (d *Drafter) luckAt(length int) *luck {
	i := 0
	if d.resumed {
		i = 1
	}
	return &d.luck[d.found()][i][classOf(length)]
}

// Count notes verified tokens of the last proposal.
func (d *Drafter) Count(accepted, rejected int) {
	for range accepted {
		d.learnGuess(true)
	}
	if rejected > 0 {
		d.learnGuess(false)
	}
	c := &d.counts[d.kind]
	c.Accepted, c.Rejected = c.Accepted+accepted, c.Rejected+rejected
}

// learnGuess notes whether the next verified token was right, of a proposal by the head.
func (d *Drafter) learnGuess(right bool) {
	if d.kind == MTP && d.depth < mostGuessed {
		d.guess[d.depth].learn(right)
		d.silent = 0
	}
	d.depth++
}

// Counts returns the verified tokens so far.
func (d *Drafter) Counts() Counts { return d.counts }

// found returns the origin of the occurrence found.
func (d *Drafter) found() Kind {
	if d.behind < d.predicted {
		return Prediction
	}
	return Ngram
}

// Propose appends at most most tokens to tokens, and for each the odds that the text goes on with the tokens up to it.
// An occurrence found is proposed in place of forced tokens where more of its tokens are expected to come true.
func (d *Drafter) Propose(tokens []int32, odds []float32, most int) ([]int32, []float32) {
	first, known, most := len(tokens), len(odds), min(most, Most)
	if d.length > 0 && !d.restricted {
		d.kind = d.found()
		tokens, odds = d.proposeFound(tokens, odds, most)
	}
	d.depth = 0
	propose := func(kind Kind, ids []int32, luckAt func(i int) *luck) {
		var had, has float32
		for _, x := range odds[known:] {
			had += x
		}
		sure, at := float32(1), len(odds)
		for i := range ids {
			sure *= luckAt(i).odds()
			odds, has = append(odds, sure), has+sure
		}
		if has <= had {
			odds = odds[:at]
			return
		}
		d.kind, tokens, odds = kind, append(tokens[:first], ids...), slices.Delete(odds, known, at)
	}
	forced := d.forced[:min(most, len(d.forced))]
	propose(Grammar, forced, func(i int) *luck { return d.luckOf(forced[i:]) })
	if d.guesses {
		propose(MTP, make([]int32, min(most, mostGuessed)), func(i int) *luck { return &d.guess[i] })
	}
	return tokens, odds
}

// mostGuessed is the maximum of tokens of a proposal by the head.
const mostGuessed = 8

// proposeFound proposes the text behind the occurrence found.
func (d *Drafter) proposeFound(tokens []int32, odds []float32, most int) ([]int32, []float32) {
	text, first, sure := d.suffixes.text, len(tokens), float32(1)
	for i := range most {
		var id int32
		if at := d.behind + i; at < len(text) {
			id = text[at]
		} else { // the text repeats itself
			id = tokens[first+at-len(text)]
		}
		if id == separator {
			break
		}
		if sure *= d.luckAt(d.length + i).odds(); sure < leastOdds {
			break
		}
		tokens, odds = append(tokens, id), append(odds, sure)
	}
	return tokens, odds
}

// classes are the lengths of ends in powers of two: 1, 2 and 3, 4 to 7, 8 to 15, and longer ones.
const classes = 5

func classOf(length int) int { return min(bits.Len(uint(length)), classes) - 1 }

// luck is the share of right proposals, of the newest about 32.
type luck struct{ right, all float32 }

// priors are the lucks before the first proposal. Short ends of prose are found everywhere.
var priors = [classes]luck{{0.2, 4}, {0.6, 4}, {1.4, 4}, {2.4, 4}, {3.2, 4}}

// guessed is the luck of a token by the model's head. A few wrong tokens end its proposals, for patience tokens.
var guessed = luck{1.4, 2}

const patience = 128

// predicted are the lucks of a prediction, expected by the caller to come true.
var predicted = [classes]luck{{2, 4}, {2.8, 4}, {3.4, 4}, {3.8, 4}, {3.9, 4}}

func (l *luck) odds() float32 { return l.right / l.all }

func (l *luck) learn(right bool) {
	const keep = 1 - 1.0/32
	if l.right, l.all = l.right*keep, l.all*keep+1; right {
		l.right++
	}
}
