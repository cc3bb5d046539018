// Package backend defines the interfaces between recorded graphs and the backends running them.
//
// The files in reading order: backend.go (the interfaces, steps, and values kept for them), adapter.go (adapters of
// rows), turn.go (a mutex).
package backend

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
	"github.com/karat-run/karat/internal/rope"
)

// Backend runs graphs on one kind of hardware.
type Backend interface {
	// Compile prepares a plan of g for steps of at most o.Rows rows. The plan's memory is held until the backend is
	// closed, so plans should be few.
	Compile(g *graph.Graph, o Options) (Executable, error)
	// NewCache makes room for the keys and values of g's layers, in the pages handed out by pool, and tells pool
	// (kv.Pool.Back). Plans of the same graph share the cache.
	NewCache(g *graph.Graph, pool *kv.Pool) (Cache, error)
	Close() error
}

// Options of a plan. The zero value is a plan for one row without taps.
type Options struct {
	Rows    int                    // most rows of a step; 0 is 1
	Outputs int                    // maximum of rows of a step with wanted logits; 0 is Rows
	Tokens  int                    // logits open to a Chooser, the first of a row; 0 is all
	Want    func(*graph.Node) bool // nodes wanted by a Tap; a wanted node is not fused away
	// nodes with values for Step.Values: kept to the end of a step, of all its rows; may be nil
	Keep func(*graph.Node) bool

	// Progress is called while the weights are prepared, with bytes. Its error ends Compile, and is Compile's. Progress
	// may be nil.
	Progress func(done, total int64) error
	Expert   Expert // may be nil
}

// Expert sees the inputs of an expert of an Experts node in a step: the rows routed to the expert, in [rows, in], and
// their act(gate)·up, inner [rows, ff], in any pieces. Both are valid during the call.
type Expert func(n *graph.Node, expert int, in, inner []float32)

// Executable is a compiled plan. An Executable may be run by one goroutine at a time.
type Executable interface {
	// Run executes a step and returns the logits [len(s.Outputs), vocab], valid until the next Run. tap may be nil; a
	// tap sees whole outputs of the wanted nodes as [rows, shape...], valid during the call. Without Step.Write a tap
	// does not change a bit of the logits.
	Run(ctx context.Context, s *Step, tap Tap) (logits []float32, err error)
}

// Chooser is an Executable that finds the likeliest tokens at its place of computing, perhaps far from here.
type Chooser interface {
	// Most returns the maximum of likeliest tokens found by Choose, and the maximum of steps at once; 0 if reading
	// logits is better.
	Most() (k, steps int)

	// Choose executes a step as Run does and returns the k likeliest tokens of each output, [steps, len(s.Outputs), k]:
	// the higher logit first, of equal ones the lower id; a NaN and +Inf count as higher than all others and as equal.
	// If there are fewer, logits of -Inf follow.
	//
	// With several steps, k being 1, s is the first: a row for each sequence, all of them outputs. Each further step
	// has the tokens found, at the next positions, and the sequences have grown for all steps already. The bits are the
	// same.
	Choose(ctx context.Context, s *Step, k, steps int) ([]Likely, error)
}

// Likely is a token and its logit.
type Likely struct {
	ID    int32
	Logit float32
}

// Wide is a backend with a best number of rows.
type Wide interface {
	Rows() int // Rows returns the maximum of rows in a step
}

// Tiled is a backend that may compute steps of many rows otherwise than steps of a row.
type Tiled interface {
	Tile() int // Tile returns the least rows of a step with other bits; 0 is none
}

// Remote is a backend with memory apart from the machine's.
type Remote interface {
	// Memory returns the owner of the memory, and its bytes; 0 is unknown.
	Memory() (name string, bytes int64)
	// Weights returns the bytes of g's weights in the memory.
	Weights(g *graph.Graph) int64
}

