package lab

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/tensor"
)

const logitsMagic = "_logits_"

// logitsFile is what llama-perplexity --kl-divergence-base writes: the magic; context, vocabulary and
// number of chunks as uint32; context ids for each chunk; and for each chunk and each
// position from half the context to the last but one a row: float32 scale, float32 least, and a
// uint16 q for each token and one more if those are odd in number. least + scale·q is the logarithm of
// the token's probability, but where q is 0: at most that.
type logitsFile struct {
	context, vocab, chunks int
	ids, rows              []byte
}

func parseLogits(b []byte) (*logitsFile, error) {
	const header = len(logitsMagic) + 12
	if len(b) < header || string(b[:len(logitsMagic)]) != logitsMagic {
		return nil, errors.New("not a file of llama-perplexity --kl-divergence-base: it does not begin with _logits_")
	}
	field := func(i int) int { return int(binary.LittleEndian.Uint32(b[len(logitsMagic)+4*i:])) }
	f := &logitsFile{context: field(0), vocab: field(1), chunks: field(2)}
	switch {
	case f.context < 3 || f.vocab < 1 || f.chunks < 1 || f.vocab > math.MaxInt32:
		return nil, fmt.Errorf("context %d, vocabulary %d, %d chunks", f.context, f.vocab, f.chunks)
	case f.chunks > maxPrompts || f.context > maxIDs/f.chunks:
		return nil, fmt.Errorf("%d chunks of %d tokens; at most %d chunks and %d tokens are read", f.chunks, f.context, maxPrompts, maxIDs)
	}
	ids := 4 * f.context * f.chunks
	rest := b[header:]
	if n := len(rest) - ids; n < 0 || n/f.rowBytes() != f.chunks*f.kept() || n%f.rowBytes() != 0 {
		return nil, fmt.Errorf("%d bytes after the header, want %d ids and %d rows of %d bytes", len(rest), ids/4, f.chunks*f.kept(), f.rowBytes())
	}
	f.ids, f.rows = rest[:ids], rest[ids:]
	return f, nil
}

func (f *logitsFile) kept() int     { return f.context - 1 - f.context/2 }
func (f *logitsFile) rowBytes() int { return 8 + (f.vocab+1)/2*4 }

// prompt is chunk i but for its last token, whose logits are not there.
func (f *logitsFile) prompt(i int) (*Prompt, error) {
	p := &Prompt{Index: i, IDs: decodeIDs(f.ids[4*i*f.context:][:4*(f.context-1)]), PositionsKept: f.kept()}
	size := f.rowBytes()
	rows := f.rows[i*f.kept()*size:][:f.kept()*size]
	data := make([]byte, 0, 4*f.kept()*f.vocab)
	for ; len(rows) > 0; rows = rows[size:] {
		scale := math.Float32frombits(binary.LittleEndian.Uint32(rows))
		least := math.Float32frombits(binary.LittleEndian.Uint32(rows[4:]))
		for j := range f.vocab {
			q := binary.LittleEndian.Uint16(rows[8+2*j:])
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(least+scale*float32(q)))
		}
	}
	p.Logits = &tensor.Tensor{DType: tensor.F32, Shape: tensor.Shape{f.kept(), f.vocab}, Data: data}
	return p, nil
}

func importLogits(path string) (*Import, error) {
	m, err := mmap.Open(path)
	if err != nil {
		return nil, err
	}
	var f *logitsFile
	if err = mmap.Guard(func() (err error) { f, err = parseLogits(m.Data()); return err }); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return &Import{Form: FormLogits, count: f.chunks, prompt: f.prompt, file: m,
		Numerics: json.RawMessage(`{"engine":"llama-perplexity","logits":"log-probabilities in 16 bits, none less than 16 nats below the largest"}`),
		Notes:    []string{"the logits are logarithms of probabilities in 16 bits; those 16 nats and more below the largest are all the same"}}, nil
}

// Begin sets the prompts' first ids to bos, as llama-perplexity does where a model wants a token that begins a text.
func (i *Import) Begin(bos int32) {
	prompt := i.prompt
	i.prompt = func(n int) (*Prompt, error) {
		p, err := prompt(n)
		if err == nil && len(p.IDs) > 0 {
			p.IDs[0] = bos
		}
		return p, err
	}
}
