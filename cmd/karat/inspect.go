package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/check"
	"github.com/karat-run/karat/internal/checkpoint"
	modelsettings "github.com/karat-run/karat/internal/checkpoint/settings"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/image"
	"github.com/karat-run/karat/internal/model"
	"github.com/karat-run/karat/internal/tokenizer"
	"github.com/karat-run/karat/internal/vision"
	"github.com/spf13/cobra"
)

// inspectFlags are the flags of inspect.
type inspectFlags struct {
	graph, metadata, tensors, template, json bool
}

func newInspectCommand() *cobra.Command {
	var f inspectFlags
	c := define("inspect", f.run)
	c.takesModel()
	c.flags("graph", &f.graph, "metadata", &f.metadata, "tensors", &f.tensors, "template", &f.template, "json", &f.json)
	return c.Command
}

func (f *inspectFlags) run(x *call) error {
	if f.json && (f.graph || f.metadata || f.tensors || f.template) {
		return usagef("--json holds every section; give it alone")
	}
	path := must(x.find())
	sayDemo(path, x.log)
	if t, file, err := checkpoint.OpenProjector(path); err == nil {
		defer file.Close()
		return f.tower(x, t)
	}
	m, err := openCheckpoint(path)
	if err != nil {
		return f.contents(x, path, err)
	}
	throw(checkpoint.FitProjector(m, ""))
	defer m.Close()
	g, notes, broken := model.Graph(x.ctx, m, 0)
	if f.graph {
		if broken != nil {
			return broken
		}
		return graph.Print(x.out, g)
	}
	r := newReport(m, notes)
	if broken == nil {
		r.Next = m.Values.Int(m.Family.NextKey())
		r.Memory, r.Latents, r.States = memoryPerToken(g), latents(g.KVs()), backend.StateBytes(g)
		r.Encoder, broken = describeEncoder(m, g)
	}
	if r.Tower, err = describeTower(m.Tower); err != nil {
		r.Notes = append(r.Notes, fmt.Sprintf("pictures are not read: %v", err))
	}
	// The contents of the files are shown all the same, as a help in finding the fault.
	t, err := m.Tokenizer()
	if err == nil {
		r.setTokenizer(x.ctx, t, m.EndOfTurn(t))
	}
	return errors.Join(f.show(x, r), broken, err)
}

// tower shows a file of a part for pictures.
func (f *inspectFlags) tower(x *call, t *checkpoint.Tower) error {
	g, _, broken := arch.Tower(t)
	if f.graph {
		if broken != nil {
			return broken
		}
		return graph.Print(x.out, g)
	}
	m := must(checkpoint.Contents(t.Path))
	defer m.Close()
	r := newReport(m, nil)
	if broken == nil {
		r.Tower, broken = describeTower(t)
	}
	return errors.Join(f.show(x, r), broken)
}

// contents shows files without a model, and returns why, the reason.
func (f *inspectFlags) contents(x *call, path string, why error) error {
	m, err := checkpoint.Contents(path)
	if err != nil || f.graph {
		return why
	}
	defer m.Close()
	r := newReport(m, nil)
	if t, err := checkpoint.OpenTokenizer(path); err == nil {
		r.setTokenizer(x.ctx, t, t.EndOfTurn())
	}
	return errors.Join(f.show(x, r), why)
}

// show prints the requested sections.
func (f *inspectFlags) show(x *call, r *report) error {
	switch {
	case f.json:
		return x.json(r)
	case f.metadata || f.tensors || f.template:
		text, err := f.sections(x, r)
		return cmp.Or(x.printf("%s", text), err)
	}
	return x.printf("%s", r.text())
}