// Metered is a backend that computes elsewhere, and can measure the time.
type Metered interface {
	// Meter returns the measurements of the steps since the last call.
	Meter() Meter
	// Bandwidth is the highest rate of reading.
	Bandwidth() (bytesPerSecond float64, err error)
}

// Meter is the measurements of some steps.
type Meter struct {
	Steps, Dispatches int
	Device            time.Duration // time of the device's work; 0 is unknown
}

// Profiled is a backend that can divide its threads' time.
type Profiled interface {
	// Measure begins or ends measuring, between steps. It returns the measurements so far, nil without any.
	Measure(on bool) *Profile
}

// Profile is where the time of some steps went.
type Profile struct {
	Steps   int             `json:"steps"`
	Time    time.Duration   `json:"ns"`      // of all steps
	Kernels []KernelProfile `json:"kernels"` // the longest first
	Threads []ThreadProfile `json:"threads"` // 0 is the calling thread
}

// KernelProfile is the time of the nodes of a kind.
type KernelProfile struct {
	Name  string        `json:"name"`     // of the nodes without their layers, and of a part, as "attn_q/round"
	Loops int           `json:"loops"`    // loops shared by several threads, each with a wait at its end
	Time  time.Duration `json:"ns"`       // until the next kernel
	Busy  time.Duration `json:"busy_ns"`  // of all threads in shared loops
	Alone time.Duration `json:"alone_ns"` // part of Time outside of shared loops, with a single thread at work
}

// ThreadProfile is the time of a worker.
type ThreadProfile struct {
	Busy    time.Duration `json:"busy_ns"`    // in pieces of shared loops, and, for thread 0, outside
	Waiting time.Duration `json:"waiting_ns"` // in shared loops, without a piece
	Between time.Duration `json:"between_ns"` // outside of shared loops
}

// Tap receives the output of a wanted node.
type Tap func(n *graph.Node, out []float32)

// Cache holds keys and values, and states: the memory of a kv.Pool.
type Cache interface {
	kv.Memory
	PageBytes(class int) int64 // memory of a page, or slot, of a class of the pool
	Bytes() int64              // memory in use
	Close() error
}

// Portable is a Cache with contents that can be carried to another. Its methods belong between steps. Data is little
// endian: of positions of a store, held by the sequence, [positions, heads, dim] keys, then [positions, heads, values]
// values; of pages in 8 bits the scales of all heads, then their codes, page after page; of a state float32 numbers,
// then of the sequence's rows after it, [rows, State.Row].
type Portable interface {
	Element() int // bytes of an element of a store
	// Spans returns the positions of a store seen by rows from position n on, in order of form and position.
	Spans(s *graph.KV, n int) []Span
	ReadStore(s *graph.KV, seq *kv.Sequence, span Span) ([]byte, error)
	WriteStore(s *graph.KV, seq *kv.Sequence, span Span, data []byte) error
	ReadState(s *graph.State, seq *kv.Sequence) ([]byte, error)
	WriteState(s *graph.State, seq *kv.Sequence, data []byte) error
}

// Span is positions From to To of a store in a form: Narrow is whole pages in 8 bits.
type Span struct {
	From, To int
	Narrow   bool
}

