package graph

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// Print writes g, a node a line: name, operation, per-token shape, inputs, weights and attributes. File formats and
// element types are left out, so a model prints the same from every file.
func Print(w io.Writer, g *Graph) error {
	b := bufio.NewWriter(w)
	for _, n := range g.Nodes {
		fmt.Fprintf(b, "%s = %v", n.Name, n.Op)
		var args []string
		for _, in := range n.In {
			args = append(args, in.Name)
		}
		for _, w := range n.W {
			args = append(args, fmt.Sprintf("%s%v", w.GGUF, []int(w.Shape)))
		}
		fmt.Fprintf(b, "(%s) %v%s", strings.Join(args, ", "), []int(n.Shape), attributes(n.Attr))
		if n.State != nil {
			fmt.Fprintf(b, " state=%d:%s:%d", n.State.Layer, n.State.Name, n.State.Size)
		}
		if n.HF != "" {
			fmt.Fprintf(b, " ; %s", n.HF)
		}
		b.WriteByte('\n')
	}
	return b.Flush()
}

func attributes(attr any) string {
	switch a := attr.(type) {
	case EmbedAttr:
		return fmt.Sprintf(" scale=%g", a.Scale)
	case NormAttr:
		return fmt.Sprintf(" eps=%g offset=%g", a.Eps, a.Offset)
	case RoPEAttr:
		return fmt.Sprintf(" freqs=%d:%s", len(a.Freqs), ends(a.Freqs)) + set("dim", a.Dim) +
			flag("interleaved", a.Interleaved) + set("magnitude", a.Magnitude) + set("sections", a.Sections) +
			flag("woven", a.Woven)
	case *KV:
		return " " + a.String()
	case AttentionAttr:
		return fmt.Sprintf(" %v scale=%.7g", a.KV, a.Scale) + set("cap", a.Cap) +
			flag("bidirectional", a.Bidirectional) + flag("grouped", a.Grouped)
	case ScaleAttr:
		return fmt.Sprintf(" by=%.7g", a.By)
	case ActAttr:
		return a.text()
	case ExpertsAttr:
		return a.ActAttr.text() + set("form", a.Form) + flag("biased", a.Biased) + flag("on_input", a.OnInput)
	case RouteAttr:
		return set("weigh", a.Weigh) + flag("normalize", a.Normalize) + set("eps", a.Eps) + set("near", a.Near) +
			set("factor", a.Factor) +
			flag("biased", a.Biased) +
			set("groups", a.Groups) + set("kept", a.Kept) + set("best", a.Best)
	case ViewAttr:
		if a.Offset != 0 {
			return fmt.Sprintf(" offset=%d", a.Offset)
		}
	case fmt.Stringer:
		return " " + a.String()
	}
	return ""
}

func (a ActAttr) text() string {
	return fmt.Sprintf(" act=%v", a.Act) + set("limit", a.Limit) + set("alpha", a.Alpha) + set("plus", a.Plus)
}

// ends shows the first and last frequencies, enough to tell bases and scalings apart.
func ends(f []float64) string {
	if len(f) == 0 {
		return "none"
	}
	return fmt.Sprintf("%.6g..%.6g", f[0], f[len(f)-1])
}

func (kv *KV) String() string {
	s := fmt.Sprintf("kv=%d:%dx%d", kv.Layer, kv.Heads, kv.Dim)
	if kv.Window > 0 {
		s += fmt.Sprintf(" window=%d", kv.Window)
	}
	return s + flag("chunked", kv.Chunked) + set("values", kv.ValueDim) + flag("latent", kv.Latent) +
		flag("index", kv.Index)
}

// set returns an attribute other than its zero value.
func set[T comparable](name string, v T) string {
	var zero T
	if v == zero {
		return ""
	}
	return fmt.Sprintf(" %s=%v", name, v)
}

// flag returns an attribute if on.
func flag(name string, on bool) string {
	if on {
		return " " + name
	}
	return ""
}
