package eval

import (
	"testing"

	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/model"
)

// TestPeer has what llama-perplexity (b9749, -ctk f32 -ctv f32 -fa off) prints of tiny-llama in float32: of the text's
// first 6 windows of 128 tokens, and against the predictions that it wrote of tiny-llama.Q4_K_M, dequantized, for the
// first 2 of 16.
func TestPeer(t *testing.T) {
	c, err := checkpoint.Open(golden.Model(t, "tiny-llama"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := model.OpenFiles(t.Context(), c, 0)
	if err != nil {
		t.Fatal(err)
	}
	m := &Model{*files}
	defer m.Close()
	n, err := numerics.Parse("f32", "")
	if err != nil {
		t.Fatal(err)
	}
	r, err := m.Start(t.Context(), model.Options{Numerics: n, Engine: engine.Options{Context: 128}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	w, err := m.Windows(t.Context(), Text, 128, 6)
	if err != nil {
		t.Fatal(err)
	}
	alone, err := Run(t.Context(), w, Options{Model: r})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "perplexity", alone.Perplexity.Value, 15.7851, 1e-4)
	near(t, "its error", alone.Perplexity.Error, 2.24433, 1e-4)

	f, err := OpenFile("testdata/tiny-llama.Q4_K_M.kld")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if w, err = f.Windows(0); err != nil {
		t.Fatal(err)
	}
	against, err := Run(t.Context(), w, Options{Model: r, Base: f})
	if err != nil {
		t.Fatal(err)
	}
	b := against.Base
	for _, x := range []struct {
		what         string
		got          Estimate
		value, error float64
		within       float64
	}{
		{"perplexity", against.Perplexity, 62.1133, 51.3256, 2e-4},
		{"ln ratio", b.LogRatio, -0.08032, 0.11864, 1e-5},
		{"KL", b.KL.Mean, 0.05426, 0.01411, 2e-5}, // the file's 16 bits make theirs 1e-5 larger
		{"RMS Δp", b.RMSDeltaP, 0.03524, 0.01025, 1e-5},
		{"same top", b.SameTop, 0.85714, 0.09705, 1e-5},
	} {
		near(t, x.what, x.got.Value, x.value, x.within)
		near(t, x.what+"'s error", x.got.Error, x.error, x.within)
	}
}