// Step is the work of one run: T rows, each a token at a position of a sequence. Rows of a sequence follow each other
// in order of position; the sequence has already grown to hold the rows.
type Step struct {
	Tokens  []int32
	Pos     []int32
	Seqs    []*kv.Sequence // of each row
	Outputs []int32        // rows with wanted logits, ascending
	Cache   Cache

	// Embeddings are rows other than tokens, as of an image: for each row nil, or [hidden], the value of Input's row,
	// with its scale, in place of the token's; the features of all Deepstack nodes may follow. Other tables of
	// embeddings, as each layer's, read Tokens. Nil is none.
	Embeddings [][]float32

	// Adapters are the adapters of each row, nil for a row without; nil if no row has any.
	Adapters []*Blend

	// Parts are positions of three parts, of each row, the angles' positions in RoPE nodes with sections; a row's place
	// is Pos alone. Nil: all parts are Pos, as for text.
	Parts [][3]int32

	// Groups are the groups of the rows, for attention that is Grouped; nil: no row is in a group.
	Groups []Group

	// Values are wanted values of nodes in Options.Keep. With NoLogits the nodes needed for logits alone are not
	// computed, and Run returns none.
	Values   []Value
	NoLogits bool

	// Watch chooses the wanted nodes for the tap in this step; nil is all. With Write the tap may write to the value:
	// readers of the node find the written numbers. A view that only reshapes its input shares the input's numbers.
	// Numbers left unchanged by the tap keep their bits, also in a backend with more bits than float32.
	Watch func(*graph.Node) bool
	Write bool
}

// Group is the group of a row. A step with a row has all later rows of its group.
type Group = kv.Group

// Range returns the first and the last position seen by a row in an attention.
func (s *Step) Range(a graph.AttentionAttr, row int) (first, last int) {
	pos := int(s.Pos[row])
	first, last = a.KV.Oldest(pos), a.Newest(pos, s.Seqs[row].Len())
	if !a.Grouped || s.Groups == nil || s.Groups[row].End == 0 {
		return first, last
	}
	g := s.Groups[row]
	if last = int(g.End) - 1; a.Bidirectional {
		first = int(g.First)
	}
	return first, last
}

// Sees reports whether the tap of s sees a wanted node.
func (s *Step) Sees(n *graph.Node) bool { return s.Watch == nil || s.Watch(n) }

// MaxPart bounds parts of positions: angles are exact up to there.
const MaxPart = 1 << 24

// Turn sets cos and sin to the angles of a row's pairs in a RoPE node with sections, if s has Parts. It returns false
// if the row turns by Pos.
func (s *Step) Turn(a graph.RoPEAttr, row int, cos, sin []float32) bool {
	if s.Parts == nil || a.Sections == [3]int{} {
		return false
	}
	rope.Angles(a.Freqs, a.Magnitude, func(i int) int { return int(s.Parts[row][a.Part(i)]) }, cos, sin)
	return true
}

// Entry is where embeddings enter a graph.
type Entry struct {
	Node    *graph.Node // Input
	Stacked int         // numbers behind the embeddings, features for later layers
}

// EntryOf returns where embeddings enter g.
func EntryOf(g *graph.Graph) Entry { return Entry{Input(g), g.Stacked()} }

// Input returns the node that embeds the tokens of g, or takes patches: its first Embed or Patches, or nil.
func Input(g *graph.Graph) *graph.Node {
	for _, n := range g.Nodes {
		if n.Op == graph.Embed || n.Op == graph.Patches {
			return n
		}
	}
	return nil
}

// CheckEmbeddings returns an error unless s has rows of embeddings fit for a graph's entry. Check comes first.
func (s *Step) CheckEmbeddings(e Entry) error {
	n := e.Node
	patches := n != nil && n.Op == graph.Patches
	if patches && (s.Embeddings == nil || s.Parts == nil) {
		return fmt.Errorf("a step of %d rows without embeddings or places for %v", len(s.Tokens), n)
	}
	for i, x := range s.Embeddings {
		if (x != nil || patches) && (n == nil || len(x) != n.Shape.Size() && len(x) != n.Shape.Size()+e.Stacked) {
			return fmt.Errorf("an embedding of %d elements at row %d, %v has others", len(x), i, n)
		}
	}
	return nil
}

// Deepstack returns a row's features for a Deepstack node; nil for a token.
func (s *Step) Deepstack(n *graph.Node, row int) []float32 {
	from := n.Shape.Size() * (1 + n.Attr.(graph.DeepstackAttr).Index)
	if s.Embeddings == nil || len(s.Embeddings[row]) <= from {
		return nil
	}
	return s.Embeddings[row][from : from+n.Shape.Size()]
}