// report is the facts about a model.
type report struct {
	Path          string `json:"path"`
	Format        string `json:"format"`
	Packing       string `json:"packing,omitempty"` // of a folder's quantized weights
	Architecture  string `json:"architecture"`
	Parameters    int64  `json:"parameters"`
	Bytes         int64  `json:"bytes"` // of the tensors
	ContextLength int    `json:"context_length,omitempty"`

	Types     []typeUse          `json:"types"`
	Memory    []tokenMemory      `json:"memory_per_token"`
	Latents   *latentFacts       `json:"latents,omitempty"`
	States    int64              `json:"state_bytes,omitempty"` // of a sequence, whatever its length
	Next      int                `json:"next_layers,omitempty"` // behind the last, predicting further tokens
	Encoder   *encoderFacts      `json:"encoder,omitempty"`
	Tower     *towerFacts        `json:"tower,omitempty"`
	Tokenizer *tokenizerFacts    `json:"tokenizer,omitempty"`
	Template  *templateFacts     `json:"chat_template,omitempty"`
	Sampling  map[string]float64 `json:"recommended_sampling,omitempty"`
	Notes     []string           `json:"notes,omitempty"`
	Metadata  []setting          `json:"metadata"`
	Tensors   []tensorFacts      `json:"tensors"`
}

type setting struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// typeUse is the share of an element type in a model.
type typeUse struct {
	Type       string `json:"type"`
	Tensors    int    `json:"tensors"`
	Parameters int64  `json:"parameters"`
	Bytes      int64  `json:"bytes"`
}

type tensorFacts struct {
	Name   string `json:"name"`
	Type   string `json:"type"`
	Shape  []int  `json:"shape"`
	Bytes  int64  `json:"bytes"`
	File   string `json:"file,omitempty"`
	Offset *int64 `json:"offset,omitempty"` // in the file, if known
}

// templateFacts identifies a chat template.
type templateFacts struct {
	SHA256 string `json:"sha256"`
	Bytes  int    `json:"bytes"`
	Text   string `json:"text"`

	LostMarkers []string `json:"lost_markers,omitempty"` // special tokens built from content
}

type tokenizerFacts struct {
	Vocabulary int         `json:"vocabulary"`
	BOS        *tokenName  `json:"bos,omitempty"`
	AddsBOS    bool        `json:"adds_bos"`
	EOS        *tokenName  `json:"eos,omitempty"`
	End        []tokenName `json:"end_of_turn"` // ends of an answer
}

type tokenName struct {
	ID    int    `json:"id"`
	Piece string `json:"piece"`
}

func (t tokenName) String() string { return fmt.Sprintf("%s (%d)", oneLine(t.Piece), t.ID) }

// tokenMemory is the memory for keys and values of a further token, up to a number of tokens (0: beyond the entry
// before).
type tokenMemory struct {
	UpTo int   `json:"up_to,omitempty"`
	Q8   int64 `json:"q8_0"` // behind the newest positions
	F16  int64 `json:"f16"`
	F32  int64 `json:"f32"`
}

func newReport(m *checkpoint.Checkpoint, notes []string) *report {
	r := &report{Path: m.Path, Format: string(m.Format), Packing: m.Packing, Architecture: m.Arch, Bytes: m.Bytes(),
		ContextLength: m.ContextLength(), Template: describeTemplate(m.Template()),
		Sampling: recommended(m.Generation()), Notes: notes}
	for _, e := range m.Metadata {
		r.Metadata = append(r.Metadata, setting{e.Key, e.Value})
	}
	r.setTensors(m)
	return r
}

// sections returns the requested sections, whole.
func (f *inspectFlags) sections(x *call, r *report) (string, error) {
	var b strings.Builder
	if f.metadata {
		for _, s := range r.Metadata {
			fmt.Fprintf(&b, "%s = %s\n", oneLine(s.Key), oneLine(s.Value))
		}
	}
	if f.tensors {
		r.writeTensors(&b)
	}
	switch {
	case !f.template:
	case r.Template == nil:
		return b.String(), fmt.Errorf("%s: the model has no chat template", r.Path)
	case isTerminal(x.out):
		b.WriteString(printable(r.Template.Text) + "\n")
	default:
		b.WriteString(r.Template.Text)
	}
	return b.String(), nil
}

