// Command simulate sends the requests of a trace's shape to many replicas, by several rules, and prints a table of how
// long answers take to begin. Nothing is measured: replicas are a queue, a speed and a cache.
//
//	go run ./internal/dev/simulate -seed 1
//
// The shape is that of Mooncake's conversation trace (Qin et al., FAST 2025, table 1): 12,035 tokens of prompt and 343
// of answer in the mean, and 40% of the prompts' tokens in prompts before. With -trace FILE the lengths, the shared
// blocks and the times are those of a published file of that format, in as many copies as -copies says.
package main

import (
	"bufio"
	"container/heap"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"slices"
)

// blockSize is the tokens of a block in Mooncake's traces.
const blockSize = 512

// request is a request of a trace. Blocks of equal ids are equal prefixes.
type request struct {
	at             float64 // seconds
	prompt, answer int     // tokens
	blocks         []int
}

// fleet says what replicas are.
type fleet struct {
	replicas int
	prefill  float64 // tokens of prompts a second
	decode   float64 // tokens of answers a second, of all answers together
	blocks   int     // of a replica's cache
}

// shape says what requests are made.
type shape struct {
	rate    float64 // requests a second
	seconds float64
}

// lognormal draws a number of a mean, spread by sigma.
func lognormal(r *rand.Rand, mean, sigma float64) float64 {
	return mean * math.Exp(sigma*r.NormFloat64()-sigma*sigma/2)
}

// conversations makes requests of the trace's shape: conversations begin at random times, and each turn's prompt is the
// prompt before, its answer and a new question. All prompts begin with the same block.
func conversations(r *rand.Rand, s shape) (all []request) {
	const turns = 1.8 // in the mean
	next := 1
	for at := -600.0; at < s.seconds; at += r.ExpFloat64() * turns / s.rate {
		blocks, prompt := []int{0}, lognormal(r, 9730, 1.05)
		for now := at; now < s.seconds; {
			for len(blocks) < int(prompt)/blockSize {
				blocks = append(blocks, next)
				next++
			}
			answer := 1 + lognormal(r, 342, 0.8)
			if now >= 0 {
				all = append(all, request{now, max(1, int(prompt)), int(answer), append(slices.Clip(blocks), next)})
				next++ // of a block begun
			}
			if r.Float64() < 1/turns {
				break
			}
			now += answer/30 + 60*r.ExpFloat64() // an answer is read, and the next question written
			prompt += answer + lognormal(r, 2300, 1)
		}
	}
	slices.SortStableFunc(all, func(a, b request) int { return int(math.Copysign(1, a.at-b.at)) })
	return all
}

// readTrace reads a file of Mooncake's format, in copies that begin some seconds apart and share the first block alone.
func readTrace(from io.Reader, copies int) (all []request, err error) {
	var one []request
	lines, most := bufio.NewScanner(from), 0
	for lines.Buffer(nil, 1<<20); lines.Scan(); {
		var x struct {
			Timestamp     float64
			Input, Output int   `json:"-"`
			InputLength   int   `json:"input_length"`
			OutputLength  int   `json:"output_length"`
			HashIDs       []int `json:"hash_ids"`
		}
		if err := json.Unmarshal(lines.Bytes(), &x); err != nil {
			return nil, err
		}
		one = append(one, request{x.Timestamp / 1000, x.InputLength, x.OutputLength, x.HashIDs})
		for _, id := range x.HashIDs {
			most = max(most, id)
		}
	}
	for i := range copies {
		for _, q := range one {
			q.at += float64(i%3000) / 1000 // the file's times are multiples of three seconds
			q.blocks = slices.Clone(q.blocks)
			for j, id := range q.blocks {
				if id > 0 {
					q.blocks[j] = id + i*most
				}
			}
			all = append(all, q)
		}
	}
	slices.SortStableFunc(all, func(a, b request) int { return int(math.Copysign(1, a.at-b.at)) })
	return all, lines.Err()
}

