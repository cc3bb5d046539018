package karat

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/image"
	"github.com/karat-run/karat/internal/tokenizer"
	"github.com/karat-run/karat/internal/vision"
)

// ErrBlind is the error of a picture for a model that sees none.
var ErrBlind = errors.New("the model sees no pictures")

// ErrPictureIDs is the error of a prompt of ids with a picture's, such as TokenizeChat's: Chat takes pictures.
var ErrPictureIDs = errors.New("the id is a picture's, and ids do not say what a picture shows")

// keptRows is the maximum bytes of pictures' rows kept for later turns of their conversations. The pictures of the
// latest prompt are kept whatever their size: else a long conversation would compute each again in each turn.
var keptRows = 256 << 20

// readers is the maximum number of pictures held at a time as pixels or patches: each may have 64 megapixels, and 300
// MB of patches wait for the tower.
const readers = 2

// eye is a model's tower, opened at the first picture.
type eye struct {
	reading chan struct{} // has an element for each picture held as pixels or patches

	mu     sync.Mutex
	model  *vision.Model
	closed bool
	seen   []*seenImage // the latest last
	bytes  int
	busy   map[[sha256.Size]byte]chan struct{} // closed when a picture's rows are computed
}

// seenImage is a picture with its rows.
type seenImage struct {
	vision.Seen
	hash  [sha256.Size]byte
	bytes int
}

// close frees the tower.
func (e *eye) close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed = true; e.model == nil {
		return nil
	}
	return e.model.Close()
}

// Sees reports whether the model sees pictures.
func (m *Model) Sees() bool { return m.opened.Checkpoint.Tower != nil }

// blind returns the error of pictures for a model that sees none.
func (m *Model) blind() error {
	if m.Sees() {
		return nil
	}
	return fmt.Errorf("%w: %s has no part for pictures; take a model that sees, or send text alone", ErrBlind,
		m.opened.Checkpoint.Path)
}

// see returns a picture's rows. Of a picture in several prompts at a time, one computes them.
func (m *Model) see(ctx context.Context, data []byte) (*seenImage, error) {
	e, hash := &m.eye, sha256.Sum256(data)
	for {
		s, other, err := e.find(m, hash)
		if s != nil || err != nil {
			return s, err
		}
		if other == nil {
			break
		}
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	var s *seenImage
	defer func() { e.settle(hash, s) }()
	s, err := m.encode(ctx, data)
	return s, err
}

// settle ends the wait for a picture's rows, and keeps the rows, if any.
func (e *eye) settle(hash [sha256.Size]byte, s *seenImage) {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.busy[hash])
	delete(e.busy, hash)
	if s == nil {
		return
	}
	s.hash = hash
	e.bytes += s.bytes
	e.seen = append(e.seen, s)
}

// forget drops rows seen before those of the latest prompt, down to the maximum.
func (e *eye) forget(latest []*seenImage) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen = slices.DeleteFunc(e.seen, func(s *seenImage) bool {
		drop := e.bytes > keptRows && !slices.Contains(latest, s)
		if drop {
			e.bytes -= s.bytes
		}
		return drop
	})
}

// ready opens the tower, unless it is open.
func (e *eye) ready(m *Model) (err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return ErrClosed
	case e.model != nil:
		return nil
	}
	if e.model, err = vision.Open(m.opened.Checkpoint.Tower, m.opened.Backend, ""); err == nil {
		e.reading, e.busy = make(chan struct{}, readers), map[[sha256.Size]byte]chan struct{}{}
	}
	return err
}