// Wanted returns the rows of s with wanted logits: the rows of nodes after Rows.
func (s *Step) Wanted() *Step {
	if len(s.Outputs) == len(s.Tokens) {
		return s
	}
	w := &Step{Cache: s.Cache}
	for _, r := range s.Outputs {
		w.Tokens, w.Pos, w.Seqs = append(w.Tokens, s.Tokens[r]), append(w.Pos, s.Pos[r]), append(w.Seqs, s.Seqs[r])
		if s.Embeddings != nil {
			w.Embeddings = append(w.Embeddings, s.Embeddings[r])
		}
		if len(s.Adapters) > 0 {
			w.Adapters = append(w.Adapters, s.Adapters[r])
		}
		if s.Parts != nil {
			w.Parts = append(w.Parts, s.Parts[r])
		}
		if s.Groups != nil {
			w.Groups = append(w.Groups, s.Groups[r])
		}
	}
	return w
}

// Check returns an error unless s is well formed for a plan of at most rows rows over a vocabulary of vocab.
func (s *Step) Check(rows, vocab int) error {
	t := len(s.Tokens)
	if t == 0 || t > rows {
		return fmt.Errorf("step of %d rows, the plan is for 1 to %d", t, rows)
	}
	if len(s.Pos) != t || len(s.Seqs) != t {
		return fmt.Errorf("step of %d tokens has %d positions and %d sequences", t, len(s.Pos), len(s.Seqs))
	}
	if s.Embeddings != nil && len(s.Embeddings) != t {
		return fmt.Errorf("step of %d tokens has %d embeddings", t, len(s.Embeddings))
	}
	if n := len(s.Adapters); n > 0 && n != t {
		return fmt.Errorf("step of %d tokens has the adapters of %d rows", t, n)
	}
	if s.Parts != nil && len(s.Parts) != t {
		return fmt.Errorf("step of %d tokens has %d positions of three parts", t, len(s.Parts))
	}
	for i, p := range s.Parts {
		if slices.Min(p[:]) < 0 || slices.Max(p[:]) > MaxPart {
			return fmt.Errorf("position %v at row %d, parts are 0 to %d", p, i, MaxPart)
		}
	}
	for i, id := range s.Tokens {
		if id < 0 || int(id) >= vocab {
			return fmt.Errorf("token id %d at row %d, the vocabulary has %d", id, i, vocab)
		}
		if p := int(s.Pos[i]); p < 0 || p >= s.Seqs[i].Len() {
			return fmt.Errorf("position %d at row %d, the sequence has room for %d", p, i, s.Seqs[i].Len())
		}
		if i > 0 && s.Seqs[i] == s.Seqs[i-1] && s.Pos[i] != s.Pos[i-1]+1 {
			return fmt.Errorf("position %d at row %d follows %d", s.Pos[i], i, s.Pos[i-1])
		}
	}
	if err := s.checkGroups(); err != nil {
		return err
	}
	for i, o := range s.Outputs {
		if o < 0 || int(o) >= t || i > 0 && o <= s.Outputs[i-1] {
			return fmt.Errorf("output rows %v of %d", s.Outputs, t)
		}
	}
	return nil
}

// checkGroups returns an error unless s has all later rows of its groups. Earlier rows may be computed already.
func (s *Step) checkGroups() error {
	if s.Groups != nil && len(s.Groups) != len(s.Tokens) {
		return fmt.Errorf("step of %d tokens has the groups of %d rows", len(s.Tokens), len(s.Groups))
	}
	for i, g := range s.Groups {
		if g == (Group{}) {
			continue
		}
		to := i + int(g.End-1-s.Pos[i])
		if g.First < 0 || g.First > s.Pos[i] || to < i || to >= len(s.Seqs) || s.Seqs[to] != s.Seqs[i] ||
			s.Groups[to] != g {
			return fmt.Errorf("a group of positions %d to %d at row %d, position %d: a step has all of its later rows",
				g.First, g.End-1, i, s.Pos[i])
		}
	}
	return nil
}