// replica is a replica with one lane: prompts and answers take its time.
type replica struct {
	free  float64     // when the lane is free
	queue int         // requests not ended
	work  float64     // seconds of the lane
	cache map[int]int // places of blocks in order
	order []int       // blocks, the least recently used first; -1 for one used later
	first int         // of order
}

// touch counts blocks as used now, and gives up the oldest. It reports those given up to gone.
func (p *replica) touch(blocks []int, most int, gone func(block int)) {
	for _, b := range slices.Backward(blocks) { // a prefix outlives what follows it
		if at, ok := p.cache[b]; ok {
			p.order[at-p.first] = -1
		}
		p.cache[b] = p.first + len(p.order)
		p.order = append(p.order, b)
	}
	for len(p.cache) > most || len(p.order) > 4*most {
		b := p.order[0]
		p.order, p.first = p.order[1:], p.first+1
		if b >= 0 && len(p.cache) > most {
			delete(p.cache, b)
			gone(b)
		} else if b >= 0 {
			p.cache[b] = p.first + len(p.order)
			p.order = append(p.order, b)
		}
	}
}

// end is the end of a request.
type end struct {
	at float64
	of int
}

type ends []end

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i].at < e[j].at }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(x any)        { *e = append(*e, x.(end)) }
func (e *ends) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// world is the fleet with the router's knowledge.
type world struct {
	fleet
	r       *rand.Rand
	all     []replica
	holders map[int]map[int]bool // replicas that keep a block, without the first one
	running ends
}

// cached returns how many tokens of a request replica i keeps.
func (w *world) cached(i int, q request) int {
	n := 0
	for n < len(q.blocks) {
		if _, ok := w.all[i].cache[q.blocks[n]]; !ok {
			break
		}
		n++
	}
	return min(n*blockSize, q.prompt-1)
}

// wait returns the seconds until replica i would begin the answer to q.
func (w *world) wait(i int, q request) float64 {
	return max(0, w.all[i].free-q.at) + float64(q.prompt-w.cached(i, q))/w.prefill
}

// rule chooses a replica.
type rule struct {
	name   string
	choose func(w *world, q request) int
}

// quietest returns the replica with the fewest requests, at random among equals.
func quietest(w *world) (best int) {
	from := w.r.IntN(len(w.all))
	best = from
	for i := range w.all {
		if x := (from + i) % len(w.all); w.all[x].queue < w.all[best].queue {
			best = x
		}
	}
	return best
}

var rules = []rule{
	{"random", func(w *world, q request) int { return w.r.IntN(len(w.all)) }},
	{"least queue", func(w *world, q request) int { return quietest(w) }},
	{"hash of the prefix", func(w *world, q request) int { // as proxies have it: of the first 1,024 tokens
		key := uint64(q.blocks[min(1, len(q.blocks)-1)])
		key ^= key >> 31 // splitmix64
		key *= 0x7fb5d329728ea185
		key ^= key >> 27
		key *= 0x81dadef4bc2dd44d
		return int((key ^ key>>33) % uint64(len(w.all)))
	}},
	{"prefix-aware", func(w *world, q request) int { // by events: the holders of its longest prefix, or the quietest
		best := quietest(w)
		for _, b := range slices.Backward(q.blocks) {
			of := w.holders[b]
			for i := range w.all {
				if of[i] && w.wait(i, q) < w.wait(best, q) {
					best = i
				}
			}
			if len(of) > 0 {
				break
			}
		}
		return best
	}},
}

// outcome is a line of the table.
type outcome struct {
	rule           string
	p50, p99       float64 // seconds to the first token
	hits           float64 // share of the prompts' tokens
	busiest, spare float64 // work of the busiest replica and of the idlest, by the mean
}

