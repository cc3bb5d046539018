// Package report writes a diagnosis for its readers: as text for a terminal, as JUnit's XML and SARIF for CI, as JSON
// in brief for programs, and as one HTML page that can be mailed. The page carries the diagnosis as JSON, and page.js
// draws it, there and in the page of package web.
//
// Names, texts and numbers of a diagnosis come from a stranger's dump. Whatever they are, each form stays
// well-formed, and all forms except the JSON have a bounded size.
//
// The files, users before the used: report.go (the folder), html.go (the page), junit.go, sarif.go, brief.go and
// text.go write the forms, story.go has the sentences, words.go has names, numbers and lists.
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/lab/diagnose"
)

// WriteDir writes a diagnosis in every form to a folder, made if there is none: index.html, junit.xml,
// findings.sarif and diagnosis.json. Other files there stay. Each of them appears whole or not at all, and the JSON,
// which has no NaN, comes last.
func WriteDir(dir string, d *diagnose.Diagnosis) error {
	if st, err := os.Stat(dir); err == nil && !st.IsDir() {
		return fmt.Errorf("%w", &fs.PathError{Op: "write", Path: dir, Err: errors.New("not a folder")})
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for _, f := range []struct {
		name  string
		write func(io.Writer, *diagnose.Diagnosis) error
	}{{"index.html", HTML}, {"junit.xml", JUnit}, {"findings.sarif", SARIF},
		{"diagnosis.json", writeJSON}} {
		write := func(w io.Writer) error { return f.write(w, d) }
		if err := atomicfile.Write(filepath.Join(dir, f.name), write); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return nil
}

// writeJSON writes a diagnosis with the values of the page.
func writeJSON(w io.Writer, d *diagnose.Diagnosis) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(struct {
		*diagnose.Diagnosis
		Page *page `json:"page"` // for internal/web's viewer
	}{d, newPage(d)})
}
