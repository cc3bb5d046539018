package main

import (
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

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