func (r *report) writeTensors(b *strings.Builder) {
	t := newTable(b)
	defer t.Flush()
	for _, x := range r.Tensors {
		where := ""
		if x.Offset != nil {
			where = fmt.Sprintf("at %d", *x.Offset)
		}
		if x.File != "" && x.File != r.Path {
			where += " of " + oneLine(filepath.Base(x.File))
		}
		fmt.Fprintf(t, "%s\t%s\t%v\t%s\t%s\n", oneLine(x.Name), x.Type, x.Shape, bytesText(x.Bytes), where)
	}
}

// text returns a summary of everything.
func (r *report) text() string {
	var b strings.Builder
	t := newTable(&b)
	fmt.Fprintf(t, "model\t%s\n", oneLine(r.Path))
	fmt.Fprintf(t, "format\t%s\n", r.Format)
	if r.Packing != "" {
		fmt.Fprintf(t, "packing\t%s\n", oneLine(r.Packing))
	}
	fmt.Fprintf(t, "architecture\t%s\n", r.Architecture)
	fmt.Fprintf(t, "parameters\t%s\n", digits(r.Parameters))
	fmt.Fprintf(t, "weights\t%s\n", bytesText(r.Bytes))
	if r.Next > 0 {
		fmt.Fprintf(t, "drafts\tby its own head (layers behind the last that predict further tokens: %d)\n", r.Next)
	}
	if r.ContextLength > 0 {
		fmt.Fprintf(t, "context\t%s tokens\n", digits(int64(r.ContextLength)))
	}
	if r.Tower != nil {
		r.Tower.write(t)
	}
	if r.Architecture != "clip" { // which has no text
		r.writeText(t)
	}
	t.Flush()
	r.writeTypes(&b)
	r.writeMemory(&b)
	r.writeKinds(&b)
	r.writeMetadata(&b)
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "\nnote: %s", oneLine(n))
	}
	if len(r.Notes) > 0 {
		b.WriteByte('\n')
	}
	return b.String()
}

// writeText describes tokenizer, template and sampling.
func (r *report) writeText(w io.Writer) {
	if k := r.Tokenizer; k != nil {
		fmt.Fprintf(w, "vocabulary\t%s tokens\n", digits(int64(k.Vocabulary)))
		switch {
		case k.AddsBOS:
			fmt.Fprintf(w, "begins a text\t%v\n", k.BOS)
		case k.BOS != nil:
			fmt.Fprintf(w, "begins a text\tnothing; BOS is %v\n", k.BOS)
		}
		if r.Encoder != nil { // an encoder has no turns
			r.Encoder.write(w)
			return
		}
		var ends []string
		for _, e := range k.End {
			ends = append(ends, e.String())
		}
		fmt.Fprintf(w, "ends an answer\t%s\n", strings.Join(ends, ", "))
	}
	if r.Template == nil {
		fmt.Fprintf(w, "chat template\tnone\n")
	} else {
		fmt.Fprintf(w, "chat template\t%s, sha256 %s\n", count(r.Template.Bytes, "byte"), r.Template.SHA256)
		if lost := r.Template.LostMarkers; len(lost) > 0 {
			fmt.Fprintf(w, "markers as text\t%s: the template builds them from the conversation's text\n",
				oneLine(strings.Join(lost, ", ")))
		}
	}
	if len(r.Sampling) == 0 {
		fmt.Fprintf(w, "sampling\tthe file recommends none: greedy\n")
		return
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(r.Sampling)) {
		list = append(list, fmt.Sprintf("%s %v", name, r.Sampling[name]))
	}
	fmt.Fprintf(w, "sampling\t%s (recommended)\n", strings.Join(list, ", "))
}

func (r *report) writeTypes(b *strings.Builder) {
	t := newTable(b)
	fmt.Fprintf(t, "\ntype\ttensors\tparameters\tbytes\n")
	for _, u := range r.Types {
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\n", u.Type, u.Tensors, digits(u.Parameters), bytesText(u.Bytes))
	}
	t.Flush()
}