// Entire returns an error unless s has all rows of its sequences, as nodes looking ahead require.
func (s *Step) Entire() error {
	for i, seq := range s.Seqs {
		if i > 0 && s.Seqs[i-1] == seq {
			continue
		}
		last := i
		for last+1 < len(s.Seqs) && s.Seqs[last+1] == seq {
			last++
		}
		if s.Pos[i] != 0 || int(s.Pos[last]) != seq.Len()-1 {
			return fmt.Errorf("positions %d to %d of a sequence of %d, "+
				"attention to later positions takes all of them in one step", s.Pos[i], s.Pos[last], seq.Len())
		}
	}
	return nil
}

// Piece is the rows of a step in a page of a sequence, for nodes with a state. Seq.Start says which rows the state has.
type Piece struct {
	Seq       *kv.Sequence
	Row, Rows int  // of the step
	Pos       int  // the first row's position
	At        int  // the first row's place in the page
	Turn      int  // how many pieces of the sequence come before
	Ends      bool // the page before ends here: the state takes its rows first
}

// HasState reports whether there is a state before the page of p, or with ends before the page before: a sequence's
// first page has none.
func (p *Piece) HasState(ends bool) bool {
	if ends {
		return p.Pos > kv.PageSize
	}
	return p.Pos >= kv.PageSize
}

// Pieces appends the pieces of s to all, in order of their turns.
func (s *Step) Pieces(all []Piece) []Piece {
	for t := 0; t < len(s.Seqs); {
		pos := int(s.Pos[t])
		p := Piece{Seq: s.Seqs[t], Row: t, Pos: pos, At: pos % kv.PageSize}
		p.Ends = p.At == 0 && pos > p.Seq.Start()
		if t > 0 && s.Seqs[t-1] == p.Seq {
			p.Turn = all[len(all)-1].Turn + 1
		}
		for ; t < len(s.Seqs) && s.Seqs[t] == p.Seq && p.At+p.Rows < kv.PageSize; t++ {
			p.Rows++
		}
		all = append(all, p)
	}
	slices.SortStableFunc(all, func(a, b Piece) int { return a.Turn - b.Turn })
	return all
}

// Pooled lists, for each output of s, the first of the rows pooled into the output by a Pool node; the output's own row
// is the last. A sequence must begin and end in s, unless a number of rows is pooled: an encoder's prompt is one step.
func (s *Step) Pooled(a graph.PoolAttr) ([]int32, error) {
	first := make([]int32, len(s.Outputs))
	for i, r := range s.Outputs {
		if a.Count > 0 {
			first[i] = r - int32(a.Count) + 1
			if f := first[i]; f < 0 || s.Seqs[f] != s.Seqs[r] {
				return nil, fmt.Errorf("row %d is wanted, and is not the last of %d rows to be pooled", r, a.Count)
			}
			continue
		}
		if int(r)+1 < len(s.Seqs) && s.Seqs[r+1] == s.Seqs[r] {
			return nil, fmt.Errorf("row %d is wanted, and is not the last of its sequence: "+
				"rows are pooled when all of them are there", r)
		}
		f := r
		for f > 0 && s.Seqs[f-1] == s.Seqs[r] {
			f--
		}
		if s.Pos[f] != 0 {
			return nil, fmt.Errorf("rows from position %d on: a prompt whose rows are pooled must be in one step",
				s.Pos[f])
		}
		first[i] = f
	}
	return first, nil
}

