package convert

import (
	"context"

	"github.com/karat-run/karat/internal/gguf"
)

// ggufToGGUF changes types and parts. The metadata is copied, so any model will do.
func (c *converter) ggufToGGUF(ctx context.Context) error {
	f, err := gguf.Open(c.src)
	if err != nil {
		return err
	}
	defer f.Close()
	c.result.Architecture, _ = f.Metadata.String("general.architecture") // any model's
	c.reads = f.Paths()
	if c.to.Most.Quantized() {
		jobs, err := c.quantizeJobs(f, c.to, false)
		if err != nil {
			return err
		}
		return c.writeGGUF(ctx, quantizedKeys(f.Metadata, c.to), jobs)
	}
	var jobs []job
	for _, t := range f.Tensors() {
		j := job{in: t, out: t}
		j.out.Data = nil
		if c.to.Name != "" && (t.DType.Float() || t.DType.Quantized()) && !keepsF32(t.Name, t.Shape) &&
			(c.result.Architecture != "clip" || !keepsTowerF32(t.Name, t.Shape, c.to.Most)) {
			j.out.DType = c.to.Most
		}
		jobs = append(jobs, j)
	}
	var keys []gguf.KeyValue
	for _, key := range f.Metadata.Keys() {
		v, _ := f.Metadata.Lookup(key)
		switch {
		case gguf.IsPartKey(key):
		case key == "general.file_type" && c.to.Name != "":
			keys = append(keys, gguf.KeyValue{Key: key, Value: c.to.FileType})
		default:
			keys = append(keys, gguf.KeyValue{Key: key, Value: v})
		}
	}
	return c.writeGGUF(ctx, keys, jobs)
}
