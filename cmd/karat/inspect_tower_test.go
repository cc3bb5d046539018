package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
)

// TestInspectTower describes parts for pictures.
func TestInspectTower(t *testing.T) {
	for name, want := range map[string]string{
		"qwen3vl": "qwen3vl_merger, 4 layers of 64, in qwen3vl\npatch\t16 pixels, 2x2 of them a token\n" +
			"tokens\t36 of a picture of 224x224, 30 of a picture of 640x480, 32 of a picture of 1920x1080\n",
		"gemma3": "gemma3, 3 layers of 64, in gemma3\nimage size\t112\npatch\t14 pixels, 2x2 of them a token\n" +
			"tokens\t16 of a picture of 224x224, 16 of a picture of 640x480, 16 of a picture of 1920x1080\n",
	} {
		m, err := checkpoint.Open(golden.Seeded(t, golden.Shared(t, "goldens/vision/"+name)))
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		f, err := describeTower(m.Tower)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if f.write(&b); !strings.HasSuffix(b.String(), want) {
			t.Errorf("%q, want %q", b.String(), want)
		}
	}
	if f, err := describeTower(nil); f != nil || err != nil {
		t.Error("a model of text sees")
	}
}