// Grids returns the grid of each row's picture, the places of the rows of its sequence in s, for an Interpolate node.
func (s *Step) Grids(a graph.PlaceAttr) ([]graph.Grid, error) {
	if s.Parts == nil {
		return nil, fmt.Errorf("a step of %d rows without places", len(s.Tokens))
	}
	grids := make([]graph.Grid, len(s.Tokens))
	for from := 0; from < len(grids); {
		var g graph.Grid
		to := from
		for ; to < len(grids) && s.Seqs[to] == s.Seqs[from]; to++ {
			g.Height, g.Width = max(g.Height, int(s.Parts[to][1])+1), max(g.Width, int(s.Parts[to][2])+1)
		}
		if !a.Has(g) {
			return nil, fmt.Errorf("a picture of %dx%d patches, the model has places for %dx%d", g.Width, g.Height,
				a.Width, a.Height)
		}
		for ; from < to; from++ {
			grids[from] = g
		}
	}
	return grids, nil
}

// Narrow is a backend that may keep older positions in 8 bits.
type Narrow interface {
	Narrow() bool
}

// Recent is the number of newest positions kept in 16 bits where older positions have 8: RecentPage.
const Recent = 128

// IsNarrow reports whether a Narrow backend keeps older positions of a store of g in 8 bits, in whole pages: of full
// layers, and of windows long enough to save memory. Where positions are chosen, all stay in 16 bits.
func IsNarrow(g *graph.Graph, s *graph.KV) bool {
	return (s.Window == 0 || s.Window > 4*Recent) && !g.Bidirectional() && !s.Sparse && !s.Index
}

// RecentPage returns the first page with any of the newest positions for a row at pos. The row sees earlier pages in 8
// bits, except for the first of full layers: whoever stands at the start of a text gets the most attention.
func RecentPage(pos int) int { return max(0, pos-Recent+1) / kv.PageSize }

// Classes lists the classes of the pool needed by g: pages for full layers, a ring for each window, the smallest first,
// and a slot and a page of rows for all states. In a backend that keeps older positions in 8 bits there are also a ring
// of the newest positions in 16 bits, and their first page.
func Classes(g *graph.Graph, b Backend) []kv.Class {
	n, ok := b.(Narrow)
	return classesOf(g, ok && n.Narrow())
}

func classesOf(g *graph.Graph, narrow bool) []kv.Class {
	var classes []kv.Class
	add := func(c kv.Class) {
		if slices.Contains(classes, c) {
			return
		}
		classes = append(classes, c)
		for i := len(classes) - 1; i > 0 && classes[i].Window < classes[i-1].Window; i-- {
			classes[i], classes[i-1] = classes[i-1], classes[i]
		}
	}
	for _, s := range g.KVs() {
		add(ClassOf(s))
		if !narrow || !IsNarrow(g, s) {
			continue
		}
		if add(kv.Class{Kind: kv.Ring, Window: Recent}); s.Window == 0 {
			add(kv.Class{Kind: kv.Start})
		}
	}
	if len(g.States()) > 0 {
		classes = append(classes, kv.Class{Kind: kv.Slot}, kv.Class{Kind: kv.Rows})
	}
	return classes
}

// ClassOf returns the class of a store.
func ClassOf(s *graph.KV) kv.Class {
	if s.Window > 0 {
		return kv.Class{Kind: kv.Ring, Window: s.Window}
	}
	return kv.Class{}
}

// Vocab returns the number of token ids shared by all of g's embeddings.
func Vocab(g *graph.Graph) int {
	vocab := math.MaxInt
	for _, n := range g.Nodes {
		if n.Op == graph.Embed {
			vocab = min(vocab, n.W[0].Shape[0])
		}
	}
	return vocab
}

