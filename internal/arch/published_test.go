package arch_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/tensor"
)

// TestPublished reads published.json beside each golden, the facts of a publisher's config.json: it is taken without
// notes, every key of it is read or known to change nothing, and the graph has its sizes.
func TestPublished(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(golden.Repo(t), "*", "*", "published.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			config, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			c, err := checkpoint.Configured(config)
			if err != nil {
				t.Fatal(err)
			}
			if notes, err := c.Config(c.Family.Model.Config()); err != nil || len(notes)+len(c.Notes) > 0 {
				t.Errorf("%v: %q, %q", err, notes, c.Notes)
			}
			for _, e := range arch.Unread(c) {
				if !c.Idle(e.Key) {
					t.Errorf("%s = %s is not read, and not listed as idle", e.Key, e.Value)
				}
			}
			planned, err := arch.Planned(c)
			if err != nil {
				t.Fatal(err)
			}
			embed := tensor.Shape{int(c.Setting("vocab_size").(float64)), int(c.Setting("hidden_size").(float64))}
			if !slices.ContainsFunc(planned, func(x tensor.Tensor) bool {
				return x.Name == "token_embd" && slices.Equal(x.Shape, embed)
			}) {
				t.Errorf("no embedding of %v", embed)
			}
			last := fmt.Sprintf("blk.%v.", c.Setting("num_hidden_layers").(float64)-1)
			if !slices.ContainsFunc(planned, func(x tensor.Tensor) bool { return strings.HasPrefix(x.Name, last) }) {
				t.Errorf("no tensor of %s", last)
			}
		})
	}
}