func (r *report) writeMemory(b *strings.Builder) {
	if r.Memory == nil {
		return
	}
	t := newTable(b)
	fmt.Fprintf(t, "\nmemory for each token of context\t--kv q8_0\t--kv f16\t--kv f32\n")
	for i, m := range r.Memory {
		where := "all layers see all tokens"
		switch {
		case m.UpTo > 0:
			where = fmt.Sprintf("inside the window of %d", m.UpTo)
		case i > 0:
			where = "beyond it"
		}
		if m.F16 == 0 && r.States > 0 {
			where = "no layer keeps keys and values"
		}
		fmt.Fprintf(t, "%s\t%s B\t%s B\t%s B\n", where, digits(m.Q8), digits(m.F16), digits(m.F32))
	}
	if r.States > 0 {
		fmt.Fprintf(t, "states of convolutions and scans, once a sequence\t%[1]s B\t%[1]s B\t%[1]s B\n",
			digits(r.States))
	}
	t.Flush()
	if l := r.Latents; l != nil {
		fmt.Fprintf(b, "latents: %d numbers for each token in each of %d layers, %d of which the CPU keeps twice\n",
			l.Numbers, l.Layers, l.Twice)
	}
}

// layerNumber matches the number of a layer or an expert in a tensor's name.
var layerNumber = regexp.MustCompile(`\.\d+\.`)

// writeKinds summarizes the tensors: a line for all tensors of the same name in other layers.
func (r *report) writeKinds(b *strings.Builder) {
	type kind struct{ name, typ, shape string }
	count, size := map[kind]int{}, map[kind]int64{}
	var order []kind
	for _, x := range r.Tensors {
		k := kind{layerNumber.ReplaceAllString(oneLine(x.Name), ".*."), x.Type, fmt.Sprint(x.Shape)}
		if count[k] == 0 {
			order = append(order, k)
		}
		count[k]++
		size[k] += x.Bytes
	}
	t := newTable(b)
	fmt.Fprintf(t, "\ntensors\t\ttype\tshape\tbytes\n")
	for _, k := range order {
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\n", k.name, count[k], k.typ, k.shape, bytesText(size[k]))
	}
	t.Flush()
}

func (r *report) writeMetadata(b *strings.Builder) {
	const most = 80 // characters of a value
	t := newTable(b)
	fmt.Fprintf(t, "\nmetadata\n")
	for _, s := range r.Metadata {
		fmt.Fprintf(t, "%s\t%s\n", oneLine(s.Key), oneLine(shorten(s.Value, most)))
	}
	t.Flush()
}

// memoryPerToken lists the memory of a further token in g's stores: up to the smallest window all of them grow, beyond
// it the stores with a longer reach, and so on.
func memoryPerToken(g *graph.Graph) []tokenMemory {
	stores := g.KVs()
	var windows []int
	for _, s := range stores {
		if s.Window > 0 && !slices.Contains(windows, s.Window) {
			windows = append(windows, s.Window)
		}
	}
	slices.Sort(windows)
	list := make([]tokenMemory, len(windows)+1)
	for i := range list {
		if i < len(windows) {
			list[i].UpTo = windows[i]
		}
		for _, s := range stores {
			if s.Window == 0 || i < len(windows) && s.Window >= windows[i] {
				list[i].F16 += backend.PositionBytes(s, 2)
				list[i].F32 += backend.PositionBytes(s, 4)
				list[i].Q8 += backend.OlderBytes(g, s, 2)
			}
		}
	}
	return list
}

// latentFacts are the stores with a latent for each position, in place of keys and values.
type latentFacts struct {
	Layers  int `json:"layers"`
	Numbers int `json:"numbers"` // of a token in a layer
	Twice   int `json:"twice"`   // stores kept a second time by the CPU
}

// latents returns nil for a model without latents. All stores of a model are alike.
func latents(stores []*graph.KV) *latentFacts {
	var l *latentFacts
	for _, s := range stores {
		if s.Latent {
			if l == nil {
				l = &latentFacts{Numbers: s.Heads * s.Dim, Twice: s.Heads * s.Values()}
			}
			l.Layers++
		}
	}
	return l
}

