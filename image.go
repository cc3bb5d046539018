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

// keptRows is the maximum bytes of pictures' rows kept for later turns of their conversations.
const keptRows = 256 << 20

// eye is a model's tower, opened at the first picture.
type eye struct {
	mu    sync.Mutex
	model *vision.Model
	seen  []*seenImage // the latest last
	bytes int
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
	if e.model == nil {
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

// see returns a picture's rows.
func (m *Model) see(ctx context.Context, data []byte) (s *seenImage, err error) {
	e := &m.eye
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.model == nil {
		if e.model, err = vision.Open(m.opened.Checkpoint.Tower, m.opened.Backend, ""); err != nil {
			return nil, err
		}
	}
	hash := sha256.Sum256(data)
	for i, s := range e.seen {
		if s.hash == hash {
			e.seen = append(append(e.seen[:i:i], e.seen[i+1:]...), s)
			return s, nil
		}
	}
	pixels, err := image.Decode(data, image.Limits{})
	if err != nil {
		return nil, err
	}
	s = &seenImage{hash: hash}
	if s.Picture, err = e.model.Prepare(pixels); err != nil {
		return nil, err
	}
	if s.Rows > m.opened.Engine.Context() {
		return nil, m.full()
	}
	if s.Values, err = e.model.Encode(ctx, s.Picture); err != nil {
		return nil, err
	}
	for _, row := range s.Values {
		s.bytes += 4 * len(row)
	}
	for e.bytes += s.bytes; e.bytes > keptRows && len(e.seen) > 0; e.seen = e.seen[1:] {
		e.bytes -= e.seen[0].bytes
	}
	e.seen = append(e.seen, s)
	return s, nil
}

// shown is a picture of a conversation.
type shown struct {
	Image
	message, part int // its place
}

// imagesOf returns the pictures of a conversation in order.
func imagesOf(messages []Message) (all []shown) {
	for i, m := range messages {
		for k, p := range m.Parts {
			switch p := p.(type) {
			case Image:
				all = append(all, shown{p, i, k})
			case ToolResult:
				for _, x := range p.Images {
					all = append(all, shown{x, i, k})
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

// look returns the ids of a conversation with pictures, and what stands in place of some ids. The template writes a
// text for each picture, which becomes the picture's marks, and a token for each of its rows.
func (m *Model) look(ctx context.Context, messages []Message, images []shown, o GenerateOptions) (ids []int32,
	mixed engine.Mixed, err error) {
	stage, err := m.stage(ctx, messages, images, o)
	if err != nil {
		return nil, mixed, err
	}
	if m.ExceedsContext(stage.text) {
		return nil, mixed, m.full()
	}
	var seen []*seenImage
	rows := 0
	for _, x := range images {
		s, err := m.see(ctx, x.Data)
		if err != nil && x.Name != "" && !errors.Is(err, ErrFull) {
			return nil, mixed, fmt.Errorf("%s: %w", x.Name, err)
		}
		if err != nil {
			return nil, mixed, &MessageError{x.message, fmt.Errorf("part %d: %w", x.part, err)}
		}
		if rows += s.Rows; rows > m.opened.Engine.Context() { // before the next is computed
			return nil, mixed, m.full()
		}
		seen = append(seen, s)
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
