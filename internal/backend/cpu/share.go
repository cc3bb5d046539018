package cpu

import "sync/atomic"

// loop is a loop for several workers in one word: its number, and how many blocks it
// has.
type loop uint64

const (
	blockBits = 20
	maxBlocks = 1<<blockBits - 1
	numbers   = 1 << (64 - 2*blockBits) // that loops have before they begin again
	renewal   = numbers / 16            // loops after which no share is older
)

func (l loop) number() uint64 { return uint64(l) >> (2 * blockBits) }

func (l loop) blocks() int { return int(l & maxBlocks) }

// of is as many blocks of l.
func (l loop) of(blocks int) loop { return l&^maxBlocks | loop(blocks) }

// next is the loop that follows l.
func (l loop) next(blocks int) loop { return loop((l.number()+1)<<(2*blockBits)) | loop(blocks) }

// before is the loop before l, of which nothing is left.
func (l loop) before() loop { return loop((l.number() - 1) << (2 * blockBits)) }

// workers is how many of a pool's workers have a share of l.
func (l loop) workers(threads int) int { return min(threads, l.blocks()) }

// share is the word for the blocks [from, to) of l.
func (l loop) share(from, to int) uint64 {
	return l.number()<<(2*blockBits) | uint64(to)<<blockBits | uint64(from)
}

// left is what a share's word says is left of a worker's share of l. The word of an
// earlier loop says that nobody has taken any: so a loop begins without writing to
// shares, each of which is in the cache of its worker. A later one's says that l is over.
func (l loop) left(word uint64, worker, threads int) (from, to int) {
	switch age := (l.number() - loop(word).number()) % numbers; {
	case age == 0:
		return int(word & maxBlocks), int(word >> blockBits & maxBlocks)
	case age > numbers/2:
		return 0, 0
	}
	n := l.workers(threads)
	return worker * l.blocks() / n, (worker + 1) * l.blocks() / n
}

// share is the blocks [from, to) of a loop that a worker begins with. It goes through
// them in order, so that what a kernel fetches behind a piece belongs to the next one.
type share struct {
	blocks atomic.Uint64 // see loop.share
	_      [120]byte     // so that no two are in a cache line, or in the next, which is fetched with it
}

// tally is how many blocks of a loop its worker has done; nobody else writes it.
type tally struct {
	loop atomic.Uint64 // see loop.of
	_    [120]byte
}
