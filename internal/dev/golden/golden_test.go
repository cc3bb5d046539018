package golden

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
)

func TestRecords(t *testing.T) {
	want := []string{"tiny-gemma3", "tiny-gemma4", "tiny-gemma4-moe", "tiny-llama", "tiny-qwen2", "tiny-qwen3"}
	names := Models(t)
	for _, name := range want {
		if !slices.Contains(names, name) {
			t.Errorf("no model %s", name)
		}
	}
	for _, name := range names {
		r := Record(t, name)
		if _, err := os.Stat(r.Tensors(t)); err != nil {
			t.Error(err)
		}
		if len(r.Prompts) != 11 {
			t.Errorf("%s: %d prompts, want 11", name, len(r.Prompts))
		}
		for i, p := range r.Prompts {
			switch {
			case p.Index != i:
				t.Errorf("%s: prompt %d has index %d", name, i, p.Index)
			case p.PositionsKept < 1 || p.PositionsKept > len(p.IDs):
				t.Errorf("%s: prompt %d keeps %d of %d positions", name, i, p.PositionsKept, len(p.IDs))
			case p.NextID != p.GreedyIDs[0]:
				t.Errorf("%s: prompt %d: next token %d, greedy text begins with %d", name, i, p.NextID, p.GreedyIDs[0])
			case p.Float32.MaxAbsDiff <= 0 || p.Float32.MaxAbsDiff >= p.BFloat16.MaxAbsDiff:
				t.Errorf("%s: prompt %d: floors %g and %g", name, i, p.Float32.MaxAbsDiff, p.BFloat16.MaxAbsDiff)
			case (p.Prompt.Text == "") == (len(p.Prompt.Chat) == 0):
				t.Errorf("%s: prompt %d is not either text or chat", name, i)
			}
		}
	}
}

func TestDirFollowsTheEnvironment(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "goldens"), 0o777); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KARAT_SHARED", dir)
	if got, want := Dir(t), filepath.Join(dir, "goldens"); got != want {
		t.Errorf("Dir = %s, want %s", got, want)
	}
	if got, want := Repo(t), filepath.Join(Root(t), "testdata"); got != want {
		t.Errorf("Repo = %s, want %s", got, want)
	}
}

// attempt is a testing.TB that notes how the test under it ended.
type attempt struct {
	testing.TB
	skipped, failed bool
}

func (a *attempt) Skipf(string, ...any) { a.skipped = true; runtime.Goexit() }

func (a *attempt) Fatalf(string, ...any) { a.failed = true; runtime.Goexit() }

// try runs f as a test of its own.
func try(t *testing.T, f func(testing.TB)) (skipped, failed bool) {
	a := &attempt{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(a)
	}()
	<-done
	return a.skipped, a.failed
}

func TestSharedSkipsOnlyWithoutTheFolder(t *testing.T) {
	dir := t.TempDir()
	root := filepath.Join(dir, "repo")
	if err := os.Mkdir(root, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "go.mod"), []byte(module+"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	t.Chdir(root)
	t.Setenv("KARAT_SHARED", "")
	ask := func(tb testing.TB) { Shared(tb, "goldens/README.md") }

	if skipped, failed := try(t, ask); !skipped || failed {
		t.Errorf("no shared folder: skipped %v, failed %v", skipped, failed)
	}
	if err := os.MkdirAll(filepath.Join(dir, "shared", "goldens"), 0o777); err != nil {
		t.Fatal(err)
	}
	if skipped, failed := try(t, ask); skipped || !failed {
		t.Errorf("file missing in the shared folder: skipped %v, failed %v", skipped, failed)
	}
	t.Setenv("KARAT_SHARED", filepath.Join(dir, "nowhere"))
	if skipped, failed := try(t, ask); skipped || !failed {
		t.Errorf("KARAT_SHARED leads nowhere: skipped %v, failed %v", skipped, failed)
	}
}

func TestLackingFailsWhereNothingMayLack(t *testing.T) {
	ask := func(tb testing.TB) { Lacking(tb, "no GPU") }
	t.Setenv("KARAT_COMPLETE", "")
	if skipped, failed := try(t, ask); !skipped || failed {
		t.Errorf("anywhere: skipped %v, failed %v", skipped, failed)
	}
	t.Setenv("KARAT_COMPLETE", "1")
	if skipped, failed := try(t, ask); skipped || !failed {
		t.Errorf("in CI: skipped %v, failed %v", skipped, failed)
	}
}
