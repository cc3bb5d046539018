package graph

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// Print writes g, a node a line: name, operation, per-token shape, inputs,
// weights and attributes. It says nothing of a file's format or element types,
// so the same model prints the same from every file.
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
		return fmt.Sprintf(" freqs=%d:%s", len(a.Freqs), ends(a.Freqs))
	case *KV:
		return " " + a.String()
	case AttentionAttr:
		return fmt.Sprintf(" %v scale=%.7g", a.KV, a.Scale)
	case ScaleAttr:
		return fmt.Sprintf(" by=%.7g", a.By)
	case ActAttr:
		return fmt.Sprintf(" act=%v", a.Act)
	case ViewAttr:
		if a.Offset != 0 {
			return fmt.Sprintf(" offset=%d", a.Offset)
		}
	}
	return ""
}

// ends shows where frequencies start and end, which tells bases and scalings apart.
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
	return s
}
