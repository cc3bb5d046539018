package bench

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/karat-run/karat/internal/patherr"
)

// Quantizing holds the speed of quantizing a file to a type, by processes reading the file from the page
// cache and writing another. Karat's file is on the disk at the end.
type Quantizing struct {
	Type    string    `json:"type"`
	Threads int       `json:"n_threads"`
	Source  int64     `json:"source_bytes"`
	Bytes   int64     `json:"bytes"`
	Seconds []float64 `json:"samples_s"`
	Median  float64   `json:"median_s"`
	Peer    []float64 `json:"peer_samples_s,omitempty"`
	PeerS   float64   `json:"peer_median_s,omitempty"`
	Ratio   *Ratio    `json:"ratio,omitempty"`      // the peer's time to Karat's
	Same    bool      `json:"same_bytes,omitempty"` // the files of both are equal
}

// QuantizeOptions holds the types and the threads to measure.
type QuantizeOptions struct {
	File     string   // GGUF
	Types    []string // llama-quantize's names
	Threads  []int
	Repeat   int
	Self     string            // path of this program
	Peer     string            // path of llama-quantize, "" for none
	Progress func(test string) // may be nil
}

// Quantize measures each type with each number of threads, in turns with the peer. An error, such as ctx's,
// comes with the results so far.
func Quantize(ctx context.Context, o QuantizeOptions) (all []Quantizing, err error) {
	info, err := os.Stat(o.File)
	if err != nil {
		return nil, patherr.Plain(err)
	}
	if info.IsDir() {
		return nil, fmt.Errorf("%s is a folder, and quantizing starts from a GGUF file: karat convert makes one",
			o.File)
	}
	if o.Peer != "" {
		if err := (&Peer{Bench: o.Peer}).Check(nil); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp("", "karat-bench")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for _, threads := range o.Threads {
		for _, kind := range o.Types {
			q := Quantizing{Type: kind, Threads: threads, Source: info.Size()}
			if err = q.measure(ctx, dir, &o); err != nil {
				return all, err
			}
			all = append(all, q)
		}
	}
	return all, nil
}

// measure runs both programs in turns, each first in every other round, after an uncounted run.
func (q *Quantizing) measure(ctx context.Context, dir string, o *QuantizeOptions) error {
	ours, theirs := filepath.Join(dir, "karat.gguf"), filepath.Join(dir, "peer.gguf")
	threads := strconv.Itoa(q.Threads)
	p := &Peer{}
	runs := []func() error{func() error {
		s, err := p.timed(ctx, ours, o.Self, "quantize", "-t", threads, o.File, ours, q.Type)
		q.Seconds = append(q.Seconds, s)
		return err
	}}
	if o.Peer != "" {
		runs = append(runs, func() error {
			s, err := p.timed(ctx, theirs, o.Peer, o.File, theirs, q.Type, threads)
			q.Peer = append(q.Peer, s)
			return err
		})
	}
	for i := range o.Repeat + 1 {
		if o.Progress != nil {
			o.Progress(fmt.Sprintf("%s, threads %s, run %d of %d", q.Type, threads, i, o.Repeat))
		}
		if i == 0 {
			if err := runs[0](); err != nil {
				return err
			}
			p.expect(time.Duration(q.Seconds[0] * float64(time.Second)))
			q.Seconds = nil
			continue
		}
		for _, run := range runs {
			if err := run(); err != nil {
				return err
			}
		}
		slices.Reverse(runs)
	}
	return q.finish(ours, theirs)
}

// finish compares the files.
func (q *Quantizing) finish(ours, theirs string) error {
	q.Median, _ = spread(q.Seconds)
	info, err := os.Stat(ours)
	if err != nil {
		return patherr.Plain(err)
	}
	q.Bytes = info.Size()
	if len(q.Peer) == 0 {
		return nil
	}
	q.PeerS, _ = spread(q.Peer)
	q.Ratio = ratio(q.Peer, q.Seconds)
	q.Same, err = sameBytes(ours, theirs)
	return err
}

// timed returns the seconds of a process for writing the file at path, after removing the file. A sync at the
// end keeps writes of the system from burdening the next process.
func (p *Peer) timed(ctx context.Context, path, program string, args ...string) (float64, error) {
	if err := os.RemoveAll(path); err != nil {
		return 0, err
	}
	start := time.Now()
	if _, err := p.output(ctx, program, args...); err != nil {
		return 0, err
	}
	took := time.Since(start).Seconds()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", program, err)
	}
	return took, nil
}

// sameBytes reports whether two files have the same bytes.
func sameBytes(a, b string) (bool, error) {
	x, errA := digest(a)
	y, errB := digest(b)
	return x == y, errors.Join(errA, errB)
}

// digest returns the SHA-256 of a file.
func digest(path string) (sum [sha256.Size]byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return sum, patherr.Plain(err)
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	h.Sum(sum[:0])
	return sum, err
}

// WriteQuantizing writes the results as a Markdown table.
func WriteQuantizing(w io.Writer, all []Quantizing) error {
	lines := "| type | threads | s | MB/s read | peer s | ratio | same bytes |\n|---|---|---|---|---|---|---|\n"
	for _, q := range all {
		peer, same := "", ""
		if q.Ratio != nil {
			peer, same = fmt.Sprintf("%.2f", q.PeerS), map[bool]string{false: "no", true: "yes"}[q.Same]
		}
		lines += fmt.Sprintf("| %s | %d | %.2f | %.0f | %s | %v | %s |\n", q.Type, q.Threads, q.Median,
			float64(q.Source)/1e6/q.Median, peer, q.Ratio, same)
	}
	_, err := io.WriteString(w, lines)
	return err
}