// find returns a picture seen before, or else the channel closed when another prompt's rows of it are computed. Without
// either, the caller computes them.
func (e *eye) find(m *Model, hash [sha256.Size]byte) (s *seenImage, other <-chan struct{}, err error) {
	if err := e.ready(m); err != nil {
		return nil, nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, s := range e.seen {
		if s.hash == hash {
			e.seen = append(append(e.seen[:i:i], e.seen[i+1:]...), s)
			return s, nil, nil
		}
	}
	if other := e.busy[hash]; other != nil {
		return nil, other, nil
	}
	e.busy[hash] = make(chan struct{})
	return nil, nil, nil
}

// measure returns a picture without its rows, by the size in the file.
func (m *Model) measure(_ context.Context, data []byte) (*seenImage, error) {
	if err := m.eye.ready(m); err != nil {
		return nil, err
	}
	width, height, err := image.Size(data, image.Limits{})
	if err != nil {
		return nil, err
	}
	p, err := m.eye.model.Prepare(&image.Image{Width: width, Height: height})
	if err != nil {
		return nil, err
	}
	if p.Rows > m.opened.Engine.Context() {
		return nil, m.full()
	}
	return &seenImage{Seen: vision.Seen{Picture: p}}, nil
}

// encode computes a picture's rows, beside few others.
func (m *Model) encode(ctx context.Context, data []byte) (*seenImage, error) {
	if _, err := m.measure(ctx, data); err != nil { // before it takes memory
		return nil, err
	}
	select {
	case m.eye.reading <- struct{}{}:
		defer func() { <-m.eye.reading }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	pixels, err := image.Decode(data, image.Limits{Stop: func() error { return context.Cause(ctx) }})
	if err != nil {
		return nil, err
	}
	p, err := m.eye.model.Prepare(pixels)
	if err != nil {
		return nil, err
	}
	defer p.Release() // larger than the rows
	s := &seenImage{Seen: vision.Seen{Picture: p}}
	switch s.Values, err = m.eye.model.Encode(ctx, p); {
	case errors.Is(err, vision.ErrClosed):
		return nil, ErrClosed
	case err != nil:
		return nil, err
	}
	for _, row := range s.Values {
		s.bytes += 4 * len(row)
	}
	return s, nil
}

// shown is a picture of a conversation.
type shown struct {
	Image
	message, part int // its place
	rows          int // as look has seen
}

// imagesOf returns the pictures of a conversation in order.
func imagesOf(messages []Message) (all []shown) {
	for i, m := range messages {
		for k, p := range m.Parts {
			switch p := p.(type) {
			case Image:
				all = append(all, shown{p, i, k, 0})
			case ToolResult:
				for _, x := range p.Images {
					all = append(all, shown{x, i, k, 0})
				}
			}
		}
	}
	return all
}

// scene is a rendered conversation with pictures.
type scene struct {
	text   string
	said   []tokenizer.Span // of messages
	places []tokenizer.Span // of the pictures
	around [2]string        // texts around each, not yet written
}

// stage renders a conversation with pictures. A template that takes no lists of parts gets a word for each picture, in
// whose place comes the text that the model's own template has.
func (m *Model) stage(ctx context.Context, messages []Message, images []shown, o GenerateOptions) (s scene, err error) {
	if err := m.blind(); err != nil {
		return s, err
	}
	for i := range messages {
		if err := messages[i].check(); err != nil {
			return s, &MessageError{i, err}
		}
	}
	kind := m.opened.Checkpoint.Tower.Kind
	s.text, s.said, err = m.conversation(ctx, messages, o)
	if err == nil {
		s.places = outside(s.text, kind.Image, s.said)
	}
	if len(s.places) > 0 || ctx == nil || ctx.Err() != nil || errors.Is(err, ErrFull) {
		return s, err
	}
	word := pictureWord(messages)
	text, said, refused := m.conversation(ctx, worded(messages, word), o)
	places := outside(text, word, nil)
	if refused != nil || len(places) != len(images) {
		return s, err
	}
	return scene{text, without(said, places), places, kind.Around}, nil
}

// pictureWord returns a word that is in no message.
func pictureWord(messages []Message) string {
	h := sha256.New()
	for _, m := range messages {
		for _, p := range m.Parts {
			switch p := p.(type) {
			case Text:
				fmt.Fprintf(h, "%q", p)
			case ToolResult:
				fmt.Fprintf(h, "%q", p.Content)
			}
		}
	}
	return fmt.Sprintf("picture%x", h.Sum(nil))
}

// worded returns messages with a word for each picture.
func worded(messages []Message, word string) []Message {
	messages = slices.Clone(messages)
	for i := range messages {
		parts := slices.Clone(messages[i].Parts)
		for k, p := range parts {
			switch p := p.(type) {
			case Image:
				parts[k] = Text(word)
			case ToolResult:
				p.Content += strings.Repeat(word, len(p.Images))
				p.Images, parts[k] = nil, p
			}
		}
		messages[i].Parts = parts
	}
	return messages
}

// without returns spans less the places, both ascending.
func without(spans, places []tokenizer.Span) (rest []tokenizer.Span) {
	for _, s := range spans {
		for _, p := range places {
			if p.From >= s.From && p.To <= s.To {
				if s.From < p.From {
					rest = append(rest, tokenizer.Span{From: s.From, To: p.From})
				}
				s.From = p.To
			}
		}
		if s.From < s.To {
			rest = append(rest, s)
		}
	}
	return rest
}

// look returns the ids of a conversation with pictures as see returns them, and what stands in place of some ids. The
// template writes a text for each picture, which becomes the picture's marks, and a token for each of its rows.
func (m *Model) look(ctx context.Context, messages []Message, images []shown, o GenerateOptions,
	see func(ctx context.Context, data []byte) (*seenImage, error)) (ids []int32, mixed engine.Mixed, err error) {
	stage, err := m.stage(ctx, messages, images, o)
	if err != nil {
		return nil, mixed, err
	}
	if m.ExceedsContext(stage.text) {
		return nil, mixed, m.full()
	}
	var seen []*seenImage
	defer func() {
		if len(seen) > 0 && seen[0].Values != nil {
			m.eye.forget(seen)
		}
	}()
	rows := 0
	for i, x := range images {
		s, err := see(ctx, x.Data)
		if err != nil && x.Name != "" && !errors.Is(err, ErrFull) {
			return nil, mixed, fmt.Errorf("%s: %w", x.Name, err)
		}
		if err != nil {
			return nil, mixed, &MessageError{x.message, fmt.Errorf("part %d: %w", x.part, err)}
		}
		if rows += s.Rows; rows > m.opened.Engine.Context() { // before the next is computed
			return nil, mixed, m.full()
		}
		seen, images[i].rows = append(seen, s), s.Rows
	}
	kind := m.opened.Checkpoint.Tower.Kind
	id, ok := m.opened.Tokenizer.ID(kind.Image)
	if !ok {
		return nil, mixed, fmt.Errorf("%s: the tokenizer has no token %s for pictures", m.opened.Checkpoint.Path,
			kind.Image)
	}
	if n := len(stage.places); n != len(images) {
		return nil, mixed, fmt.Errorf("the chat template writes %d of %d pictures (%s)", n, len(images), kind.Image)
	}
	var b strings.Builder
	var tokens []*vision.Row // of the tokens with the id, in order; nil for a mark's
	at, moved, literal := 0, stage.said, []tokenizer.Span(nil)
	end := len(stage.text)
	for i, place := range append(stage.places, tokenizer.Span{From: end, To: end}) {
		for ; len(moved) > 0 && moved[0].From < place.From; moved = moved[1:] {
			by := b.Len() - at
			literal = append(literal, tokenizer.Span{From: moved[0].From + by, To: moved[0].To + by})
		}
		b.WriteString(stage.text[at:place.From])
		if at = place.To; i < len(seen) {
			b.WriteString(stage.around[0])
			tokens = seen[i].Write(&b, kind.Image, tokens)
			b.WriteString(stage.around[1])
		}
	}
	ids, err = m.prompt(ctx, b.String(), tokenizer.Options{ParseSpecial: true, Literal: literal})
	if err != nil {
		return nil, mixed, err
	}
	mixed, err = m.mix(ids, int32(id), tokens)
	return ids, mixed, err
}

// picture returns the place of an id that stands for a row of a picture, -1 if there is none.
func (m *Model) picture(ids []int32) int {
	tower := m.opened.Checkpoint.Tower
	if tower == nil {
		return -1
	}
	id, ok := m.opened.Tokenizer.ID(tower.Kind.Image)
	return slices.IndexFunc(ids, func(x int32) bool {
		return ok && x == int32(id) || tower.Kind.Padded && x == 0
	})
}

// outside returns the places of a marker in text outside of spans, which ascend.
func outside(text, marker string, said []tokenizer.Span) (places []tokenizer.Span) {
	for at := 0; ; at++ {
		i := strings.Index(text[at:], marker)
		if i < 0 {
			return places
		}
		at += i
		for len(said) > 0 && said[0].To <= at {
			said = said[1:]
		}
		if len(said) == 0 || said[0].From >= at+len(marker) {
			places = append(places, tokenizer.Span{From: at, To: at + len(marker)})
		}
	}
}

// mix places rows at the tokens of pictures among ids.
func (m *Model) mix(ids []int32, id int32, rows []*vision.Row) (mixed engine.Mixed, err error) {
	x, err := m.eye.model.Mix(ids, id, rows)
	mixed = engine.Mixed{Embeddings: x.Embeddings, Groups: x.Groups}
	if m.opened.Engine.Turns() {
		mixed.Parts = x.Parts
	}
	return mixed, err
}