// setTensors lists the tensors, and the share of each type in the model.
func (r *report) setTensors(m *checkpoint.Checkpoint) {
	places := tensorPlaces(m)
	byType := map[string]*typeUse{}
	for _, t := range m.Tensors() {
		facts := tensorFacts{Name: t.Name, Type: t.DType.String(), Shape: t.Shape, Bytes: int64(t.Stored())}
		if p, ok := places[t.Name]; ok {
			facts.File, facts.Offset = p.file, &p.offset
		}
		r.Tensors = append(r.Tensors, facts)
		use := byType[facts.Type]
		if use == nil {
			use = &typeUse{Type: facts.Type}
			byType[facts.Type] = use
		}
		use.Tensors++
		use.Parameters += int64(t.Shape.Size())
		use.Bytes += facts.Bytes
		r.Parameters += int64(t.Shape.Size())
	}
	for _, use := range byType {
		r.Types = append(r.Types, *use)
	}
	slices.SortFunc(r.Types, func(a, b typeUse) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Type, b.Type))
	})
}

// place is where a tensor's data begins.
type place struct {
	file   string
	offset int64
}

// tensorPlaces finds the tensors of a GGUF file. Checkpoints have no places, since loaded models have no use for them.
func tensorPlaces(m *checkpoint.Checkpoint) map[string]place {
	if m.Format != checkpoint.GGUF {
		return nil
	}
	var f *gguf.File
	var err error
	if m.Path == demoName {
		f, err = gguf.Parse(demo)
	} else {
		f, err = gguf.Open(m.Path)
	}
	if err != nil { // the file has gone since its opening
		return nil
	}
	defer f.Close()
	places := map[string]place{}
	for _, t := range f.Tensors() {
		if path, offset, ok := f.Place(t.Name); ok {
			places[t.Name] = place{path, offset}
		}
	}
	return places
}

// setTokenizer describes the tokenizer.
func (r *report) setTokenizer(ctx context.Context, t *tokenizer.Tokenizer, ends []int) {
	facts := &tokenizerFacts{Vocabulary: t.VocabSize(), AddsBOS: t.AddsBOS()}
	facts.BOS, facts.EOS = named(t, t.BOS), named(t, t.EOS)
	for _, id := range ends {
		piece, _ := t.Token(id)
		facts.End = append(facts.End, tokenName{id, piece})
	}
	r.Tokenizer = facts
	if r.Template != nil { // a broken template is a matter for check
		r.Template.LostMarkers, _ = check.LostMarkers(ctx, r.Template.Text, t)
	}
}

func named(t *tokenizer.Tokenizer, get func() (int, bool)) *tokenName {
	id, ok := get()
	if !ok {
		return nil
	}
	piece, _ := t.Token(id)
	return &tokenName{id, piece}
}

// describeTemplate returns nil if there is no template.
func describeTemplate(text string) *templateFacts {
	if text == "" {
		return nil
	}
	sum := sha256.Sum256([]byte(text))
	return &templateFacts{SHA256: hex.EncodeToString(sum[:]), Bytes: len(text), Text: text}
}

// recommended returns the publisher's recommendation for sampling, by the names of generation_config.json; nil for
// greedy.
func recommended(g modelsettings.Generation) map[string]float64 {
	s := map[string]float64{}
	for name, v := range map[string]float64{"temperature": g.Temperature, "top_k": float64(g.TopK), "top_p": g.TopP,
		"min_p": g.MinP} {
		if g.Sample && v != 0 {
			s[name] = v
		}
	}
	if g.Repeat != 0 {
		s["repetition_penalty"] = g.Repeat
	}
	return s
}

// encoderFacts are an encoder's results for a text, or for two.
type encoderFacts struct {
	Features int      `json:"features,omitempty"` // of a vector
	Pooling  string   `json:"pooling,omitempty"`
	Dense    int      `json:"dense,omitempty"` // layers behind the pooling
	Unit     bool     `json:"normalized,omitempty"`
	Prompts  []string `json:"prompts,omitempty"`
	Ranks    bool     `json:"reranks,omitempty"`
}