// simulate sends requests by a rule. The first third of the time fills the caches, and does not count.
func simulate(seed uint64, f fleet, all []request, by rule) outcome {
	w := &world{fleet: f, r: rand.New(rand.NewPCG(seed, 2)), all: make([]replica, f.replicas),
		holders: map[int]map[int]bool{}}
	for i := range w.all {
		w.all[i].cache = map[int]int{}
	}
	from := all[len(all)-1].at / 3
	var firsts []float64
	var hits, tokens float64
	for _, q := range all {
		for len(w.running) > 0 && w.running[0].at <= q.at {
			w.all[heap.Pop(&w.running).(end).of].queue--
		}
		i := by.choose(w, q)
		p, kept := &w.all[i], w.cached(i, q)
		first := w.wait(i, q)
		busy := float64(q.prompt-kept)/w.prefill + float64(q.answer)/w.decode
		p.free = max(p.free, q.at) + busy
		p.queue++
		heap.Push(&w.running, end{p.free, i})
		p.touch(q.blocks, w.blocks, func(b int) {
			if delete(w.holders[b], i); len(w.holders[b]) == 0 {
				delete(w.holders, b)
			}
		})
		for _, b := range q.blocks {
			if b == 0 {
				continue
			}
			if w.holders[b] == nil {
				w.holders[b] = map[int]bool{}
			}
			w.holders[b][i] = true
		}
		if q.at < from {
			continue
		}
		p.work += busy
		firsts = append(firsts, first)
		hits, tokens = hits+float64(kept), tokens+float64(q.prompt)
	}
	slices.Sort(firsts)
	o := outcome{rule: by.name, hits: hits / tokens, spare: math.Inf(1)}
	o.p50, o.p99 = firsts[len(firsts)/2], firsts[len(firsts)*99/100]
	sum := 0.0
	for i := range w.all {
		sum += w.all[i].work
		o.busiest, o.spare = max(o.busiest, w.all[i].work), min(o.spare, w.all[i].work)
	}
	o.busiest, o.spare = o.busiest*float64(f.replicas)/sum, o.spare*float64(f.replicas)/sum
	return o
}

// means returns the mean lengths of requests, and the share of prompts' tokens in prompts before.
func means(all []request) (prompt, answer, shared float64) {
	seen := map[int]bool{}
	for _, q := range all {
		prompt, answer = prompt+float64(q.prompt), answer+float64(q.answer)
		n := 0
		for n < len(q.blocks) && seen[q.blocks[n]] {
			n++
		}
		shared += float64(min(n*blockSize, q.prompt))
		for _, b := range q.blocks[n:] {
			seen[b] = true
		}
	}
	n := float64(len(all))
	return prompt / n, answer / n, shared / prompt
}

func main() {
	log.SetFlags(0)
	f, s := fleet{}, shape{}
	seed := flag.Uint64("seed", 1, "seed of all draws")
	flag.IntVar(&f.replicas, "replicas", 1000, "replicas")
	flag.Float64Var(&f.prefill, "prefill", 8000, "tokens of prompts a second and replica")
	flag.Float64Var(&f.decode, "decode", 2000, "tokens of answers a second and replica")
	flag.IntVar(&f.blocks, "blocks", 1000, "blocks of 512 tokens in a replica's cache")
	flag.Float64Var(&s.rate, "rate", 450, "requests a second")
	flag.Float64Var(&s.seconds, "seconds", 900, "seconds of requests")
	trace := flag.String("trace", "", "file of Mooncake's format, instead of a made trace")
	copies := flag.Int("copies", 100, "of the file")
	flag.Parse()
	all := conversations(rand.New(rand.NewPCG(*seed, 1)), s)
	if *trace != "" {
		file, err := os.Open(*trace)
		if err == nil {
			all, err = readTrace(file, *copies)
		}
		if err != nil {
			log.Fatal(err)
		}
	}
	prompt, answer, shared := means(all)
	fmt.Printf("%d requests, %.0f tokens of prompt and %.0f of answer in the mean, %.0f%% of prompts' tokens seen "+
		"before\n\n", len(all), prompt, answer, 100*shared)
	fmt.Print("| rule | p50 to the first token | p99 | tokens found in caches | busiest replica | idlest |\n" +
		"|---|---|---|---|---|---|\n")
	for _, by := range rules {
		o := simulate(*seed, f, all, by)
		fmt.Printf("| %s | %.2f s | %.2f s | %.1f%% | %.2f | %.2f |\n", o.rule, o.p50, o.p99, 100*o.hits, o.busiest,
			o.spare)
	}
}
