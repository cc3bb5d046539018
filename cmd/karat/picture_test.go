package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestDropped: paths as terminals write dropped files are pictures, where files are there; other text stays.
func TestDropped(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.png", "b c.JPG", "it's.webp", "notes.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := func(line string) string { return strings.ReplaceAll(line, "DIR", dir) }
	for line, want := range map[string][]string{ // the rest of the line first
		"DIR/a.png":                            {"", "DIR/a.png"},
		"'DIR/b c.JPG' ":                       {"", "DIR/b c.JPG"},
		`DIR/b\ c.JPG what is  this?`:          {"what is  this?", "DIR/b c.JPG"},
		`"DIR/it's.webp" and file://DIR/a.png`: {"and", "DIR/it's.webp", "DIR/a.png"},
		"file://DIR/b%20c.JPG":                 {"", "DIR/b c.JPG"},
		"DIR/none.png":                         {"DIR/none.png"},
		"read DIR/notes.txt, isn't it?":        {"read DIR/notes.txt, isn't it?"},
		"a.png":                                {"a.png"},
		"/image DIR/a.png":                     {"/image DIR/a.png"},
		"/save DIR/a.png":                      {"/save DIR/a.png"},
	} {
		paths, rest := cutImages(at(line))
		if got := append([]string{rest}, paths...); !slices.Equal(got, strings.Split(at(strings.Join(want, "\n")), "\n")) {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// TestImageNames: the errors of pictures name the file, and those of addresses the remedy.
func TestImageNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.png")
	if err := os.WriteFile(path, []byte("II*\x00 a picture of another form"), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{path: path + ": the file's form is TIFF", "file://" + path: path + ": the file's",
		"https://example.com/a.png": "karat fetches no pictures: save the picture", "data:image/png;base64,AA": "fetches no",
		"none.png": "none.png: no such file"} {
		if _, err := readImage(context.Background(), text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