// CacheBytes returns the memory for the keys and values of one sequence of the full context, elements having size
// bytes, apart from older positions in 8 bits with narrow, and for its states in float32.
func CacheBytes(g *graph.Graph, context, chunk int, size int64, narrow bool) int64 {
	classes := classesOf(g, narrow)
	pool := kv.NewPool(kv.Options{Classes: classes, Context: context, Chunk: chunk})
	positions := func(c kv.Class) int64 { return int64(pool.Positions(slices.Index(classes, c), context)) }
	var n int64
	for _, s := range g.KVs() {
		if !narrow || !IsNarrow(g, s) {
			n += positions(ClassOf(s)) * PositionBytes(s, size)
			continue
		}
		recent := positions(kv.Class{Kind: kv.Ring, Window: Recent})
		n += positions(ClassOf(s))*NarrowBytes(s) + recent*PositionBytes(s, size)
		if s.Window == 0 {
			n += kv.PageSize * PositionBytes(s, size)
		}
	}
	return n + StateBytes(g)
}

// StateBytes returns the memory of a sequence's states and their rows.
func StateBytes(g *graph.Graph) (n int64) {
	for _, s := range g.States() {
		n += 4 * int64(s.Size+kv.PageSize*s.Row())
	}
	return n
}

// NarrowBytes returns the memory of one position in a store in 8 bits, with binary16 scales for every 32: of keys
// filled up to a multiple of 32 elements, and of values to a multiple of 16 (simd.Narrow).
func NarrowBytes(s *graph.KV) int64 {
	return int64(s.Heads*((s.Dim+31)&^31+(s.Values()+15)&^15)) * 17 / 16
}

// OlderBytes returns the memory of a position in a store of g behind the newest, where older positions have 8 bits and
// the newest elements of a size; in stores that keep all positions alike it is PositionBytes.
func OlderBytes(g *graph.Graph, s *graph.KV, size int64) int64 {
	if IsNarrow(g, s) {
		return NarrowBytes(s)
	}
	return PositionBytes(s, size)
}

// PositionBytes returns the memory of one position in a store.
func PositionBytes(s *graph.KV, size int64) int64 {
	return int64(s.Heads) * int64(s.Dim+s.Values()) * size
}

// Value is a requested row of a node's value.
type Value struct {
	Node *graph.Node // a node of Options.Keep
	Row  int32       // row of the step; after Rows or Pool, one of Outputs
	Out  []float32   // [shape...], filled by Run
}

// Kept is the nodes of a graph in Options.Keep, and whether each is after Rows or Pool: such a node has a row for each
// output, and not for each row of a step.
type Kept map[*graph.Node]bool

// NewKept returns the nodes of g chosen by keep, or none for nil.
func NewKept(g *graph.Graph, keep func(*graph.Node) bool) Kept {
	k, after := Kept{}, g.Live().After
	for _, n := range g.Nodes {
		if keep != nil && n.Op != graph.StoreKV && keep(n) {
			k[n] = after[n]
		}
	}
	return k
}

// Named returns k's node of a name, also in a copy of the graph; nil if there is none.
func (k Kept) Named(name string) *graph.Node {
	for n := range k {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// Check returns an error unless the values requested by s exist. Step.Check comes first.
func (k Kept) Check(s *Step) error {
	for _, v := range s.Values {
		after, ok := k[v.Node]
		switch {
		case !ok:
			return fmt.Errorf("the value of node %v, which the plan does not keep", v.Node)
		case v.Row < 0 || int(v.Row) >= len(s.Tokens) || after && !slices.Contains(s.Outputs, v.Row):
			return fmt.Errorf("the value of node %v at row %d, of %d rows and the outputs %v", v.Node, v.Row,
				len(s.Tokens), s.Outputs)
		case len(v.Out) != v.Node.Shape.Size():
			return fmt.Errorf("room for %d elements of a value of node %v, which has %d", len(v.Out), v.Node,
				v.Node.Shape.Size())
		}
	}
	return nil
}

// Range returns the place of v among the elements of its node's value in s.
func (k Kept) Range(s *Step, v Value) (from, to int) {
	row, n := int(v.Row), v.Node.Shape.Size()
	if k[v.Node] {
		row, _ = slices.BinarySearch(s.Outputs, v.Row)
	}
	return row * n, (row + 1) * n
}