// describeEncoder returns nil for a generating model.
func describeEncoder(m *checkpoint.Checkpoint, g *graph.Graph) (*encoderFacts, error) {
	if g == nil || !g.Bidirectional() {
		return nil, nil
	}
	f := &encoderFacts{}
	_, err := m.Ranking()
	f.Ranks = err == nil
	h, err := m.Embedding()
	if err != nil {
		return nil, err
	}
	if h.Pooling != "" || !f.Ranks {
		f.Features, f.Pooling = h.Features(model.Hidden(g).Shape.Size()), string(h.Pooling)
		f.Dense, f.Unit = len(h.Dense), h.Normalize
		f.Prompts = slices.Sorted(maps.Keys(h.Prompts))
	}
	return f, nil
}

func (f *encoderFacts) write(w io.Writer) {
	if f.Ranks {
		fmt.Fprintf(w, "makes\ta score of a query and a document (karat rerank)\n")
	}
	if f.Features == 0 {
		return
	}
	parts := []string{fmt.Sprintf("%d features", f.Features), "pooling " + f.Pooling}
	if f.Pooling == "" {
		parts[1] = "pooling unknown: give --pooling"
	}
	if f.Dense > 0 {
		parts = append(parts, count(f.Dense, "dense layer"))
	}
	if f.Unit {
		parts = append(parts, "normalized")
	}
	fmt.Fprintf(w, "makes\tvectors (karat embed): %s\n", strings.Join(parts, ", "))
	if len(f.Prompts) > 0 {
		fmt.Fprintf(w, "prompts\t%s\n", oneLine(strings.Join(f.Prompts, ", ")))
	}
}

// towerFacts are facts about a model's part for pictures.
type towerFacts struct {
	Kind   string         `json:"kind"` // llama.cpp's name of the projector
	File   string         `json:"file"`
	Layers int            `json:"layers"`
	Width  int            `json:"width"`
	Row    int            `json:"row"` // numbers of a row for the text
	Patch  int            `json:"patch"`
	Side   int            `json:"side"`                 // patches along a row's block
	Image  int            `json:"image_size,omitempty"` // pixels along the side, as the settings say
	Tokens map[string]int `json:"tokens"`               // of pictures by their sizes
}

// shownSizes are the sizes of pictures whose tokens are counted.
var shownSizes = [][2]int{{224, 224}, {640, 480}, {1920, 1080}}

// describeTower returns nil without a part for pictures.
func describeTower(t *checkpoint.Tower) (*towerFacts, error) {
	if t == nil {
		return nil, nil
	}
	m, err := vision.Open(t, nil, "") // nothing is computed
	if err != nil {
		return nil, err
	}
	sight := m.Sight()
	f := &towerFacts{Kind: t.Kind.Name, File: t.Path, Layers: t.Values.Int("num_hidden_layers"),
		Width: t.Values.Int("hidden_size"), Row: m.Width, Patch: sight.Patch, Side: sight.Side,
		Image: t.Values.Int("image_size"), Tokens: map[string]int{}}
	for _, s := range shownSizes {
		p, err := m.Prepare(&image.Image{Width: s[0], Height: s[1]})
		if err != nil {
			return nil, err
		}
		f.Tokens[sizeName(s)] = p.Rows
	}
	return f, nil
}

// sizeName writes a picture's size.
func sizeName(s [2]int) string { return fmt.Sprintf("%dx%d", s[0], s[1]) }

func (f *towerFacts) write(w io.Writer) {
	fmt.Fprintf(w, "pictures\t%s, %s of %d, in %s\n", f.Kind, count(f.Layers, "layer"), f.Width,
		oneLine(filepath.Base(f.File)))
	if f.Image > 0 {
		fmt.Fprintf(w, "image size\t%d\n", f.Image)
	}
	fmt.Fprintf(w, "patch\t%d pixels, %dx%d of them a token\n", f.Patch, f.Side, f.Side)
	fmt.Fprintf(w, "tokens\t")
	for i, s := range shownSizes {
		if i > 0 {
			fmt.Fprint(w, ", ")
		}
		fmt.Fprintf(w, "%d of a picture of %s", f.Tokens[sizeName(s)], sizeName(s))
	}
	fmt.Fprintln(w)
}
